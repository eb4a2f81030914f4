"""The log: one line a request, whatever users write, and the trace it belongs to."""

import json
import os
import pathlib
import pty
import re
import tempfile
import time
import unittest

import grpc

from secure_server import SecureServer, bearer, code_of, eventually, tlm_keys
from support import details_of, request, violated_fields
from tlm_server import TlmServer

from google.rpc import error_details_pb2
from inference import open_inference_pb2 as oip
from openengine.v1 import generation_pb2 as openengine, lifecycle_pb2, model_pb2, openengine_pb2
from tlm.v1 import (admin_pb2, forward_pb2, generate_pb2, language_model_pb2, model_info_pb2,
                    score_pb2, tokenize_pb2, verify_pb2)
from vllm import control_pb2, inference_pb2
from vllm.grpc.engine import vllm_engine_pb2 as vllm
from xds.service.orca.v3 import orca_pb2

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SECRET = "the rain in Spain"
PATIENCE_SECONDS = 20


def lines_of(server):
    """Every line of the log that is written to its end, each a JSON object."""
    return [json.loads(line) for line in server.log().split("\n")[:-1]]


class JsonLogTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = TlmServer("--log_format=json").__enter__()
        cls.addClassCleanup(cls.server.close)
        cls.model = cls.server.model

    def line_of(self, request_id):
        """The one line of that request, once it is there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            lines = [line for line in lines_of(self.server)
                     if line["msg"] == "request" and line["request_id"] == request_id]
            if lines or time.monotonic() > deadline:
                self.assertEqual(len(lines), 1, self.server.log())
                return lines[0]
            time.sleep(0.01)

    def generate(self, request_id, metadata=(), **options):
        asked = request(SECRET, **options)
        asked.request_id = request_id
        call = self.model.Generate(asked, metadata=metadata)
        events = list(call)
        return events, dict(call.initial_metadata())

    def test_every_line_is_an_object_with_time_level_and_message(self):
        for line in lines_of(self.server):
            self.assertRegex(line["ts"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"))
            self.assertTrue(line["msg"])

    def test_a_request_leaves_what_it_took(self):
        events, _ = self.generate("took", max_new_tokens=9)
        line = self.line_of("took")
        usage = next(e.summary.usage for e in events if e.HasField("summary"))
        self.assertEqual(line["rpc"], "Generate")
        self.assertEqual(line["code"], "OK")
        self.assertEqual(line["finish"], "length")
        self.assertTrue(line["admitted"])
        self.assertEqual(line["prompt_tokens"], usage.prompt_tokens)
        self.assertEqual(line["completion_tokens"], 9)
        self.assertEqual(line["peer"], "127.0.0.1")
        self.assertGreaterEqual(line["ttft_ms"], line["queue_ms"])
        self.assertGreaterEqual(line["total_ms"], line["ttft_ms"])

    def test_spans_lie_within_the_request(self):
        self.generate("spans", max_new_tokens=9)
        line = self.line_of("spans")
        self.assertEqual([span["name"] for span in line["spans"]],
                         ["queue", "prefill", "decode", "write"])
        ids = [span["span_id"] for span in line["spans"]] + [line["span_id"]]
        self.assertEqual(len(set(ids)), 5)
        for span in line["spans"]:
            self.assertRegex(span["span_id"], r"^[0-9a-f]{16}$")
            self.assertGreaterEqual(span["start_ms"], 0)
            self.assertLessEqual(span["start_ms"] + span["duration_ms"], line["total_ms"] + 1)

    def test_the_callers_trace_goes_on(self):
        _, initial = self.generate("traced", [("traceparent", f"00-{TRACE}-{PARENT}-01"),
                                              ("tracestate", "vendor=value"),
                                              ("tracestate", "other=2")])
        line = self.line_of("traced")
        self.assertEqual(line["trace_id"], TRACE)
        self.assertEqual(line["parent_span_id"], PARENT)
        self.assertTrue(line["sampled"])
        self.assertEqual(line["tracestate"], "vendor=value,other=2")
        self.assertEqual(initial["traceparent"], f"00-{TRACE}-{line['span_id']}-01")

    def test_a_call_that_fails_without_a_message_has_trailers_alone(self):
        """Only such a call is retried by a client's retryPolicy."""
        for asked in (request("refused", max_new_tokens=0), request("", max_new_tokens=4)):
            call = self.model.Generate(asked, timeout=60)
            with self.assertRaises(grpc.RpcError) as refused:
                list(call)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(list(call.initial_metadata()), [])

    def test_without_a_good_trace_a_new_one_begins(self):
        for name, metadata in (
                ("none", []), ("bad", [("traceparent", f"00-{TRACE.upper()}-{PARENT}-01")]),
                ("two", [("traceparent", f"00-{TRACE}-{PARENT}-01")] * 2),
                ("stray", [("tracestate", "vendor=value")])):
            self.generate(name, metadata)
            line = self.line_of(name)
            self.assertRegex(line["trace_id"], r"^[0-9a-f]{32}$", name)
            self.assertNotEqual(line["trace_id"], TRACE, name)
            self.assertEqual(line["parent_span_id"], "", name)
            self.assertNotIn("tracestate", line, name)

    def test_ids_cannot_break_lines(self):
        for request_id in ('"}\n{"level":"error"}', "a\\b\"c", "tab\tnul\x00bell\x07", "\u2028é😀",
                           "\x7f\u0085"):
            with self.subTest(request_id=request_id):
                try:
                    self.generate(request_id, max_new_tokens=2)
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
                else:
                    self.line_of(request_id)
                lines_of(self.server)

    def test_refusals_tell_code_and_field(self):
        asked = request(temperature=-1)
        asked.request_id = "refused"
        with self.assertRaises(grpc.RpcError):
            list(self.model.Generate(asked))
        line = self.line_of("refused")
        self.assertEqual((line["code"], line["reason"], line["field"]),
                         ("INVALID_ARGUMENT", "", "sampling.temperature"))
        self.assertFalse(line["admitted"])
        self.assertEqual(line["spans"], [])

    def test_neither_prompts_nor_outputs_are_logged(self):
        events, _ = self.generate("quiet", max_new_tokens=40)
        text = "".join(e.tokens.text for e in events if e.HasField("tokens"))
        self.model.Tokenize(tokenize_pb2.TokenizeRequest(text=SECRET, request_id="quiet too"))
        with self.assertRaises(grpc.RpcError):
            list(self.model.Generate(generate_pb2.GenerateRequest(model=SECRET, prompt=SECRET)))
        self.line_of("quiet too")
        log = self.server.log()
        self.assertNotIn(SECRET, log)
        self.assertNotIn("Spain", log)
        self.assertGreater(len(text), 20)
        self.assertNotIn(text[:20], log)


