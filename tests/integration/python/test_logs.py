"""The log: one line a request, whatever users write, and the trace it belongs to."""

import json
import os
import pty
import re
import time
import unittest

import grpc

from secure_server import code_of
from support import ServerTest, request
from tlm_server import TlmServer

from tlm.v1 import generate_pb2, model_info_pb2, tokenize_pb2

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SECRET = "the rain in Spain"
PATIENCE_SECONDS = 20


def lines_of(server):
    """Every line of the log that is written to its end, each a JSON object."""
    return [json.loads(line) for line in server.log().split("\n")[:-1]]


class JsonLogTest(ServerTest):
    FLAGS = ("--log_format=json",)

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
