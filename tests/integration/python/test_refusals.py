"""Every call that the server refuses, on every service: the status, the field or the reason, and the
line of the log.

A row shows that a call's errors come over the wire. Which requests are refused is tested by
tests/unit/server/rpc (convert and facades). Where a status depends on the server's state, the test of
that state has it: test_admin, test_deadlines, test_resume, test_start, test_tenants.
"""

import collections
import pathlib
import tempfile
import time
import unittest

import grpc

from secure_server import SecureServer, bearer, code_of, eventually, tlm_keys
from support import details_of, request
from test_logs import SECRET, lines_of

from google.rpc import error_details_pb2
from inference import open_inference_pb2 as oip
from openengine.v1 import generation_pb2 as openengine, lifecycle_pb2, model_pb2, openengine_pb2
from tlm.v1 import (admin_pb2, forward_pb2, generate_pb2, language_model_pb2, model_info_pb2,
                    score_pb2, tokenize_pb2, verify_pb2)
from vllm import control_pb2, inference_pb2
from vllm.grpc.engine import vllm_engine_pb2 as vllm
from xds.service.orca.v3 import orca_pb2

FLAGS = ("--log_format=json", "--facades=dynamo,oip,openengine,vllm")
# The beginnings of the names that the log gives to the methods of the services.
SERVICES = {"tlm.v1.LanguageModel": "", "tlm.v1.Admin": "", "inference.GRPCInferenceService": "",
            "vllm.Inference": "dynamo.", "vllm.Control": "dynamo.",
            "openengine.v1.Inference": "openengine.", "openengine.v1.Control": "openengine.",
            "vllm.grpc.engine.VllmEngine": "vllm.", "xds.service.orca.v3.OpenRcaService": ""}
