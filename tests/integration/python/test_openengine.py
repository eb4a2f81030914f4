"""The façade `openengine`, as the trtllm sidecar of NVIDIA Dynamo calls it: the tokens, statuses and
tenants of tlm.v1."""

import itertools
import pathlib
import tempfile
import unittest

import grpc

import support
from secure_server import SecureServer, bearer, code_of, tlm_keys
from support import request
from tlm_server import DEMO_MODEL, TlmServer  # first: it makes the stubs importable

from grpc.health.v1 import health_pb2
from google.rpc import error_details_pb2
from openengine.v1 import (generation_pb2 as openengine, kv_pb2, lifecycle_pb2, model_pb2,
                           openengine_pb2_grpc, server_pb2)
from tlm.v1 import model_info_pb2

NUMBERS = itertools.count()


def generate_request(ids, **sampling):
    asked = openengine.GenerateRequest(
        request_id=f"openengine-{next(NUMBERS)}", model=str(DEMO_MODEL),
        token_ids=openengine.TokenIds(ids=ids), sampling=sampling,
        stopping={"max_tokens": 24, "ignore_eos": True})
    return asked


class Output:
    """One output of a stream: its tokens, its text and its end."""

    def __init__(self, messages, index=0):
        deltas = [m.token for m in messages if m.HasField("token") and m.token.output_index == index]
        self.tokens = [token for delta in deltas for token in delta.tokens]
        self.ids = [token.token_id for token in self.tokens]
        self.text = "".join(delta.text for delta in deltas)
        (self.finished,) = [m.finished for m in messages
                            if m.HasField("finished") and m.finished.output_index == index]


