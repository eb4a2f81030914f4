"""The façade `vllm`, as the SMG gateway and llm-d call it: the same tokens, statuses and tenants."""

import hashlib
import io
import pathlib
import tempfile
import unittest
import zipfile

import grpc

import support
from secure_server import SecureServer, bearer, code_of, tlm_keys
from support import request

from smg.grpc.common import common_pb2 as common
from vllm.grpc.engine import vllm_engine_pb2 as vllm
from vllm.grpc.engine import vllm_engine_pb2_grpc

BLOCK = 64  # tokens


def generate_request(ids, stream=True, **params):
    params.setdefault("max_tokens", 24)
    params.setdefault("ignore_eos", True)
    return vllm.GenerateRequest(
        tokenized=vllm.TokenizedInput(input_ids=ids), stream=stream,
        sampling_params=vllm.SamplingParams(**params))


class VllmAnswer:
    """The messages of a Generate stream: per output its ids, log-probabilities and end."""

    def __init__(self, messages):
        self.messages = list(messages)
        self.chunks = [m.chunk for m in self.messages if m.HasField("chunk")]
        self.completes = {m.complete.index: m.complete for m in self.messages
                          if m.HasField("complete")}

    def ids(self, index=0):
        streamed = [i for chunk in self.chunks if chunk.index == index for i in chunk.token_ids]
        return streamed + list(self.completes[index].output_ids)