class TextLogTest(unittest.TestCase):
    def test_a_request_is_one_line(self):
        with TlmServer() as server:
            asked = request(max_new_tokens=3)
            asked.request_id = 'a "quoted" id'
            list(server.model.Generate(asked, metadata=[
                ("traceparent", f"00-{TRACE}-{PARENT}-01")]))
            server.model.ModelInfo(model_info_pb2.ModelInfoRequest())
            server.terminate()
            server.wait()
            lines = [line for line in server.log().splitlines() if " request " in line]
        self.assertEqual(len(lines), 2)
        info, generate = sorted(lines, key=lambda line: " rpc=Generate " in line)
        self.assertRegex(generate, r'id="a \\"quoted\\" id" tenant="" status=OK prompt_tokens=\d+ ')
        self.assertIn(f"trace={TRACE}", generate)
        self.assertIn("completion_tokens=3", generate)
        self.assertIn(" rpc=ModelInfo ", info)
        self.assertNotRegex(info, "tokens=|queue_ms=|ttft_ms=|reason=")



def refuse(channel, method, message, **options):
    """Calls /METHOD with a message, or with bytes; the error that the call ends with."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    try:
        list(channel.unary_stream(f"/{method}")(data, timeout=60, **options))
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"{method} was not refused")


# The beginnings of the names that the log gives to the methods of the services.
SERVICES = {"tlm.v1.LanguageModel": "", "tlm.v1.Admin": "", "inference.GRPCInferenceService": "",
            "vllm.Inference": "dynamo.", "vllm.Control": "dynamo.",
            "openengine.v1.Inference": "openengine.", "openengine.v1.Control": "openengine.",
            "vllm.grpc.engine.VllmEngine": "vllm.", "xds.service.orca.v3.OpenRcaService": ""}


def rpc_of(method):
    service, name = method.split("/")
    return SERVICES[service] + name


def prompt(**fields):
    return generate_pb2.GenerateRequest(prompt=SECRET, **fields)


def conversation(**message):
    return generate_pb2.GenerateRequest(chat=generate_pb2.ChatInput(
        messages=[{"role": "user", "content": SECRET}, message]))


def infer(**parameters):
    asked = oip.ModelInferRequest()
    asked.inputs.add(name="text_input", datatype="BYTES",
                     shape=[1]).contents.bytes_contents.append(SECRET.encode())
    for name, value in parameters.items():
        asked.parameters[name].string_param = value
    return asked


MODEL = "tlm.v1.LanguageModel/"
# Refused calls: the method, the request, and the reason or the field of the error. The messages of
# most of these errors quote SECRET.
REFUSALS = (
    (MODEL + "Generate", request(top_p=7), "sampling.top_p"),
    (MODEL + "Generate", prompt(model=SECRET), "model"),
    (MODEL + "Generate", prompt(request_id=SECRET + "\n"), "request_id"),
    (MODEL + "Generate", prompt(regex=f"({SECRET}"), "regex"),
    (MODEL + "Generate", prompt(grammar=f'root ::= "{SECRET}'), "grammar"),
    (MODEL + "Generate", prompt(json_schema=f'{{"type": "{SECRET}"}}'), "json_schema"),
    (MODEL + "Generate", prompt(json_schema=f'{{"properties": {{"{SECRET}": {{"type": 7}}}}}}'),
     "json_schema"),
    (MODEL + "Generate", prompt(regex="a" * (3 << 20)), "CONSTRAINT_TOO_LARGE"),
    (MODEL + "Generate", prompt(resume=generate_pb2.ResumePoint(
        fingerprint=SECRET, generated_token_ids=[1])), "STALE_FINGERPRINT"),
    (MODEL + "Generate", conversation(role="assistant", tool_calls=[{"arguments_json": SECRET}]),
     "chat.messages[1].tool_calls"),
    (MODEL + "Generate", b"\xff" + SECRET.encode(), ""),
    (MODEL + "Forward", forward_pb2.ForwardRequest(model=SECRET), "model"),
    (MODEL + "Score", score_pb2.ScoreRequest(prompt=SECRET), "continuations"),
    (MODEL + "Verify", verify_pb2.VerifyRequest(
        claimed_token_ids=[1], request=prompt(sampling={"top_p": 7})), "request.sampling.top_p"),
    (MODEL + "Tokenize", tokenize_pb2.TokenizeRequest(model=SECRET), "model"),
    (MODEL + "Detokenize", tokenize_pb2.DetokenizeRequest(token_ids=[1, 1 << 31]), "token_ids[1]"),
    (MODEL + "ModelInfo", model_info_pb2.ModelInfoRequest(model=SECRET), "model"),
    ("xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
     orca_pb2.OrcaLoadReportRequest(report_interval={"seconds": -1}), "report_interval"),
    ("vllm.grpc.engine.VllmEngine/Generate", vllm.GenerateRequest(data_parallel_rank=3),
     "data_parallel_rank"),
    ("vllm.grpc.engine.VllmEngine/Embed", vllm.EmbedRequest(), ""),
    ("vllm.grpc.engine.VllmEngine/Abort", vllm.AbortRequest(request_ids=["a", SECRET * 99]),
     "request_ids[1]"),
    ("vllm.Inference/Generate", inference_pb2.GenerateRequest(session_id=SECRET), "session_id"),
    ("vllm.Inference/GenerateStream", inference_pb2.GenerateRequest(lora_name=SECRET), "lora_name"),
    ("vllm.Control/Abort", control_pb2.AbortRequest(request_ids=[SECRET * 99]), "request_ids[0]"),
    ("openengine.v1.Inference/Generate", openengine.GenerateRequest(lora_name=SECRET), "lora_name"),
    ("openengine.v1.Control/Abort", lifecycle_pb2.AbortRequest(), "target"),
    ("openengine.v1.Control/GetModelInfo", model_pb2.GetModelInfoRequest(model=SECRET), "model"),
    ("inference.GRPCInferenceService/ModelInfer", infer(temperature=SECRET),
     "parameters[temperature]"),
    ("inference.GRPCInferenceService/ModelInfer", infer(**{SECRET: SECRET}),
     f"parameters['{SECRET}']"),
    ("inference.GRPCInferenceService/ModelMetadata", oip.ModelMetadataRequest(name=SECRET), "model"),
    ("tlm.v1.Admin/Abort", admin_pb2.AbortRequest(request_ids=[SECRET * 99]), "request_ids[0]"),
    ("tlm.v1.Admin/Drain", admin_pb2.DrainRequest(time_limit={"seconds": -1}), "time_limit"),
    (f"tlm.v1.LanguageModel/{SECRET.replace(' ', '')}", b"", ""),
)


class RefusalTest(unittest.TestCase):
    FLAGS = ("--log_format=json", "--facades=dynamo,oip,openengine,vllm")

    @staticmethod
    def lines_of(server, rpc):
        return [line for line in lines_of(server) if line["msg"] == "request" and line["rpc"] == rpc]

    def new_line(self, server, rpc, act):
        """What `act` returns, and the line of that rpc that it adds to the log."""
        before = len(self.lines_of(server, rpc))
        result = act()
        lines = eventually(lambda: self.lines_of(server, rpc)[before:])
        self.assertEqual(len(lines), 1, server.log())
        return result, lines[0]

    def test_a_line_has_code_reason_and_field_of_the_error_and_nothing_of_the_request(self):
        with SecureServer(*self.FLAGS) as server:
            quoted = 0
            for method, message, about in REFUSALS:
                rpc = "unknown" if "Spain" in method else rpc_of(method)
                target = server.admin_target if "Admin" in method else server.target
                with self.subTest(method=method, about=about), \
                        grpc.insecure_channel(target) as channel:
                    error, line = self.new_line(server, rpc,
                                                lambda: refuse(channel, method, message))
                    field = "".join(violated_fields(error))
                    info = details_of(error, error_details_pb2.ErrorInfo)
                    reason = "" if info is None else info.reason
                    self.assertTrue((reason or field).startswith(about) if about
                                    else not reason + field, (reason, field))
                    quoted += SECRET in error.details()
                    self.assertEqual(line["code"], error.code().name)
                    self.assertEqual(line["reason"], reason)
                    self.assertEqual(line.get("field", ""), field.split("['")[0])
            self.assertGreater(quoted, 5)
            self.assertNotIn("Spain", server.log())

    def test_calls_without_credentials_have_a_line_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "keys.json"
            key = tlm_keys("add", f"--file={file}", "--tenant=acme")
            tlm_keys("limits", f"--file={file}", "--tenant=acme", "--requests_per_minute=1")
            with SecureServer(f"--api_keys={file}", *self.FLAGS) as server, \
                    grpc.insecure_channel(server.target) as channel, \
                    grpc.insecure_channel(server.admin_target) as admin:
                for method in self.methods():
                    at = admin if "Admin" in method else channel
                    for metadata, code, reason in (
                            ((), "UNAUTHENTICATED", "MISSING_CREDENTIALS"),
                            (bearer(f"tlm_{'a' * 12}_{SECRET.replace(' ', '')}"), "UNAUTHENTICATED",
                             "BAD_CREDENTIALS")):
                        with self.subTest(method=method, reason=reason):
                            self.assert_refused(server, at, method, metadata, code, reason)
                for name in ("GetLoad", "Abort", "Drain", "FlushPrefixCache", "GetConfig"):
                    with self.subTest(name=name):
                        self.assert_refused(server, admin, f"tlm.v1.Admin/{name}", bearer(key),
                                            "PERMISSION_DENIED", "ROLE_REQUIRED")
                self.assertEqual(code_of(lambda: channel.unary_stream(f"/{MODEL}Generate")(
                    request(max_new_tokens=1).SerializeToString(), metadata=bearer(key))),
                    grpc.StatusCode.OK)
                _, line = self.new_line(server, "Generate", lambda: refuse(
                    channel, MODEL + "Generate", request(), metadata=bearer(key)))
                self.assertEqual((line["code"], line["reason"], line["tenant"]),
                                 ("RESOURCE_EXHAUSTED", "TENANT_QUOTA", "acme"))
                self.assertNotIn("Spain", server.log())

    @staticmethod
    def methods():
        """Every method that asks for credentials."""
        files = (language_model_pb2, admin_pb2, oip, inference_pb2, control_pb2, openengine_pb2, vllm,
                 orca_pb2)
        named = [f"{service.full_name}/{method.name}" for file in files
                 for service in file.DESCRIPTOR.services_by_name.values()
                 for method in service.methods]
        probes = {"ServerLive", "ServerReady", "ModelReady", "HealthCheck", "Health"}
        return [method for method in named if method.split("/")[1] not in probes]

    def assert_refused(self, server, channel, method, metadata, code, reason):
        """Of such calls only ten a second have lines: asks until there is one."""
        def has_line():
            before = len(self.lines_of(server, rpc))
            self.assertEqual(refuse(channel, method, b"", metadata=metadata).code().name, code)
            time.sleep(0.01)
            return self.lines_of(server, rpc)[before:]
        rpc = rpc_of(method)
        lines = eventually(has_line)
        self.assertTrue(lines, server.log())
        self.assertEqual((lines[0]["code"], lines[0]["reason"]), (code, reason))


class TerminalTest(unittest.TestCase):
    HINT = "--log_calls logs each call"

    def shown(self, *flags):
        """What a server writes on a terminal that answers a call, refuses one, and ends."""
        terminal, end = pty.openpty()
        with open(terminal, "rb", buffering=0) as reader:
            with TlmServer(*flags, preexec_fn=lambda: os.dup2(end, 2)) as server:
                os.close(end)
                self.assertEqual(code_of(lambda: server.model.Generate(request(max_new_tokens=1))),
                                 grpc.StatusCode.OK)
                self.assertEqual(code_of(lambda: server.model.Generate(request(top_p=7))),
                                 grpc.StatusCode.INVALID_ARGUMENT)
                server.terminate()
                self.assertEqual(server.wait(), 0)
                text = b""
                try:
                    while piece := reader.read(1 << 16):
                        text += piece
                except OSError:  # how the end of a terminal reads
                    pass
        text = text.decode()
        self.assertIn("serving ", text)
        return text

    def test_calls_have_lines_if_asked_for(self):
        for flags, calls, hint in (((), 0, True), (("--log_calls",), 2, False),
                                   (("--nolog_calls",), 0, False),
                                   (("--log_format=json",), 2, False),
                                   (("--log_format=json", "--log_calls=false"), 0, False)):
            with self.subTest(flags=flags):
                text = self.shown(*flags)
                self.assertEqual(len(re.findall(r"rpc=Generate |\"rpc\":\"Generate\"", text)), calls)
                self.assertEqual(self.HINT in text, hint)

    def test_a_file_has_calls_unless_told_otherwise(self):
        for flags, calls in (((), 1), (("--log_calls=auto",), 1), (("--nolog_calls",), 0)):
            with self.subTest(flags=flags), TlmServer(*flags) as server:
                self.assertEqual(code_of(lambda: server.model.Generate(request(top_p=7))),
                                 grpc.StatusCode.INVALID_ARGUMENT)
                server.terminate()
                self.assertEqual(server.wait(), 0)
                self.assertEqual(server.log().count(" field=sampling.top_p "), calls)
                self.assertNotIn(self.HINT, server.log())