class OpenEngineTest(support.ServerTest):
    FLAGS = ("--facades=openengine",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.inference = openengine_pb2_grpc.InferenceStub(cls.server.channel)
        cls.control = openengine_pb2_grpc.ControlStub(cls.server.channel)
        cls.ids = cls.tokenize(cls, support.PROMPT)

    def stream(self, asked, metadata=None):
        messages = list(self.inference.Generate(asked, timeout=60, metadata=metadata))
        for message in messages:
            self.assertEqual(message.request_id, asked.request_id)
            event = message.WhichOneof("event")
            self.assertIn(event, ("prompt", "token", "finished"))
            if event != "prompt":
                self.assertTrue(getattr(message, event).HasField("output_index"))
        self.assertEqual([m.HasField("usage") for m in messages],
                         [False] * (len(messages) - 1) + [True])
        self.assertTrue(messages[-1].HasField("finished"))
        return messages

    def ask(self, asked):
        return Output(self.stream(asked))

    def test_control_tells_what_the_sidecar_asks(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        for name in ("", info.identity.model_id, str(DEMO_MODEL), "someone/demo"):
            model = self.control.GetModelInfo(model_pb2.GetModelInfoRequest(model=name))
            self.assertEqual(pathlib.Path(model.model_id), DEMO_MODEL.absolute())
            self.assertEqual(model.served_model_name, info.identity.model_id)
            self.assertEqual(model.max_context_length, info.limits.max_context_tokens)
        self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.control.GetModelInfo(
            model_pb2.GetModelInfoRequest(model="another")))
        server = self.control.GetServerInfo(server_pb2.GetServerInfoRequest())
        self.assertEqual(server.engine_role, server_pb2.ENGINE_ROLE_AGGREGATED)
        self.assertEqual(list(server.supported_models), [info.identity.model_id])
        self.assertEqual((server.schema_revision, server.minimum_client_revision), (1, 1))
        self.assertEqual(server.capacity.total_kv_blocks, info.memory.kv_blocks_total)
        load = self.control.GetLoad(server_pb2.GetLoadRequest(include_per_rank=True))
        self.assertEqual(load.instance_id, server.instance_id)
        self.assertEqual((load.running_requests, load.queued_requests), (0, 0))
        self.assertEqual(load.total_kv_blocks, info.memory.kv_blocks_total)
        self.assertEqual([rank.data_parallel_rank for rank in load.ranks], [0])
        health = self.control.Health(lifecycle_pb2.HealthRequest())
        self.assertEqual(health.state, lifecycle_pb2.HEALTH_STATE_READY)
        self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: self.control.Health(
            lifecycle_pb2.HealthRequest(include_inference_probe=True)))
        for service in ("openengine.v1.Inference", "openengine.v1.Control"):
            status = self.server.health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(status.status, health_pb2.HealthCheckResponse.SERVING)

    def test_tokens_are_those_of_direct_calls(self):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7},
                         {"temperature": 1, "top_k": 9, "top_p": 0.8, "min_p": 0.02, "seed": 3},
                         {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                          "frequency_penalty": -0.25, "seed": 11}):
            expected = self.generate(request(**sampling))
            messages = self.stream(generate_request(self.ids, **sampling))
            output = Output(messages)
            self.assertEqual(output.ids, expected.ids, sampling)
            self.assertEqual(output.text, expected.text)
            self.assertEqual("".join(token.token for token in output.tokens), expected.text)
            self.assertEqual(output.finished.reason, openengine.FINISH_REASON_LENGTH)
            usage = messages[-1].usage
            self.assertEqual((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
                             (len(self.ids), 24, len(self.ids) + 24))
        # Without detokenization, as the sidecar asks.
        asked = generate_request(self.ids, temperature=0)
        asked.extra["detokenize"] = False
        expected = self.generate(request(temperature=0))
        output = self.ask(asked)
        self.assertEqual((output.ids, output.text), (expected.ids, ""))
        asked.prompt = support.PROMPT
        self.assertEqual(self.ask(asked).ids, expected.ids)

    def test_several_outputs(self):
        events = list(self.model.Generate(request(temperature=1, seed=5, num_sequences=3),
                                          timeout=60))
        messages = self.stream(generate_request(self.ids, temperature=1, seed=5, num_sequences=3))
        for index in range(3):
            self.assertEqual(Output(messages, index).ids, support.output_of(events, index).ids)
        self.assertEqual(messages[-1].usage.completion_tokens, 3 * 24)

    def test_log_probabilities(self):
        direct = request(temperature=0)
        direct.output.top_logprobs = 3
        direct.output.prompt_logprobs = True
        expected = self.generate(direct)
        asked = generate_request(self.ids, temperature=0)
        asked.response.return_output_logprobs = True
        asked.response.output_candidates.top_n = 2
        asked.response.return_prompt_logprobs = True
        asked.response.prompt_candidates.top_n = 3
        messages = self.stream(asked)
        prompt = list(messages[0].prompt.tokens)
        self.assertFalse(prompt[0].HasField("logprob") or prompt[0].HasField("rank"))
        for got, tokens, top in ((prompt, expected.prompt, 3),
                                 (Output(messages).tokens, expected.tokens, 2)):
            self.assertEqual([t.token_id for t in got], [t.id for t in tokens])
            self.assertEqual([(t.logprob, t.rank) for t in got], [(t.logprob, t.rank) for t in tokens])
            self.assertEqual([[(c.token_id, c.logprob, c.rank) for c in t.candidates] for t in got],
                             [[(c.id, c.logprob, c.rank) for c in t.top[:top]] for t in tokens])
        asked.response.prompt_logprob_start = 2
        self.assertEqual(list(self.stream(asked)[0].prompt.tokens), prompt[2:])

    def test_stop_rules(self):
        whole = self.generate(request(temperature=0))
        second, third = (t.bytes.decode() for t in whole.tokens[1:3])
        stop = second[-1] + third[0]
        for include in (False, True):
            direct = request(temperature=0)
            direct.stopping.include_stop_in_output = include
            direct.stopping.stop_strings.append(stop)
            asked = generate_request(self.ids, temperature=0)
            asked.stopping.include_stop_in_output = include
            asked.stopping.conditions.add(stop_text=stop)
            expected = self.generate(direct)
            messages = self.stream(asked)
            output = Output(messages)
            self.assertEqual(output.text, expected.text)
            self.assertEqual(output.finished.reason, openengine.FINISH_REASON_STOP)
            self.assertEqual(output.finished.stop_match.stop_text, stop)
            # Who decodes the ids sees where the stop string begins.
            self.assertIn(stop, "".join(token.token for token in output.tokens))
            self.assertEqual(messages[-1].usage.completion_tokens,
                             expected.summary.usage.completion_tokens)
        asked = generate_request(self.ids, temperature=0)
        asked.stopping.conditions.add(stop_token_id=whole.ids[5])
        messages = self.stream(asked)
        self.assertEqual(Output(messages).finished.stop_match.stop_token_id, whole.ids[5])
        first = whole.ids.index(whole.ids[5])
        self.assertEqual(Output(messages).ids, whole.ids[:first])
        self.assertEqual(messages[-1].usage.completion_tokens, first + 1)

    def test_continues_where_another_replica_was_cut_off(self):
        sampling = {"temperature": 0.9, "seed": 21, "top_p": 0.9}
        whole = self.ask(generate_request(self.ids, **sampling))
        for cut in (1, 7, 23):
            asked = generate_request(self.ids + whole.ids[:cut], **sampling)
            asked.stopping.max_tokens = 24 - cut
            self.assertEqual(whole.ids[:cut] + self.ask(asked).ids, whole.ids, cut)

    def test_refuses_by_name(self):
        # Not UNIMPLEMENTED, as on tlm.v1: Dynamo would take the worker for broken.
        def case(field, change, metadata=None):
            asked = generate_request(self.ids)
            change(asked)
            error = self.assert_fails(
                grpc.StatusCode.INVALID_ARGUMENT,
                lambda: self.inference.Generate(asked, timeout=60, metadata=metadata))
            self.assertEqual(support.violated_fields(error), [field])

        def nothing(asked):
            del asked
        case("sampling.top_p", lambda asked: setattr(asked.sampling, "top_p", 2))
        case("sampling.top_k", lambda asked: setattr(asked.sampling, "top_k", -2))
        case("stopping.conditions[0]", lambda asked: asked.stopping.conditions.add())
        case("regex", lambda asked: setattr(asked.guided, "regex", "(a"))
        case("kv.session", lambda asked: asked.kv.session.SetInParent())
        case("media", lambda asked: asked.media.add())
        case("lora_name", lambda asked: setattr(asked, "lora_name", "mine"))
        case("extra", lambda asked: asked.extra.update({"speed": 1}))
        case("openengine-priority", nothing, [("openengine-priority", "high")])
        case("openengine-target-dp-rank", nothing, [("openengine-target-dp-rank", "1")])
        asked = generate_request(self.ids)
        asked.model = "another"
        self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.inference.Generate(asked))
        call = self.server.channel.unary_unary("/openengine.v1.Control/LoadLora")
        error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b""))
        self.assertIn("LoadLora is not served", error.details())

    def test_abort_ends_a_call(self):
        for target in ({"request_id": None}, {"all_requests": {}}):
            asked = generate_request(self.ids)
            asked.stopping.max_tokens = 900
            if "request_id" in target:
                target["request_id"] = asked.request_id
            call = self.inference.Generate(asked, timeout=60)
            next(call)
            abort = lifecycle_pb2.AbortRequest(**target)
            self.assertEqual(self.control.Abort(abort).status, lifecycle_pb2.ABORT_STATUS_ABORTED)
            error = self.assert_fails(grpc.StatusCode.ABORTED, lambda: call)
            self.assertEqual(support.details_of(error, error_details_pb2.ErrorInfo).reason,
                             "ABORTED_BY_CLIENT")
            self.assertEqual(self.control.Abort(abort).status,
                             lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED)
        self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                          lambda: self.control.Abort(lifecycle_pb2.AbortRequest()))