class VllmTest(support.ServerTest):
    FLAGS = ("--facades=vllm",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vllm = vllm_engine_pb2_grpc.VllmEngineStub(cls.server.channel)

    def ask(self, *arguments, **params):
        return VllmAnswer(self.vllm.Generate(generate_request(*arguments, **params), timeout=60))

    def test_tokens_are_those_of_direct_calls(self):
        ids = self.tokenize(support.PROMPT)
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7},
                         {"temperature": 1, "top_k": 9, "top_p": 0.8, "min_p": 0.02, "seed": -3},
                         {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                          "frequency_penalty": -0.25, "seed": 11, "logit_bias": {3: 4.5}}):
            direct = dict(sampling)
            if "seed" in direct:
                direct["seed"] %= 1 << 64
            expected = self.generate(request(**direct))
            for stream in (True, False):
                answer = self.ask(ids, stream, **sampling)
                self.assertEqual(answer.ids(), expected.ids, sampling)
                self.assertEqual(answer.completes[0].finish_reason, "length")
                self.assertEqual(answer.completes[0].completion_tokens, 24)
                self.assertEqual(answer.completes[0].prompt_tokens, len(ids))
            self.assertFalse(answer.chunks)

    def test_several_outputs(self):
        ids = self.tokenize(support.PROMPT)
        asked = request(temperature=1, seed=5, num_sequences=3)
        events = list(self.model.Generate(asked, timeout=60))
        answer = self.ask(ids, n=3, temperature=1, seed=5)
        for index in range(3):
            self.assertEqual(answer.ids(index), support.output_of(events, index).ids)
        self.assertEqual(sorted(answer.completes), [0, 1, 2])

    def test_log_probabilities(self):
        ids = self.tokenize(support.PROMPT)
        asked = request(temperature=0)
        asked.output.top_logprobs = 3
        asked.output.logprobs = True
        asked.output.prompt_logprobs = True
        expected = self.generate(asked)
        for stream in (True, False):
            answer = self.ask(ids, stream, temperature=0, logprobs=2, prompt_logprobs=3)
            first = (answer.chunks[0] if stream else answer.completes[0]).input_logprobs
            self.assertEqual(list(first.token_ids), ids)
            self.assertFalse(first.token_logprobs[0].HasField("value"))
            self.assertEqual([t.value for t in first.token_logprobs[1:]],
                             [t.logprob for t in expected.prompt[1:]])
            self.assertEqual([len(top.token_ids) for top in first.top_logprobs[1:]],
                             [3] * (len(ids) - 1))
            parts = [c.output_logprobs for c in answer.chunks] + [answer.completes[0].output_logprobs]
            self.assertEqual([p for part in parts for p in part.token_logprobs],
                             [t.logprob for t in expected.tokens])
            self.assertEqual([list(top.token_ids) for part in parts for top in part.top_logprobs],
                             [[top.id for top in t.top[:2]] for t in expected.tokens])
        # None were asked for.
        self.assertFalse(self.ask(ids, temperature=0).chunks[0].HasField("output_logprobs"))

    def test_ids_reach_to_the_end_of_a_stop_string(self):
        ids = self.tokenize(support.PROMPT)
        whole = self.generate(request(temperature=0))
        # From within a token into the next one.
        second, third = (t.bytes.decode() for t in whole.tokens[1:3])
        stop = second[-1] + third[0]
        asked = request(temperature=0)
        asked.stopping.stop_strings.append(stop)
        expected = self.generate(asked)
        for stream in (True, False):
            answer = self.ask(ids, stream, temperature=0, stop=[stop])
            complete = answer.completes[0]
            self.assertEqual(complete.finish_reason, "stop")
            self.assertEqual(complete.matched_stop_str, stop)
            text = self.detokenize(ids + answer.ids())[len(support.PROMPT):]
            self.assertIn(stop, text)
            self.assertEqual(text[:text.index(stop)], expected.text)
            self.assertEqual(complete.completion_tokens, len(answer.ids()))

    def test_stop_tokens(self):
        ids = self.tokenize(support.PROMPT)
        whole = self.generate(request(temperature=0)).ids
        answer = self.ask(ids, temperature=0, stop_token_ids=[whole[5]])
        cut = whole.index(whole[5])
        self.assertEqual(answer.ids(), whole[:cut + 1])
        self.assertEqual(answer.completes[0].matched_token_id, whole[5])
        self.assertEqual(answer.completes[0].completion_tokens, cut + 1)

    def test_refusals_name_the_field_and_send_nothing_before(self):
        invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED
        for code, field, asked in (
                (invalid, "input", vllm.GenerateRequest()),
                (invalid, "prompt", generate_request([])),
                (invalid, "prompt_token_ids", generate_request([1 << 30])),
                (invalid, "sampling.temperature", generate_request([1], temperature=-1)),
                (invalid, "sampling.top_p", generate_request([1], top_p=2)),
                (invalid, "sampling.num_sequences", generate_request([1], n=100)),
                (invalid, "sampling_params.logprobs", generate_request([1], logprobs=21)),
                (invalid, "stopping.max_new_tokens", generate_request([1], max_tokens=0)),
                (invalid, "json_schema", generate_request([1], json_schema="{")),
                (invalid, "structural_tag", generate_request([1], structural_tag="{}")),
                (missing, "mm_inputs", vllm.GenerateRequest(mm_inputs=vllm.MultimodalInputs())),
                (missing, "kv_transfer_params_json",
                 vllm.GenerateRequest(kv_transfer_params_json="{}"))):
            call = self.vllm.Generate(asked, timeout=20)
            error = self.assert_fails(code, lambda: call)
            self.assertIn(field, error.details())
        self.assert_fails(missing, lambda: self.vllm.Embed(vllm.EmbedRequest(), timeout=20))

    def test_a_newer_field_is_refused(self):
        asked = generate_request([1]).SerializeToString() + b"\xf8\x06\x01"  # field 111
        raw = self.server.channel.unary_stream("/vllm.grpc.engine.VllmEngine/Generate")
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: raw(asked, timeout=20))
        self.assertIn("111 is no field of vllm.grpc.engine.GenerateRequest", error.details())

    def test_abort_and_cancellation(self):
        asked = generate_request([1, 2, 3], max_tokens=100_000)
        for end in ("abort", "cancel"):
            asked.request_id = end
            asked.sampling_params.ClearField("max_tokens")
            call = self.vllm.Generate(asked, timeout=60)
            next(call)
            if end == "cancel":
                call.cancel()
                continue
            self.vllm.Abort(vllm.AbortRequest(request_ids=[end, "unknown"]), timeout=20)
            self.assert_fails(grpc.StatusCode.ABORTED, lambda: call)

    def test_describes_model_and_load(self):
        self.assertTrue(self.vllm.HealthCheck(vllm.HealthCheckRequest()).healthy)
        info = self.vllm.GetModelInfo(vllm.GetModelInfoRequest())
        self.assertTrue(info.is_generation)
        self.assertEqual(info.tokenizer_path, "/tlm:" + info.served_model_name)
        self.assertGreater(info.vocab_size, 0)
        server = self.vllm.GetServerInfo(vllm.GetServerInfoRequest())
        self.assertEqual((server.server_type, server.block_size), ("vllm-grpc", BLOCK))
        loads = self.vllm.GetLoads(vllm.GetLoadsRequest(include=["core"]))
        self.assertEqual((loads.dp_rank_count, len(loads.loads)), (1, 1))
        self.assertGreater(loads.loads[0].max_total_num_tokens, 0)
        self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                          lambda: self.vllm.GetLoads(vllm.GetLoadsRequest(dp_rank=1)))

    def test_gives_the_tokenizers_files(self):
        chunks = list(self.vllm.GetTokenizer(common.GetTokenizerRequest(), timeout=20))
        archive = b"".join(chunk.data for chunk in chunks)
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(archive).hexdigest())
        self.assertFalse(any(chunk.sha256 for chunk in chunks[:-1]))
        self.assertLessEqual(max(len(chunk.data) for chunk in chunks), 64 << 10)
        files = zipfile.ZipFile(io.BytesIO(archive))
        self.assertIsNone(files.testzip())
        self.assertIn("tokenizer.json", files.namelist())


