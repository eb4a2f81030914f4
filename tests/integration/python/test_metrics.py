"""What the metrics port counts, and that every request is counted exactly once."""

import collections
import concurrent.futures
import threading
import unittest

import grpc

from observed_server import ObservedServer
from support import ServerTest, bypassing, request

from tlm.v1 import (generate_pb2, language_model_pb2_grpc, model_info_pb2, score_pb2,
                    tokenize_pb2)

LONG = 900  # tokens that take long enough to be met while they are generated
ENGINE = {"engine": "0", "model_name": "demo"}


def score():
    return score_pb2.ScoreRequest(
        prompt="Once upon", continuations=[score_pb2.Continuation(text=" a time")])


class SamplesTest(ServerTest):
    SERVER = ObservedServer

    def test_names_the_model_the_build_and_the_cache(self):
        samples = self.server.samples()
        self.assertEqual(samples.sum("tlm_model_info", model_name="demo", backend="cpu"), 1)
        self.assertEqual(samples.sum("tlm_build_info"), 1)
        self.assertEqual(samples.sum("vllm:cache_config_info", block_size="64", **ENGINE), 1)
        self.assertEqual(samples.sum("tlm_state", state="serving"), 1)
        self.assertEqual(samples.sum("tlm_state"), 1)

    def test_measures_a_request_as_its_summary_does(self):
        before = self.server.settled()
        asked = bypassing(request("Once upon a time there was", max_new_tokens=20, seed=1))
        events = list(self.server.model.Generate(asked))
        usage = next(e.summary.usage for e in events if e.HasField("summary"))
        after = self.server.settled()

        def grown(name, **labels):
            return after.sum(name, **labels) - before.sum(name, **labels)

        self.assertEqual(grown("vllm:prompt_tokens_total", **ENGINE), usage.prompt_tokens)
        self.assertEqual(grown("vllm:generation_tokens_total", **ENGINE), 20)
        self.assertEqual(grown("vllm:request_success_total", finished_reason="length"), 1)
        self.assertEqual(grown("tlm_outputs_finished_total", reason="length"), 1)
        for histogram in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                          "request_queue_time_seconds", "request_prefill_time_seconds",
                          "request_decode_time_seconds", "request_inference_time_seconds",
                          "request_prompt_tokens", "request_generation_tokens"):
            self.assertEqual(grown(f"vllm:{histogram}_count", **ENGINE), 1, histogram)
        # The histograms in finer buckets have the same observations.
        for histogram in ("time_to_first_token_seconds", "inter_token_latency_seconds",
                          "e2e_request_latency_seconds", "request_queue_time_seconds"):
            for part in ("count", "sum"):
                self.assertAlmostEqual(grown(f"tlm_{histogram}_{part}", model_name="demo"),
                                       grown(f"vllm:{histogram}_{part}"), msg=histogram)
        self.assertEqual(grown("vllm:inter_token_latency_seconds_count"), 19)
        self.assertEqual(grown("vllm:time_per_output_token_seconds_count"), 19)
        self.assertEqual(grown("vllm:request_generation_tokens_sum"), 20)
        total = grown("vllm:e2e_request_latency_seconds_sum")
        self.assertLessEqual(grown("vllm:time_to_first_token_seconds_sum"), total)
        self.assertLessEqual(grown("vllm:inter_token_latency_seconds_sum"), total)
        self.assertLessEqual(grown("vllm:request_inference_time_seconds_sum"), total)
        self.assertEqual(grown("tlm_tenant_generation_tokens_total", tenant="-"), 20)
        # Two steps are under way at a time on some backends: not before the twentieth.
        self.assertGreaterEqual(grown("tlm_engine_steps_total"), 20)
        self.assertEqual(grown("tlm_engine_steps_total"),
                         grown("vllm:iteration_tokens_total_count"))


