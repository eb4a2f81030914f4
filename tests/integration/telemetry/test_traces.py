"""Traces over OTLP, as a collector made of OpenTelemetry's own messages receives them. What becomes of
spans that a collector does not take is tested by tests/unit/server/rpc/otlp."""

import pathlib
import re
import tempfile
import threading
import time
import unittest
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from certificates import Authority
from replica import Replica
from tlm.v1 import common_pb2, generate_pb2, language_model_pb2_grpc

PATIENCE_SECONDS = 60
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SECRET = "Xylophone"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it receives. Use as a context manager."""

    def __init__(self, identity=None):
        """identity: key and certificate for TLS, in PEM."""
        self._arrived = threading.Condition()
        self.requests = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        address = "127.0.0.1:0"
        self.port = (self._server.add_insecure_port(address) if identity is None else
                     self._server.add_secure_port(address,
                                                  grpc.ssl_server_credentials([identity])))

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exception):
        self._server.stop(None).wait()

    def Export(self, request, context):  # pylint: disable=invalid-name
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self):
        with self._arrived:
            return [span for request in self.requests for origin in request.resource_spans
                    for scope in origin.scope_spans for span in scope.spans]

    def trace_of(self, request_id):
        """The span of the call with this id, and its children in the order of their begin."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._call(request_id), PATIENCE_SECONDS)
        call = self._call(request_id)
        if call is None:
            raise AssertionError(f"no span of {request_id}: {self.spans()}")
        return call, [span for span in self.spans() if span.parent_span_id == call.span_id]

    def _call(self, request_id):
        return next((span for span in self.spans()
                     if attributes(span).get("tlm.request_id") == request_id), None)


def attributes(span):
    """By key: str, int, float, bool, or a list of these."""
    def plain(value):
        if value.WhichOneof("value") == "array_value":
            return [plain(element) for element in value.array_value.values]
        return getattr(value, value.WhichOneof("value"))
    return {entry.key: plain(entry.value) for entry in span.attributes}


def generation(request_id, **stopping):
    return generate_pb2.GenerateRequest(
        request_id=request_id, prompt=f"In the evening {SECRET}",
        sampling=common_pb2.SamplingParams(temperature=0.5, top_p=0.95, seed=7),
        stopping=generate_pb2.StoppingCriteria(ignore_eos=True, **stopping))


class TracedReplica(Replica):
    """A replica that sends its traces to this collector, with a stub of it."""

    def __init__(self, collector, *flags):
        super().__init__(f"--otlp_endpoint=127.0.0.1:{collector.port}", *flags)

    def start(self):
        super().start()
        self.channel = grpc.insecure_channel(self.target)
        self.model = language_model_pb2_grpc.LanguageModelStub(self.channel)

    def close(self):
        self.channel.close()
        super().close()

    def generate(self, request_id, metadata=(), **stopping):
        """Events and initial metadata of a call to its end."""
        call = self.model.Generate(generation(request_id, **stopping or {"max_new_tokens": 5}),
                                   metadata=metadata, timeout=PATIENCE_SECONDS)
        return list(call), dict(call.initial_metadata())


def sampled(flags="01"):
    return [("traceparent", f"00-{TRACE}-{PARENT}-{flags}"), ("tracestate", "vendor=value")]


class TracesTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.collector = cls.enterClassContext(Collector())
        cls.replica = cls.enterClassContext(TracedReplica(cls.collector))

    def test_a_call_goes_on_with_the_callers_trace(self):
        _, initial = self.replica.generate("traced", sampled(), max_new_tokens=9)
        span, children = self.collector.trace_of("traced")
        self.assertEqual(span.trace_id.hex(), TRACE)
        self.assertEqual(span.parent_span_id.hex(), PARENT)
        self.assertEqual(span.trace_state, "vendor=value")
        self.assertEqual(initial["traceparent"], f"00-{TRACE}-{span.span_id.hex()}-01")
        self.assertEqual(span.kind, trace_pb2.Span.SPAN_KIND_SERVER)
        self.assertEqual([child.name for child in sorted(
            children, key=lambda child: (child.name == "write", child.start_time_unix_nano))],
            ["queue", "prefill", "decode", "write"])
        self.assertEqual({child.trace_id.hex() for child in children}, {TRACE})
        for child in children:
            self.assertLessEqual(span.start_time_unix_nano, child.start_time_unix_nano)
            self.assertLessEqual(child.start_time_unix_nano, child.end_time_unix_nano)
        self.assertLess(abs(span.end_time_unix_nano / 1e9 - time.time()), PATIENCE_SECONDS)

    def test_attributes_are_those_of_the_conventions(self):
        events, _ = self.replica.generate("attributes", max_new_tokens=9)
        span, _ = self.collector.trace_of("attributes")
        usage = events[-1].summary.usage
        found = attributes(span)
        self.assertGreater(found.pop("gen_ai.server.time_to_first_token"), 0)
        self.assertEqual(found.pop("gen_ai.usage.cache_read.input_tokens"),
                         usage.cached_prompt_tokens)
        self.assertEqual(found, {
            "rpc.system.name": "grpc", "rpc.method": "tlm.v1.LanguageModel/Generate",
            "rpc.status_code": "OK", "network.peer.address": "127.0.0.1",
            "gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "tlm",
            "gen_ai.request.model": "demo", "gen_ai.response.model": "demo",
            "gen_ai.request.stream": True, "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.95, "gen_ai.request.max_tokens": 9,
            "gen_ai.request.seed": 7, "gen_ai.response.id": "attributes",
            "tlm.request_id": "attributes",
            "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": 9})
        self.assertEqual(span.name, "text_completion demo")
        origin = attributes(self.collector.requests[0].resource_spans[0].resource)
        self.assertEqual(origin["service.name"], "tlm")

    def test_no_text_of_prompts_and_outputs(self):
        events, _ = self.replica.generate("quiet", max_new_tokens=40, stop_strings=[SECRET])
        with self.assertRaises(grpc.RpcError):
            list(self.replica.model.Generate(generate_pb2.GenerateRequest(
                request_id="another", model=SECRET, prompt=SECRET)))
        self.collector.trace_of("quiet")
        self.collector.trace_of("another")
        sent = b"".join(request.SerializeToString() for request in self.collector.requests)
        self.assertNotIn(SECRET.encode(), sent)
        self.assertNotIn(b"evening", sent)
        words = re.findall(r"[A-Za-z]{5,}", "".join(e.tokens.text for e in events))
        self.assertTrue(words)
        for word in words:
            self.assertNotIn(word.encode(), sent)


class CollectorsTest(unittest.TestCase):
    def test_tls(self):
        with tempfile.TemporaryDirectory(prefix="tlm-test-") as folder:
            authority = Authority(pathlib.Path(folder) / "authority")
            issued = authority.issue()
            with Collector(identity=(issued.key_pem, issued.pem)) as collector, \
                    TracedReplica(collector, f"--otlp_ca={authority.certificate}") as replica:
                replica.generate("over TLS")
                collector.trace_of("over TLS")

    def test_a_share_of_the_traces_that_begin_here(self):
        with Collector() as collector, \
                TracedReplica(collector, "--otlp_sample_ratio=0",
                              "--otlp_service_name=mine") as replica:
            replica.generate("not sampled")
            replica.generate("sampled", sampled())
            collector.trace_of("sampled")
            self.assertNotIn("not sampled", [attributes(span).get("tlm.request_id")
                                             for span in collector.spans()])
            origin = attributes(collector.requests[0].resource_spans[0].resource)
            self.assertEqual(origin["service.name"], "mine")

    def test_the_last_spans_are_sent_at_the_end(self):
        with Collector() as collector, TracedReplica(collector) as replica:
            replica.generate("the last")
            replica.terminate()
            self.assertEqual(replica.wait(), 0)
            collector.trace_of("the last")


if __name__ == "__main__":
    unittest.main(verbosity=2)