class KvEventsTest(support.ServerTest):
    """A mirror of the cache, made of events, knows what the next request finds in it."""

    FLAGS = ("--facades=vllm", "--admin_port=0",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vllm = vllm_engine_pb2_grpc.VllmEngineStub(cls.server.channel)

    def subscribe(self, after=0):
        call = self.vllm.SubscribeKvEvents(
            common.SubscribeKvEventsRequest(start_sequence_number=after), timeout=60)
        self.addCleanup(call.cancel)
        call.initial_metadata()
        return call

    @staticmethod
    def apply(batch, mirror):
        for event in batch.events:
            kind = event.WhichOneof("data")
            if kind == "cleared":
                mirror.clear()
            elif kind == "removed":
                for block in event.removed.block_hashes:
                    del mirror[block]
            else:
                parent = (event.stored.parent_block_hash
                          if event.stored.HasField("parent_block_hash") else None)
                for block in event.stored.blocks:
                    assert parent is None or parent in mirror
                    mirror[block.block_hash] = (parent, list(block.token_ids))
                    parent = block.block_hash

    def run_prompt(self, ids, new=8):
        return self.generate(support.request_of_ids(ids, max_new_tokens=new))

    def test_tells_what_is_stored(self):
        before = self.subscribe()
        mirror = {}
        first = next(before)
        self.assertTrue(first.HasField("snapshot"))
        self.apply(first, mirror)
        known = len(mirror)
        ids = [5 + i % 90 for i in range(3 * BLOCK)]
        self.run_prompt(ids)
        last = first.sequence_number
        while len(mirror) < known + 3:
            batch = next(before)
            self.assertEqual(batch.sequence_number, last + 1)
            last = batch.sequence_number
            self.apply(batch, mirror)
        chain = [mirror[h] for h in mirror][-3:]
        self.assertEqual([t for _, tokens in chain for t in tokens], ids)
        self.assertIsNone(chain[0][0])
        # A later subscriber finds the same in its snapshot, or replays what it missed.
        again = {}
        snapshot = next(self.subscribe())
        self.apply(snapshot, again)
        self.assertEqual(again, mirror)
        replay = next(self.subscribe(first.sequence_number))
        self.assertEqual(replay.sequence_number, first.sequence_number + 1)
        self.assertFalse(replay.HasField("snapshot"))
        # What the events name is what requests find.
        self.assertEqual(self.run_prompt(ids + [3]).started.cached_prompt_tokens, 3 * BLOCK)


class TenantTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        cls.addClassCleanup(directory.cleanup)
        file = pathlib.Path(directory.name) / "keys.json"
        cls.keys = {name: tlm_keys("add", f"--file={file}", f"--tenant={name}")
                    for name in ("alice", "bob")}
        tlm_keys("limits", f"--file={file}", "--tenant=bob", "--requests_per_minute=2")
        cls.server = SecureServer(f"--api_keys={file}", "--facades=vllm").__enter__()
        cls.addClassCleanup(cls.server.close)
        cls.vllm = vllm_engine_pb2_grpc.VllmEngineStub(cls.server.channel)

    def generate(self, tenant, asked):
        return self.vllm.Generate(asked, metadata=bearer(self.keys[tenant]), timeout=60)

    def test_every_call_but_the_probe_needs_credentials(self):
        self.assertTrue(self.vllm.HealthCheck(vllm.HealthCheckRequest()).healthy)
        for call in (lambda: list(self.vllm.Generate(generate_request([1]))),
                     lambda: self.vllm.GetModelInfo(vllm.GetModelInfoRequest()),
                     lambda: self.vllm.GetServerInfo(vllm.GetServerInfoRequest()),
                     lambda: self.vllm.GetLoads(vllm.GetLoadsRequest()),
                     lambda: self.vllm.Abort(vllm.AbortRequest()),
                     lambda: list(self.vllm.GetTokenizer(common.GetTokenizerRequest())),
                     lambda: list(self.vllm.SubscribeKvEvents(common.SubscribeKvEventsRequest()))):
            self.assertEqual(code_of(call), grpc.StatusCode.UNAUTHENTICATED)

    def test_tenants_do_not_see_or_end_each_other(self):
        events = self.vllm.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=60,
                                             metadata=bearer(self.keys["bob"]))
        self.assertEqual(next(events).snapshot.blocks, 0)
        asked = generate_request(list(range(1, 2 * BLOCK + 1)), max_tokens=200)
        asked.request_id = "mine"
        call = self.generate("alice", asked)
        next(call)
        self.vllm.Abort(vllm.AbortRequest(request_ids=["mine"]),
                        metadata=bearer(self.keys["bob"]))
        self.assertEqual(VllmAnswer(call).completes[0].completion_tokens, 200)
        mine = [generate_request([9] * (BLOCK + 1), max_tokens=1) for _ in range(3)]
        list(self.generate("bob", mine[0]))
        # The first events that bob hears of are bob's.
        self.assertEqual(list(next(events).events[0].stored.blocks[0].token_ids), [9] * BLOCK)
        list(self.generate("bob", mine[1]))
        self.assertEqual(code_of(lambda: list(self.generate("bob", mine[2]))),
                         grpc.StatusCode.RESOURCE_EXHAUSTED)
        events.cancel()


if __name__ == "__main__":
    unittest.main()