class ReconciliationTest(unittest.TestCase):
    """Mixed traffic, everything that can happen to a request, and then the books."""

    CALLERS = 6
    ROUNDS = 8

    def setUp(self):
        self.outcomes = collections.Counter()
        self.lock = threading.Lock()

    def note(self, rpc, call):
        """Makes the call to its end; the status that the client saw."""
        try:
            result = call()
            if hasattr(result, "__next__"):
                for _ in result:
                    pass
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        with self.lock:
            self.outcomes[rpc, code] += 1

    def mischief(self, server, number):
        """One caller's rounds, with a connection of its own now and then."""
        model = server.model
        for i in range(self.ROUNDS):
            name = f"{number}-{i}"
            self.note("Generate", lambda: model.Generate(request(max_new_tokens=5)))
            self.note("Score", lambda: model.Score(score()))
            self.note("ModelInfo", lambda: model.ModelInfo(model_info_pb2.ModelInfoRequest()))
            self.note("Tokenize",
                      lambda: model.Tokenize(tokenize_pb2.TokenizeRequest(text="a b c")))
            self.note("Generate", lambda: model.Generate(request(temperature=-1)))
            self.note("Generate", lambda: model.Generate(generate_pb2.GenerateRequest()))
            self.note("Generate", lambda: model.Generate(request(max_new_tokens=LONG),
                                                         timeout=0.05))
            self.interrupt(model, "", lambda call: call.cancel())
            self.interrupt(model, name, lambda _: server.abort(name))
            channel = server.connect()
            self.interrupt(language_model_pb2_grpc.LanguageModelStub(channel), "",
                           lambda _: channel.close())

    def interrupt(self, model, request_id, how):
        """A call that begins and is then ended from outside, unless it is refused."""
        asked = request(max_new_tokens=LONG)
        asked.request_id = request_id
        call = model.Generate(asked)

        def begin_and_end():
            next(call)
            how(call)
            return call

        self.note("Generate", begin_and_end)

    def test_every_request_is_counted_once(self):
        with ObservedServer("--max_queued_requests=4", "--max_running_requests=3") as server:
            with concurrent.futures.ThreadPoolExecutor(self.CALLERS) as pool:
                for done in [pool.submit(self.mischief, server, n) for n in range(self.CALLERS)]:
                    done.result()
            samples = server.settled()
            self.check(samples)
            for code in ("OK", "CANCELLED", "ABORTED", "DEADLINE_EXCEEDED"):
                self.assertGreater(samples.sum("tlm_requests_ended_total", code=code), 0, code)
            self.assertGreater(
                samples.sum("tlm_requests_refused_total", code="INVALID_ARGUMENT"), 0)

    def check(self, samples):
        """The server's counts add up, and to what the clients saw."""
        admitted = samples.sum("tlm_requests_admitted_total")
        self.assertEqual(admitted, samples.sum("tlm_requests_ended_total"))
        for _, labels, value in samples.of("tlm_requests_admitted_total"):
            self.assertEqual(value, samples.sum("tlm_requests_ended_total", **labels), labels)
        for rpc in ("Generate", "Score", "ModelInfo", "Tokenize"):
            counted = (samples.sum("tlm_requests_ended_total", rpc=rpc) +
                       samples.sum("tlm_requests_refused_total", rpc=rpc))
            seen = sum(count for (name, _), count in self.outcomes.items() if name == rpc)
            # A deadline may pass before the call has left the client.
            expired = self.outcomes[rpc, "DEADLINE_EXCEEDED"]
            self.assertLessEqual(counted, seen, rpc)
            self.assertGreaterEqual(counted, seen - expired, rpc)
        # Whether an answer or a cancellation came first, both sides know for themselves.
        for rpc in ("Score", "ModelInfo", "Tokenize"):
            self.assertEqual(samples.sum("tlm_requests_ended_total", rpc=rpc, code="OK"),
                             self.outcomes[rpc, "OK"], rpc)
        engine_calls = sum(samples.sum("tlm_requests_ended_total", rpc=rpc)
                           for rpc in ("Generate", "Score", "Forward"))
        self.assertEqual(samples.sum("vllm:request_success_total"), engine_calls)

    def test_a_drain_ends_every_request_in_the_books(self):
        with ObservedServer("--drain_timeout=200ms") as server:
            calls = []
            for _ in range(4):
                calls.append(server.model.Generate(request(max_new_tokens=LONG)))
                next(calls[-1])
            before = server.samples()
            self.assertEqual(before.sum("tlm_requests_in_flight", rpc="Generate"), 4)
            server.terminate()
            for call in calls:
                self.note("Generate", lambda call=call: call)
            readings = []
            try:
                while True:
                    readings.append(server.samples())
            except OSError:
                pass  # it has ended
            self.assertEqual(server.wait(), 0)
            for reading in readings:
                self.assertEqual(reading.sum("tlm_requests_admitted_total"),
                                 reading.sum("tlm_requests_ended_total") +
                                 reading.sum("tlm_requests_in_flight"))