FILES = (language_model_pb2, admin_pb2, oip, inference_pb2, control_pb2, openengine_pb2, vllm, orca_pb2)
PROBES = {"ServerLive", "ServerReady", "ModelReady", "HealthCheck", "Health"}


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
DYNAMO = {"token_ids": {"ids": [7]}, "temperature": 1}
VLLM = {"tokenized": {"input_ids": [7]}}
INVALID, MISSING, UNSERVED = "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"
EXHAUSTED, STALE = "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"
# The method, the request, the code, and the reason or the field of the error, of which the field may
# go on. The messages of most of these errors quote SECRET.
REFUSALS = (
    (MODEL + "Generate", request(top_p=7), INVALID, "sampling.top_p"),
    (MODEL + "Generate", prompt(model=SECRET), MISSING, "model"),
    (MODEL + "Generate", prompt(request_id=SECRET + "\n"), INVALID, "request_id"),
    (MODEL + "Generate", prompt(regex=f"({SECRET}"), INVALID, "regex"),
    (MODEL + "Generate", prompt(grammar=f'root ::= "{SECRET}'), INVALID, "grammar"),
    (MODEL + "Generate", prompt(json_schema=f'{{"type": "{SECRET}"}}'), INVALID, "json_schema"),
    (MODEL + "Generate", prompt(json_schema=f'{{"properties": {{"{SECRET}": {{"type": 7}}}}}}'),
     INVALID, "json_schema"),
    (MODEL + "Generate", prompt(regex="a" * (3 << 20)), EXHAUSTED, "CONSTRAINT_TOO_LARGE"),
    (MODEL + "Generate", prompt(resume=generate_pb2.ResumePoint(
        fingerprint=SECRET, generated_token_ids=[1])), STALE, "STALE_FINGERPRINT"),
    (MODEL + "Generate", conversation(role="assistant", tool_calls=[{"arguments_json": SECRET}]),
     INVALID, "chat.messages[1].tool_calls"),
    (MODEL + "Generate", generate_pb2.GenerateRequest(chat={
        "messages": [{"role": "user", "content": SECRET}],
        "tools": [{"name": "f", "parameters_json_schema": f'{{"properties": {{"a": {{"type": "{SECRET}"}}}}}}'}]}),
     INVALID, "chat.tools[0].parameters_json_schema"),
    (MODEL + "Generate", b"\xff" + SECRET.encode(), INVALID, ""),
    (MODEL + "Forward", forward_pb2.ForwardRequest(model=SECRET), MISSING, "model"),
    (MODEL + "Score", score_pb2.ScoreRequest(prompt=SECRET), INVALID, "continuations"),
    (MODEL + "Verify", verify_pb2.VerifyRequest(
        claimed_token_ids=[1], request=prompt(sampling={"top_p": 7})), INVALID, "request.sampling.top_p"),
    (MODEL + "Verify", verify_pb2.VerifyRequest(
        claimed_token_ids=[1], request=prompt(), fingerprint=SECRET), STALE, "STALE_FINGERPRINT"),
    (MODEL + "Tokenize", tokenize_pb2.TokenizeRequest(model=SECRET), MISSING, "model"),
    (MODEL + "Detokenize", tokenize_pb2.DetokenizeRequest(token_ids=[1, 1 << 31]), INVALID,
     "token_ids[1]"),
    (MODEL + "ModelInfo", model_info_pb2.ModelInfoRequest(model=SECRET), MISSING, "model"),
    ("xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
     orca_pb2.OrcaLoadReportRequest(report_interval={"seconds": -1}), INVALID, "report_interval"),
    ("vllm.grpc.engine.VllmEngine/Generate", vllm.GenerateRequest(data_parallel_rank=3), INVALID,
     "data_parallel_rank"),
    ("vllm.grpc.engine.VllmEngine/Generate", vllm.GenerateRequest(kv_transfer_params_json="{}"),
     UNSERVED, "kv_transfer_params_json"),
    ("vllm.grpc.engine.VllmEngine/Generate",
     vllm.GenerateRequest(**VLLM, sampling_params={"temperature": -1}), INVALID, "sampling.temperature"),
    ("vllm.grpc.engine.VllmEngine/Generate",
     vllm.GenerateRequest(**VLLM).SerializeToString() + b"\xf8\x06\x01", INVALID, "111"),
    ("vllm.grpc.engine.VllmEngine/Embed", vllm.EmbedRequest(), UNSERVED, ""),
    ("vllm.grpc.engine.VllmEngine/GetLoads", vllm.GetLoadsRequest(dp_rank=1), INVALID, "dp_rank"),
    ("vllm.grpc.engine.VllmEngine/Abort", vllm.AbortRequest(request_ids=["a", SECRET * 99]), INVALID,
     "request_ids[1]"),
    # Not UNIMPLEMENTED, as on tlm.v1: Dynamo would take the worker for broken.
    ("vllm.Inference/Generate", inference_pb2.GenerateRequest(session_id=SECRET), INVALID, "session_id"),
    ("vllm.Inference/Generate", inference_pb2.GenerateRequest(**DYNAMO, sampling={"num_sequences": 2}),
     INVALID, "sampling.num_sequences"),
    ("vllm.Inference/GenerateStream", inference_pb2.GenerateRequest(lora_name=SECRET), INVALID,
     "lora_name"),
    ("vllm.Inference/GenerateStream", inference_pb2.GenerateRequest(**DYNAMO, decoding={"json": "{"}),
     INVALID, "json_schema"),
    ("vllm.Inference/GenerateStream", inference_pb2.GenerateRequest(**DYNAMO, model=SECRET), MISSING,
     "model"),
    ("vllm.Control/Abort", control_pb2.AbortRequest(request_ids=[SECRET * 99]), INVALID,
     "request_ids[0]"),
    ("openengine.v1.Inference/Generate", openengine.GenerateRequest(lora_name=SECRET), INVALID,
     "lora_name"),
    ("openengine.v1.Inference/Generate", openengine.GenerateRequest(
        token_ids={"ids": [7]}, sampling={"top_k": -2}), INVALID, "sampling.top_k"),
    ("openengine.v1.Inference/Generate", openengine.GenerateRequest(
        token_ids={"ids": [7]}, model=SECRET), MISSING, "model"),
    ("openengine.v1.Control/Abort", lifecycle_pb2.AbortRequest(), INVALID, "target"),
    ("openengine.v1.Control/GetModelInfo", model_pb2.GetModelInfoRequest(model=SECRET), MISSING,
     "model"),
    ("inference.GRPCInferenceService/ModelInfer", infer(temperature=SECRET), INVALID,
     "parameters[temperature]"),
    ("inference.GRPCInferenceService/ModelInfer", infer(**{SECRET: SECRET}), INVALID,
     f"parameters['{SECRET}']"),
    ("inference.GRPCInferenceService/ModelMetadata", oip.ModelMetadataRequest(name=SECRET), MISSING,
     "model"),
    ("tlm.v1.Admin/Abort", admin_pb2.AbortRequest(request_ids=[SECRET * 99]), INVALID,
     "request_ids[0]"),
    ("tlm.v1.Admin/Drain", admin_pb2.DrainRequest(time_limit={"seconds": -1}), INVALID, "time_limit"),
)
# Methods that are not answered, and what the message says; the first two at the data port and at the
# other one.
UNKNOWN = (("tlm.v1.Admin/GetLoad", "--admin_port"), (MODEL + "ModelInfo", "--port"),
           (MODEL + SECRET.replace(" ", ""), "theraininSpain"), ("some.Service/Call", "/some.Service/Call"),
           ("vllm.Control/Sleep", "/vllm.Control/Sleep is not served"),
           ("openengine.v1.Control/LoadLora", "LoadLora is not served"),
           ("inference.GRPCInferenceService/ModelConfig",
            "ModelConfig is not served: with --facades=oip the server answers "))


def rpc_of(method):
    service, name = method.split("/")
    return SERVICES[service] + name


