"""The façade `dynamo`, as the vllm sidecar of NVIDIA Dynamo calls it: the tokens, statuses and
tenants of tlm.v1."""

import itertools
import pathlib
import tempfile
import unittest

import grpc

import support
from secure_server import SecureServer, bearer, code_of, tlm_keys
from support import request, request_of_ids
from tlm_server import DEMO_MODEL, TlmServer  # first: it makes the stubs importable

from grpc.health.v1 import health_pb2
from google.rpc import error_details_pb2
from tlm.v1 import model_info_pb2
from vllm import control_pb2, control_pb2_grpc, inference_pb2 as vllm, inference_pb2_grpc

NUMBERS = itertools.count()


def generate_request(ids, **options):
    """What the sidecar makes of a request: every group of options is there, zero means unset."""
    asked = vllm.GenerateRequest(
        request_id=f"dynamo-{next(NUMBERS)}", token_ids=vllm.TokenIds(ids=ids),
        temperature=options.pop("temperature", 1), sampling={"num_sequences": 1}, decoding={},
        stopping={"max_new_tokens": 24, "ignore_eos": True},
        response={"output_text": True, "output_token_ids": True}, kv={})
    for name, value in options.items():
        group = next(group for group in (asked.sampling, asked.decoding, asked.stopping,
                                         asked.response, asked.kv)
                     if name in group.DESCRIPTOR.fields_by_name)
        if isinstance(value, list):
            getattr(group, name).extend(value)
        elif isinstance(value, dict):
            getattr(group, name).update(value)
        else:
            setattr(group, name, value)
    return asked


class Sequence:
    """One sequence of a stream: its tokens, its text and its end."""

    def __init__(self, messages, index=0):
        self.outputs = [m.outputs for m in messages
                        if m.HasField("outputs") and m.outputs.index == index]
        self.ids = [token for output in self.outputs for token in output.token_ids]
        self.text = "".join(output.text for output in self.outputs)
        self.logprobs = [value for output in self.outputs for value in output.logprobs]
        self.candidates = [c for output in self.outputs for c in output.candidate_tokens]
        self.finish = self.outputs[-1].finish_info

    def check(self, test):
        """What the sidecar demands of every message."""
        for output in self.outputs:
            test.assertEqual(output.num_tokens, len(output.token_ids))
            if output.logprobs:
                test.assertEqual([len(output.logprobs), len(output.ranks),
                                  len(output.candidate_tokens)], [output.num_tokens] * 3)
        test.assertFalse(any(output.HasField("finish_info") for output in self.outputs[:-1]))
        test.assertEqual(self.finish.num_output_tokens, len(self.ids))