class KvEventsTest(unittest.TestCase):
    def test_tells_where_they_are(self):
        with TlmServer("--facades=openengine", "--kv_events_endpoint=tcp://127.0.0.1:*") as server:
            control = openengine_pb2_grpc.ControlStub(server.channel)
            (source,) = control.GetKvEventSources(kv_pb2.GetKvEventSourcesRequest()).sources
            self.assertEqual((source.transport, source.endpoint_addr.host,
                              source.endpoint_addr.protocol), ("zmq", "127.0.0.1", "tcp"))
            self.assertGreater(source.endpoint_addr.port, 0)
            for ranks, count in (([0, 1], 1), ([1], 0)):
                asked = kv_pb2.GetKvEventSourcesRequest(data_parallel_ranks=ranks)
                self.assertEqual(len(control.GetKvEventSources(asked).sources), count)


class TenantTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        cls.addClassCleanup(directory.cleanup)
        file = pathlib.Path(directory.name) / "keys.json"
        cls.one = tlm_keys("add", f"--file={file}", "--tenant=one")
        cls.other = tlm_keys("add", f"--file={file}", "--tenant=other")
        cls.server = SecureServer(f"--api_keys={file}", "--facades=openengine").__enter__()
        cls.addClassCleanup(cls.server.close)
        cls.inference = openengine_pb2_grpc.InferenceStub(cls.server.channel)
        cls.control = openengine_pb2_grpc.ControlStub(cls.server.channel)

    def test_calls_need_credentials(self):
        for call in (lambda: self.inference.Generate(generate_request([7])),
                     lambda: self.control.GetModelInfo(model_pb2.GetModelInfoRequest()),
                     lambda: self.control.GetServerInfo(server_pb2.GetServerInfoRequest()),
                     lambda: self.control.GetLoad(server_pb2.GetLoadRequest()),
                     lambda: self.control.GetKvEventSources(kv_pb2.GetKvEventSourcesRequest()),
                     lambda: self.control.Abort(lifecycle_pb2.AbortRequest())):
            self.assertEqual(code_of(call), grpc.StatusCode.UNAUTHENTICATED)
        health = self.control.Health(lifecycle_pb2.HealthRequest())
        self.assertEqual(health.state, lifecycle_pb2.HEALTH_STATE_READY)

    def test_abort_is_of_the_tenant(self):
        asked = generate_request([7])
        asked.stopping.max_tokens = 900
        call = self.inference.Generate(asked, metadata=bearer(self.one), timeout=60)
        next(call)
        for target in ({"request_id": asked.request_id}, {"all_requests": {}}):
            answer = self.control.Abort(lifecycle_pb2.AbortRequest(**target),
                                        metadata=bearer(self.other))
            self.assertEqual(answer.status, lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED)
        next(call)
        self.control.Abort(lifecycle_pb2.AbortRequest(all_requests={}), metadata=bearer(self.one))
        self.assertEqual(code_of(lambda: call), grpc.StatusCode.ABORTED)

    def test_priorities_are_those_of_the_tenant(self):
        self.assertEqual(code_of(lambda: self.inference.Generate(
            generate_request([7]), metadata=[*bearer(self.one), ("openengine-priority", "1")])),
            grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(code_of(lambda: self.inference.Generate(
            generate_request([7]), metadata=[*bearer(self.one), ("openengine-priority", "-1")])),
            grpc.StatusCode.OK)


if __name__ == "__main__":
    unittest.main()