def refuse(channel, method, message, **options):
    """Calls /METHOD with a message, or with bytes; the error that the call ends with."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    try:
        list(channel.unary_stream(f"/{method}")(data, timeout=60, **options))
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"{method} was not refused")


def lines_of_rpc(server, rpc):
    return [line for line in lines_of(server) if line["msg"] == "request" and line["rpc"] == rpc]


class RefusalTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(SecureServer(*FLAGS))
        cls.data, cls.admin = (cls.enterClassContext(grpc.insecure_channel(target))
                               for target in (cls.server.target, cls.server.admin_target))

    def test_errors_name_field_or_reason_and_the_log_tells_nothing_else_of_the_request(self):
        quoted = 0
        for method, message, code, about in REFUSALS:
            with self.subTest(method=method, about=about):
                rpc = rpc_of(method)
                before = len(lines_of_rpc(self.server, rpc))
                error = refuse(self.admin if "Admin" in method else self.data, method, message)
                self.assertEqual(error.code().name, code, error.details())
                fields = details_of(error, error_details_pb2.BadRequest)
                field = ""
                if fields is not None:
                    violation, = fields.field_violations
                    field = violation.field
                    self.assertEqual(violation.description, error.details())
                info = details_of(error, error_details_pb2.ErrorInfo)
                reason = "" if info is None else info.reason
                self.assertTrue((reason or field).startswith(about) if about
                                else not reason + field, (reason, field))
                quoted += SECRET in error.details()
                line, = eventually(lambda: lines_of_rpc(self.server, rpc)[before:])  # pylint: disable=cell-var-from-loop
                self.assertEqual((line["code"], line["reason"], line.get("field", "")),
                                 (code, reason, field.split("['")[0]))
        self.assertGreater(quoted, 5)
        self.assertNotIn("Spain", self.server.log())

    def test_calls_that_are_not_answered_are_named(self):
        for method, words in UNKNOWN:
            with self.subTest(method):
                error = refuse(self.admin if words == "--port" else self.data, method, b"")
                self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)
                self.assertIn(words, error.details())


class CredentialsTest(unittest.TestCase):

    def test_calls_without_credentials_have_a_line_with_the_reason(self):
        self.messages = collections.defaultdict(set)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "keys.json"
            key = tlm_keys("add", f"--file={file}", "--tenant=acme")
            tlm_keys("limits", f"--file={file}", "--tenant=acme", "--requests_per_minute=1")
            with SecureServer(f"--api_keys={file}", *FLAGS) as server, \
                    grpc.insecure_channel(server.target) as channel, \
                    grpc.insecure_channel(server.admin_target) as admin:
                for method in self.methods():
                    at = admin if "Admin" in method else channel
                    for metadata, reason in (
                            ((), "MISSING_CREDENTIALS"),
                            (bearer(f"tlm_{'a' * 12}_{SECRET.replace(' ', '')}"), "BAD_CREDENTIALS")):
                        with self.subTest(method=method, reason=reason):
                            self.assert_refused(server, at, method, metadata, "UNAUTHENTICATED", reason)
                for name in ("GetLoad", "Abort", "Drain", "FlushPrefixCache", "GetConfig"):
                    with self.subTest(name=name):
                        self.assert_refused(server, admin, f"tlm.v1.Admin/{name}", bearer(key),
                                            "PERMISSION_DENIED", "ROLE_REQUIRED")
                # What is wrong with credentials is for the log.
                self.assertEqual([len(each) for each in self.messages.values()], [1, 1])
                generate = channel.unary_stream(f"/{MODEL}Generate")
                asked = request(max_new_tokens=1).SerializeToString()
                self.assertEqual(code_of(lambda: generate(asked, metadata=bearer(key))),
                                 grpc.StatusCode.OK)
                refuse(channel, MODEL + "Generate", request(), metadata=bearer(key))
                line = eventually(lambda: [line for line in lines_of_rpc(server, "Generate")
                                           if line["code"] == "RESOURCE_EXHAUSTED"])[0]
                self.assertEqual((line["reason"], line["tenant"]), ("TENANT_QUOTA", "acme"))
                self.assertNotIn("Spain", server.log())

    @staticmethod
    def methods():
        """Every method that asks for credentials."""
        return [f"{service.full_name}/{method.name}" for file in FILES
                for service in file.DESCRIPTOR.services_by_name.values()
                for method in service.methods if method.name not in PROBES]

    def assert_refused(self, server, channel, method, metadata, code, reason):
        """Of such calls only ten a second have lines: asks until there is one."""
        def has_line():
            before = len(lines_of_rpc(server, rpc))
            error = refuse(channel, method, b"", metadata=metadata)
            self.assertEqual(error.code().name, code)
            self.assertEqual(details_of(error, error_details_pb2.ErrorInfo).reason, reason)
            self.messages[code].add(error.details())
            time.sleep(0.01)
            return lines_of_rpc(server, rpc)[before:]
        rpc = rpc_of(method)
        lines = eventually(has_line)
        self.assertTrue(lines, server.log())
        self.assertEqual((lines[0]["code"], lines[0]["reason"]), (code, reason))


if __name__ == "__main__":
    unittest.main()