class DynamoTest(support.ServerTest):
    FLAGS = ("--facades=dynamo",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.inference = inference_pb2_grpc.InferenceStub(cls.server.channel)
        cls.control = control_pb2_grpc.ControlStub(cls.server.channel)
        cls.ids = cls.tokenize(cls, support.PROMPT)

    def stream(self, asked):
        messages = list(self.inference.GenerateStream(asked, timeout=60))
        self.assertTrue(messages[0].HasField("prompt_info"))
        self.assertFalse(any(m.HasField("prompt_info") for m in messages[1:]))
        return messages

    def ask(self, ids=None, **options):
        sequence = Sequence(self.stream(generate_request(ids or self.ids, **options)))
        sequence.check(self)
        return sequence

    def test_control_tells_what_the_sidecar_asks(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        model = self.control.GetModelInfo(control_pb2.GetModelInfoRequest())
        self.assertEqual(pathlib.Path(model.model_id), DEMO_MODEL.absolute())
        self.assertEqual(model.served_model_name, info.identity.model_id)
        self.assertTrue(model.supports_text_input and model.supports_token_ids_input)
        self.assertFalse(model.supports_lora or model.supports_multimodal)
        server = self.control.GetServerInfo(control_pb2.GetServerInfoRequest())
        self.assertEqual(server.api_version, "vllm")
        self.assertEqual(server.max_model_len, info.limits.max_context_tokens)
        self.assertEqual(server.kv_block_size, info.memory.kv_block_tokens)
        self.assertEqual(server.total_kv_blocks, info.memory.kv_blocks_total)
        self.assertEqual(server.max_running_requests, info.limits.max_running_sequences)
        self.assertEqual(server.max_batched_tokens, info.limits.max_step_tokens)
        self.assertEqual((server.parallelism.data_parallel_size,
                          server.parallelism.data_parallel_rank), (1, 0))
        self.assertFalse(server.HasField("rl_capabilities"))
        for service in ("vllm.Inference", "vllm.Control"):
            status = self.server.health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(status.status, health_pb2.HealthCheckResponse.SERVING)

    def test_tokens_are_those_of_direct_calls(self):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7},
                         {"temperature": 1, "top_k": 9, "top_p": 0.8, "min_p": 0.02, "seed": -3},
                         {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                          "frequency_penalty": -0.25, "seed": 11, "logit_bias": {3: 4.5},
                          "allowed_token_ids": list(range(1, 900))}):
            direct = dict(sampling)
            if "seed" in direct:
                direct["seed"] %= 1 << 64
            expected = self.generate(request(**direct))
            asked = generate_request(self.ids, **sampling)
            messages = self.stream(asked)
            self.assertEqual(messages[0].prompt_info.num_prompt_tokens, len(self.ids))
            sequence = Sequence(messages)
            sequence.check(self)
            self.assertEqual(sequence.ids, expected.ids, sampling)
            self.assertEqual(sequence.text, expected.text)
            self.assertEqual(sequence.finish.finish_reason, vllm.FinishInfo.LENGTH)
            whole = self.inference.Generate(asked, timeout=60)
            self.assertEqual(list(whole.outputs.token_ids), expected.ids)
            self.assertEqual(whole.outputs.text, expected.text)
            self.assertEqual(whole.prompt_info.num_prompt_tokens, len(self.ids))
            self.assertEqual(whole.outputs.finish_info, sequence.finish)

    def test_texts_and_truncated_prompts(self):
        expected = self.generate(request(temperature=0))
        asked = generate_request([], temperature=0)
        asked.text = support.PROMPT
        self.assertEqual(Sequence(self.stream(asked)).ids, expected.ids)
        asked = generate_request(self.ids, temperature=0, prompt_token_ids=True)
        asked.truncate_prompt_tokens = 3
        messages = self.stream(asked)
        self.assertEqual(list(messages[0].prompt_info.token_ids), self.ids[-3:])
        expected = self.generate(request_of_ids(self.ids[-3:], temperature=0))
        self.assertEqual(Sequence(messages).ids, expected.ids)

    def test_several_sequences(self):
        events = list(self.model.Generate(request(temperature=1, seed=5, num_sequences=3),
                                          timeout=60))
        messages = self.stream(generate_request(self.ids, seed=5, num_sequences=3))
        for index in range(3):
            sequence = Sequence(messages, index)
            sequence.check(self)
            self.assertEqual(sequence.ids, support.output_of(events, index).ids)
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.inference.Generate(
            generate_request(self.ids, num_sequences=2)))
        self.assertEqual(support.violated_fields(error), ["sampling.num_sequences"])

    def test_log_probabilities(self):
        direct = request(temperature=0)
        direct.output.top_logprobs = 3
        direct.output.prompt_logprobs = True
        expected = self.generate(direct)
        asked = generate_request(self.ids, temperature=0, output_logprobs=True,
                                 prompt_logprobs=True, prompt_token_ids=True)
        asked.response.output_candidates.top_n = 2
        asked.response.prompt_candidates.top_n = 3
        messages = self.stream(asked)
        prompt = messages[0].prompt_info
        self.assertEqual(list(prompt.token_ids), self.ids)
        self.assertEqual((prompt.logprobs[0], prompt.ranks[0]), (0, 0))
        self.assertEqual(list(prompt.logprobs[1:]), [t.logprob for t in expected.prompt[1:]])
        self.assertEqual(list(prompt.ranks[1:]), [t.rank for t in expected.prompt[1:]])
        for got, tokens, top in ((prompt.candidate_tokens, expected.prompt, 3),
                                 (Sequence(messages).candidates, expected.tokens, 2)):
            self.assertEqual([[c.id for c in entry.tokens] for entry in got],
                             [[t.id for t in token.top[:top] if t.id != token.id]
                              for token in tokens])
        sequence = Sequence(messages)
        sequence.check(self)
        self.assertEqual(sequence.logprobs, [t.logprob for t in expected.tokens])

    def test_stop_rules(self):
        whole = self.generate(request(temperature=0))
        stop_id = whole.ids[5]
        direct = request(temperature=0)
        direct.stopping.stop_token_ids.append(stop_id)
        expected = self.generate(direct)
        sequence = self.ask(temperature=0, stop_token_ids=[stop_id])
        # The token that ended the sequence counts, and is sent without a text.
        self.assertEqual(sequence.ids, expected.ids + [stop_id])
        self.assertEqual(sequence.text, expected.text)
        self.assertEqual(sequence.finish.finish_reason, vllm.FinishInfo.STOP)
        self.assertEqual(sequence.finish.stop_token_id, stop_id)
        self.assertEqual(sequence.finish.num_output_tokens,
                         expected.summary.usage.completion_tokens)
        # From within a token into the next one.
        second, third = (t.bytes.decode() for t in whole.tokens[1:3])
        stop = second[-1] + third[0]
        direct = request(temperature=0)
        direct.stopping.stop_strings.append(stop)
        for include in (False, True):
            direct.stopping.include_stop_in_output = include
            expected = self.generate(direct)
            sequence = self.ask(temperature=0, stop_strings=[stop], include_stop_strings=include)
            self.assertEqual(sequence.text, expected.text)
            self.assertEqual(sequence.finish.stop_string, stop)
            self.assertEqual(sequence.finish.num_output_tokens,
                             expected.summary.usage.completion_tokens)

    def test_an_end_of_sequence_token(self):
        direct = request(temperature=0, logit_bias={0: 100})
        direct.stopping.ignore_eos = False
        direct.stopping.min_new_tokens = 4
        expected = self.generate(direct)
        sequence = self.ask(temperature=0, ignore_eos=False, min_new_tokens=4,
                            logit_bias={0: 100})
        self.assertEqual(sequence.ids, expected.ids + [0])
        self.assertEqual(sequence.text, expected.text)
        self.assertEqual(sequence.finish.eos_token_id, 0)
        self.assertEqual(sequence.finish.num_output_tokens,
                         expected.summary.usage.completion_tokens)

    def test_continues_where_another_replica_was_cut_off(self):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 21, "top_p": 0.9}):
            whole = self.ask(**sampling)
            for cut in (1, 7, 23):
                rest = self.ask(self.ids + whole.ids[:cut], max_new_tokens=24 - cut, **sampling)
                self.assertEqual(whole.ids[:cut] + rest.ids, whole.ids, (sampling, cut))
                sent = "".join(o.text for o in whole.outputs)
                self.assertTrue(sent.endswith(rest.text))

    def test_refuses_by_name(self):
        cases = [
            ("sampling.top_p", {"top_p": 2}),
            ("stopping.stop_token_ids[0]", {"stop_token_ids": [1 << 30]}),
            # Not UNIMPLEMENTED, as on tlm.v1: Dynamo would take the worker for broken.
            ("json_schema", {"json": "{"}),
            ("decoding.structural_tag", {"structural_tag": "x"}),
            ("response.skip_special_tokens", {"skip_special_tokens": False}),
        ]
        for field, options in cases:
            asked = generate_request(self.ids, **options)
            for call in (self.inference.GenerateStream, self.inference.Generate):
                error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                          lambda: call(asked, timeout=60))
                self.assertEqual(support.violated_fields(error), [field])
        asked = generate_request(self.ids)
        asked.lora_name = "mine"
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                  lambda: self.inference.GenerateStream(asked))
        self.assertEqual(support.violated_fields(error), ["lora_name"])
        asked = generate_request(self.ids)
        asked.model = "another"
        self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.inference.GenerateStream(asked))
        self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.inference.GenerateStream(
            generate_request(self.ids), metadata=[("x-data-parallel-rank", "1")]))
        call = self.server.channel.unary_unary("/vllm.Control/Sleep")
        error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b""))
        self.assertIn("/vllm.Control/Sleep is not served", error.details())

    def test_abort_and_deadline_end_a_call(self):
        asked = generate_request(self.ids, max_new_tokens=900)
        call = self.inference.GenerateStream(asked, timeout=60)
        next(call)
        self.control.Abort(control_pb2.AbortRequest(request_ids=[asked.request_id, "unknown"]))
        error = self.assert_fails(grpc.StatusCode.ABORTED, lambda: call)
        self.assertEqual(support.details_of(error, error_details_pb2.ErrorInfo).reason,
                         "ABORTED_BY_CLIENT")
        asked.request_id = ""
        self.assert_fails(grpc.StatusCode.DEADLINE_EXCEEDED,
                          lambda: self.inference.GenerateStream(asked, timeout=0.02))
        self.assert_fails(
            grpc.StatusCode.INVALID_ARGUMENT, lambda: self.control.Abort(control_pb2.AbortRequest(
                request_ids=["x"] * 2000)))


class KvEventsTest(support.ServerTest):
    def test_tells_where_they_are(self):
        ask = control_pb2.GetKvEventSourcesRequest()
        control = control_pb2_grpc.ControlStub(self.server.channel)
        error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED,
                                  lambda: control.GetKvEventSources(ask))
        self.assertIn("--facades=dynamo", error.details())
        with TlmServer("--facades=dynamo") as server:
            control = control_pb2_grpc.ControlStub(server.channel)
            self.assertFalse(control.GetKvEventSources(ask).sources)
        with TlmServer("--facades=dynamo", "--kv_events_endpoint=tcp://127.0.0.1:*",
                       "--kv_events_replay_endpoint=tcp://127.0.0.1:*",
                       "--kv_events_topic=kv@here") as server:
            control = control_pb2_grpc.ControlStub(server.channel)
            (source,) = control.GetKvEventSources(ask).sources
        self.assertEqual((source.transport, source.encoding, source.topic),
                         ("zmq", "msgpack", "kv@here"))
        self.assertTrue(source.HasField("data_parallel_rank"))
        for endpoint in (source.endpoint, source.replay_endpoint):
            self.assertRegex(endpoint, r"^tcp://127\.0\.0\.1:[0-9]+$")


class TenantTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        cls.addClassCleanup(directory.cleanup)
        file = pathlib.Path(directory.name) / "keys.json"
        cls.one = tlm_keys("add", f"--file={file}", "--tenant=one")
        cls.other = tlm_keys("add", f"--file={file}", "--tenant=other")
        tlm_keys("limits", f"--file={file}", "--tenant=other", "--max_concurrent_requests=1")
        cls.server = SecureServer(f"--api_keys={file}", "--facades=dynamo").__enter__()
        cls.addClassCleanup(cls.server.close)
        cls.inference = inference_pb2_grpc.InferenceStub(cls.server.channel)
        cls.control = control_pb2_grpc.ControlStub(cls.server.channel)

    def test_calls_need_credentials(self):
        for call in (lambda: self.inference.GenerateStream(generate_request([7])),
                     lambda: self.inference.Generate(generate_request([7])),
                     lambda: self.control.GetModelInfo(control_pb2.GetModelInfoRequest()),
                     lambda: self.control.GetServerInfo(control_pb2.GetServerInfoRequest()),
                     lambda: self.control.GetKvEventSources(control_pb2.GetKvEventSourcesRequest()),
                     lambda: self.control.Abort(control_pb2.AbortRequest())):
            self.assertEqual(code_of(call), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(code_of(lambda: self.inference.GenerateStream(
            generate_request([7]), metadata=bearer(self.one))), grpc.StatusCode.OK)

    def test_abort_is_of_the_tenant(self):
        asked = generate_request([7], max_new_tokens=900)
        call = self.inference.GenerateStream(asked, metadata=bearer(self.one), timeout=60)
        next(call)
        abort = control_pb2.AbortRequest(request_ids=[asked.request_id])
        self.control.Abort(abort, metadata=bearer(self.other))
        next(call)
        self.control.Abort(abort, metadata=bearer(self.one))
        self.assertEqual(code_of(lambda: call), grpc.StatusCode.ABORTED)

    def test_limits_and_priorities_are_those_of_the_tenant(self):
        first = self.inference.GenerateStream(generate_request([7], max_new_tokens=900),
                                              metadata=bearer(self.other), timeout=60)
        next(first)
        second = self.inference.GenerateStream(generate_request([7]), metadata=bearer(self.other))
        self.assertEqual(code_of(lambda: second), grpc.StatusCode.RESOURCE_EXHAUSTED)
        # Within a stream: Dynamo would keep requests from a worker that fails at once.
        self.assertIn("traceparent", dict(second.initial_metadata()))
        first.cancel()
        asked = generate_request([7])
        asked.priority = -1  # earlier than others
        self.assertEqual(code_of(lambda: self.inference.GenerateStream(
            asked, metadata=bearer(self.one))), grpc.StatusCode.PERMISSION_DENIED)


if __name__ == "__main__":
    unittest.main()
