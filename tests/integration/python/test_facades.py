"""The façades `dynamo`, `openengine` and `vllm`, called as the sidecars of NVIDIA Dynamo, SMG and llm-d
call them, and `oip`: the tokens, the ends and the tenants of tlm.v1.

How each field is mapped or refused is tested by tests/unit/server/rpc/facades, and which calls need
credentials by test_refusals.py.
"""

import hashlib
import io
import pathlib
import tempfile
import unittest
import zipfile

import grpc

import support
from facades import FACADES, Dynamo, OpenEngine, Vllm
from secure_server import SecureServer, bearer, code_of, tlm_keys
from support import request
from tlm_server import DEMO_MODEL, TlmServer

from google.rpc import error_details_pb2
from grpc.health.v1 import health_pb2
from inference import open_inference_pb2, open_inference_pb2_grpc
from openengine.v1 import (generation_pb2 as openengine, kv_pb2, lifecycle_pb2, model_pb2,
                           server_pb2)
from smg.grpc.common import common_pb2 as common
from tlm.v1 import model_info_pb2
from vllm import control_pb2, inference_pb2
from vllm.grpc.engine import vllm_engine_pb2 as vllm

BLOCK = 64  # tokens
FLAGS = ("--facades=dynamo,openengine,vllm",)


class TokensTest(support.ServerTest):
    """Every protocol gives what tlm.v1 gives."""
    FLAGS = FLAGS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.facades = [kind(cls.server.channel) for kind in FACADES]
        cls.ids = cls.tokenize(cls, support.PROMPT)
        cls.greedy = cls.generate(cls(), request(temperature=0))

    def assert_same(self, direct, **options):
        """The answers of all façades to a request with these options are the one to `direct`."""
        events = list(self.model.Generate(direct, timeout=60))
        for facade in self.facades:
            asked = facade.request(self.ids, **options)
            outputs, prompt = facade.answers(asked)
            for told in (outputs, *facade.whole_answers(asked)):
                with self.subTest(type(facade).__name__, **options):
                    self.assertEqual(sorted(told), list(range(options.get("count", 1))))
                    for index, output in told.items():
                        self.check(support.output_of(events, index), output, len(told))
            if options.get("logprobs"):
                expected = support.output_of(events, 0)
                self.assertEqual(prompt, [token.logprob for token in expected.prompt[1:]])
                self.assertEqual(outputs[0].logprobs, [token.logprob for token in expected.tokens])

    def check(self, expected, output, count):
        self.assertEqual(output.counted, expected.summary.usage.completion_tokens // count)
        matched = expected.finished.stop_string or expected.finished.stop_token_id
        self.assertEqual(output.matched, matched)
        self.assertEqual(output.reason, "stop" if matched else "length")
        # Some send the tokens of what ended the output, too.
        self.assertEqual(output.ids[:len(expected.ids)], expected.ids)
        if output.text is not None:
            self.assertEqual(output.text, expected.text)
        elif expected.finished.stop_string:
            text = self.detokenize(self.ids + output.ids)[len(support.PROMPT):]
            self.assertEqual(text.partition(matched)[:2], (expected.text, matched))
        elif matched:
            self.assertEqual(output.ids, expected.ids + [matched])
        else:
            self.assertEqual(output.ids, expected.ids)

    def test_tokens_are_those_of_direct_calls(self):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7},
                         {"temperature": 1, "top_k": 9, "top_p": 0.8, "min_p": 0.02, "seed": -3},
                         {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                          "frequency_penalty": -0.25, "seed": 11}):
            direct = dict(sampling)
            if "seed" in direct:
                direct["seed"] %= 1 << 64
            self.assert_same(request(**direct), **sampling)

    def test_several_outputs(self):
        self.assert_same(request(temperature=1, seed=5, num_sequences=3), temperature=1, seed=5, count=3)

    def test_log_probabilities(self):
        direct = request(temperature=0)
        direct.output.logprobs = direct.output.prompt_logprobs = True
        self.assert_same(direct, temperature=0, logprobs=True)

    def test_stop_rules(self):
        direct = request(temperature=0)
        direct.stopping.stop_token_ids.append(self.greedy.ids[5])
        self.assert_same(direct, temperature=0, stop_ids=[self.greedy.ids[5]])
        # From within a token into the next one.
        second, third = (token.bytes.decode() for token in self.greedy.tokens[1:3])
        stop = second[-1] + third[0]
        direct = request(temperature=0)
        direct.stopping.stop_strings.append(stop)
        self.assert_same(direct, temperature=0, stop=[stop])

    def test_continues_where_another_replica_was_cut_off(self):
        sampling = {"temperature": 0.9, "seed": 21, "top_p": 0.9}
        whole = self.generate(request(**sampling)).ids
        for facade in self.facades:
            for cut in (1, 7, 23):
                asked = facade.request(self.ids + whole[:cut], 24 - cut, **sampling)
                self.assertEqual(facade.answers(asked)[0][0].ids, whole[cut:], type(facade))

    def test_abort_ends_a_call(self):
        for facade in self.facades:
            asked = facade.request(self.ids, 900)
            call = facade.begin(asked)
            next(call)
            facade.abort(asked.request_id)
            error = self.assert_fails(grpc.StatusCode.ABORTED, lambda: call)  # pylint: disable=cell-var-from-loop
            self.assertEqual(support.details_of(error, error_details_pb2.ErrorInfo).reason,
                             "ABORTED_BY_CLIENT")

    def test_openengine_aborts_all_and_tells_what_has_ended(self):
        facade = self.facades[1]
        call = facade.begin(facade.request(self.ids, 900))
        next(call)
        for status in (lifecycle_pb2.ABORT_STATUS_ABORTED, lifecycle_pb2.ABORT_STATUS_ALREADY_FINISHED):
            self.assertEqual(facade.control.Abort(lifecycle_pb2.AbortRequest(all_requests={})).status,
                             status)


class DescriptionTest(support.ServerTest):
    """What gateways ask of model, server and load."""
    FLAGS = FLAGS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.info = cls.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        cls.dynamo, cls.openengine, cls.vllm = (kind(cls.server.channel) for kind in FACADES)

    def test_every_service_is_healthy(self):
        for service in ("vllm.Inference", "vllm.Control", "openengine.v1.Inference",
                        "openengine.v1.Control"):
            status = self.server.health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(status.status, health_pb2.HealthCheckResponse.SERVING)
        self.assertTrue(self.vllm.engine.HealthCheck(vllm.HealthCheckRequest()).healthy)
        control = self.openengine.control
        self.assertEqual(control.Health(lifecycle_pb2.HealthRequest()).state,
                         lifecycle_pb2.HEALTH_STATE_READY)
        self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: control.Health(
            lifecycle_pb2.HealthRequest(include_inference_probe=True)))

    def test_dynamo(self):
        model = self.dynamo.control.GetModelInfo(control_pb2.GetModelInfoRequest())
        self.assertEqual(pathlib.Path(model.model_id), DEMO_MODEL.absolute())
        self.assertEqual(model.served_model_name, self.info.identity.model_id)
        self.assertTrue(model.supports_text_input and model.supports_token_ids_input)
        self.assertFalse(model.supports_lora or model.supports_multimodal)
        server = self.dynamo.control.GetServerInfo(control_pb2.GetServerInfoRequest())
        self.assertEqual(
            (server.api_version, server.max_model_len, server.kv_block_size, server.total_kv_blocks,
             server.max_running_requests, server.max_batched_tokens),
            ("vllm", self.info.limits.max_context_tokens, self.info.memory.kv_block_tokens,
             self.info.memory.kv_blocks_total, self.info.limits.max_running_sequences,
             self.info.limits.max_step_tokens))
        self.assertEqual((server.parallelism.data_parallel_size,
                          server.parallelism.data_parallel_rank), (1, 0))
        self.assertFalse(server.HasField("rl_capabilities"))

    def test_openengine(self):
        control, name = self.openengine.control, self.info.identity.model_id
        for asked in ("", name, str(DEMO_MODEL), "someone/demo"):
            model = control.GetModelInfo(model_pb2.GetModelInfoRequest(model=asked))
            self.assertEqual(pathlib.Path(model.model_id), DEMO_MODEL.absolute())
            self.assertEqual((model.served_model_name, model.max_context_length),
                             (name, self.info.limits.max_context_tokens))
        server = control.GetServerInfo(server_pb2.GetServerInfoRequest())
        self.assertEqual((server.engine_role, list(server.supported_models), server.schema_revision,
                          server.minimum_client_revision, server.capacity.total_kv_blocks),
                         (server_pb2.ENGINE_ROLE_AGGREGATED, [name], 1, 1,
                          self.info.memory.kv_blocks_total))
        load = control.GetLoad(server_pb2.GetLoadRequest(include_per_rank=True))
        self.assertEqual((load.instance_id, load.running_requests, load.queued_requests,
                          load.total_kv_blocks, [rank.data_parallel_rank for rank in load.ranks]),
                         (server.instance_id, 0, 0, self.info.memory.kv_blocks_total, [0]))

    def test_vllm(self):
        engine = self.vllm.engine
        info = engine.GetModelInfo(vllm.GetModelInfoRequest())
        self.assertTrue(info.is_generation)
        self.assertEqual(info.tokenizer_path, "/tlm:" + info.served_model_name)
        self.assertGreater(info.vocab_size, 0)
        server = engine.GetServerInfo(vllm.GetServerInfoRequest())
        self.assertEqual((server.server_type, server.block_size), ("vllm-grpc", BLOCK))
        loads = engine.GetLoads(vllm.GetLoadsRequest(include=["core"]))
        self.assertEqual((loads.dp_rank_count, len(loads.loads)), (1, 1))
        self.assertGreater(loads.loads[0].max_total_num_tokens, 0)

    def test_vllm_gives_the_tokenizers_files(self):
        chunks = list(self.vllm.engine.GetTokenizer(common.GetTokenizerRequest(), timeout=20))
        archive = b"".join(chunk.data for chunk in chunks)
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(archive).hexdigest())
        self.assertFalse(any(chunk.sha256 for chunk in chunks[:-1]))
        self.assertLessEqual(max(len(chunk.data) for chunk in chunks), 64 << 10)
        files = zipfile.ZipFile(io.BytesIO(archive))
        self.assertIsNone(files.testzip())
        self.assertIn("tokenizer.json", files.namelist())

    def test_no_events_are_told_unless_they_are_sent(self):
        asked = control_pb2.GetKvEventSourcesRequest()
        self.assertFalse(self.dynamo.control.GetKvEventSources(asked).sources)


class OipTest(support.ServerTest):
    """Metadata, raw contents and refusals are tested by tests/unit/server/rpc/facades/oip."""
    FLAGS = ("--facades=oip",)

    def test_answers_what_generate_answers(self):
        expected = self.generate(request(max_new_tokens=12, temperature=0))
        name = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).identity.model_id
        asked = open_inference_pb2.ModelInferRequest(model_name=name)
        tensor = asked.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(support.PROMPT.encode())
        asked.parameters["max_tokens"].int64_param = 12
        asked.parameters["temperature"].double_param = 0
        asked.parameters["ignore_eos"].bool_param = True
        oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(self.server.channel)
        response = oip.ModelInfer(asked)
        outputs = {output.name: output.contents for output in response.outputs}
        self.assertEqual(response.model_name, name)
        self.assertEqual(list(outputs["output_ids"].int_contents), expected.ids)
        self.assertEqual(outputs["text_output"].bytes_contents, [expected.text.encode()])
        self.assertEqual(outputs["finish_reason"].bytes_contents, [b"length"])


class WithoutTheFlagTest(support.ServerTest):
    def test_the_protocols_are_off(self):
        oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(self.server.channel)
        dynamo, openengine_, vllm_ = (kind(self.server.channel) for kind in FACADES)
        for name, call in (
                ("oip", lambda: oip.ServerLive(open_inference_pb2.ServerLiveRequest())),
                ("dynamo", lambda: dynamo.begin(inference_pb2.GenerateRequest())),
                ("openengine", lambda: openengine_.begin(openengine.GenerateRequest())),
                ("vllm", lambda: vllm_.begin(vllm.GenerateRequest()))):
            error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, call)
            self.assertIn(f"--facades={name}", error.details())


class KvEventsTest(unittest.TestCase):
    def test_dynamo_and_openengine_tell_where_they_are(self):
        with TlmServer(*FLAGS, "--kv_events_endpoint=tcp://127.0.0.1:*",
                       "--kv_events_replay_endpoint=tcp://127.0.0.1:*",
                       "--kv_events_topic=kv@here") as server:
            source, = Dynamo(server.channel).control.GetKvEventSources(
                control_pb2.GetKvEventSourcesRequest()).sources
            control = OpenEngine(server.channel).control
            same, = control.GetKvEventSources(kv_pb2.GetKvEventSourcesRequest()).sources
            counts = [len(control.GetKvEventSources(kv_pb2.GetKvEventSourcesRequest(
                data_parallel_ranks=ranks)).sources) for ranks in ([0, 1], [1])]
        self.assertEqual((source.transport, source.encoding, source.topic), ("zmq", "msgpack", "kv@here"))
        self.assertTrue(source.HasField("data_parallel_rank"))
        for endpoint in (source.endpoint, source.replay_endpoint):
            self.assertRegex(endpoint, r"^tcp://127\.0\.0\.1:[0-9]+$")
        address = same.endpoint_addr
        self.assertEqual(f"{address.protocol}://{address.host}:{address.port}", source.endpoint)
        self.assertEqual(counts, [1, 0])

    def test_vllm_sends_them(self):
        """A mirror of the cache, made of events, knows what the next request finds in it."""
        with TlmServer(*FLAGS) as server:
            def subscribe(after=0):
                call = Vllm(server.channel).engine.SubscribeKvEvents(
                    common.SubscribeKvEventsRequest(start_sequence_number=after), timeout=60)
                call.initial_metadata()
                return call

            def ask(ids):
                asked = support.request_of_ids(ids, max_new_tokens=8)
                return support.Answer(list(server.model.Generate(asked, timeout=60)))

            before, mirror = subscribe(), {}
            first = next(before)
            self.assertTrue(first.HasField("snapshot"))
            self.apply(first, mirror)
            ids = [5 + i % 90 for i in range(3 * BLOCK)]
            known, last = len(mirror), first.sequence_number
            ask(ids)
            while len(mirror) < known + 3:
                batch = next(before)
                self.assertEqual(batch.sequence_number, last + 1)
                last = batch.sequence_number
                self.apply(batch, mirror)
            chain = list(mirror.values())[-3:]
            self.assertEqual([id_ for _, tokens in chain for id_ in tokens], ids)
            self.assertIsNone(chain[0][0])
            # A later subscriber finds the same in its snapshot, or replays what it missed.
            again = {}
            self.apply(next(subscribe()), again)
            self.assertEqual(again, mirror)
            replay = next(subscribe(first.sequence_number))
            self.assertEqual(replay.sequence_number, first.sequence_number + 1)
            self.assertFalse(replay.HasField("snapshot"))
            # What the events name is what requests find.
            self.assertEqual(ask(ids + [3]).started.cached_prompt_tokens, 3 * BLOCK)

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


class TenantTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        file = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-"))) / "keys.json"
        def add(tenant):
            return bearer(tlm_keys("add", f"--file={file}", f"--tenant={tenant}"))
        cls.one, cls.other = add("one"), add("other")
        # A tenant for each protocol: a call that ended may count a moment longer.
        cls.limited = {}
        for kind in FACADES:
            cls.limited[kind] = add(kind.__name__)
            tlm_keys("limits", f"--file={file}", f"--tenant={kind.__name__}",
                     "--max_concurrent_requests=1")
        cls.server = cls.enterClassContext(SecureServer(f"--api_keys={file}", *FLAGS))
        cls.facades = [kind(cls.server.channel) for kind in FACADES]

    def test_abort_is_of_the_tenant(self):
        for facade in self.facades:
            asked = facade.request([7], 900)
            call = facade.begin(asked, metadata=self.one)
            next(call)
            facade.abort(asked.request_id, metadata=self.other)
            next(call)
            facade.abort(asked.request_id, metadata=self.one)
            self.assertEqual(code_of(lambda: call), grpc.StatusCode.ABORTED, type(facade))  # pylint: disable=cell-var-from-loop

    def test_limits_are_those_of_the_tenant(self):
        for facade in self.facades:
            limited = self.limited[type(facade)]
            asked = facade.request([7], 900)
            first = facade.begin(asked, metadata=limited)
            next(first)
            second = facade.begin(facade.request([7]), metadata=limited)
            self.assertEqual(code_of(lambda: second), grpc.StatusCode.RESOURCE_EXHAUSTED)  # pylint: disable=cell-var-from-loop
            if isinstance(facade, Dynamo):
                # Within a stream: Dynamo would keep requests from a worker that fails at once.
                self.assertIn("traceparent", dict(second.initial_metadata()))
            facade.abort(asked.request_id, metadata=limited)
            self.assertEqual(code_of(lambda: first), grpc.StatusCode.ABORTED)  # pylint: disable=cell-var-from-loop

    def test_priorities_are_those_of_the_tenant(self):
        dynamo, openengine_, _ = self.facades
        for priority, code in ((-1, grpc.StatusCode.PERMISSION_DENIED), (1, grpc.StatusCode.OK)):
            asked = dynamo.request([7])
            asked.priority = priority  # the lower, the earlier
            self.assertEqual(code_of(lambda: dynamo.begin(asked, metadata=self.one)), code)  # pylint: disable=cell-var-from-loop
            self.assertEqual(code_of(lambda: openengine_.begin(openengine_.request([7]), metadata=[  # pylint: disable=cell-var-from-loop
                *self.one, ("openengine-priority", str(-priority))])), code)

    def test_vllm_tells_a_tenant_of_its_own_blocks(self):
        engine = self.facades[2]
        events = engine.engine.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=60,
                                                 metadata=self.other)
        self.assertEqual(next(events).snapshot.blocks, 0)
        list(engine.begin(engine.request(list(range(1, 2 * BLOCK + 1)), 1), metadata=self.one))
        list(engine.begin(engine.request([9] * (BLOCK + 1), 1), metadata=self.other))
        self.assertEqual(list(next(events).events[0].stored.blocks[0].token_ids), [9] * BLOCK)
        events.cancel()


if __name__ == "__main__":
    unittest.main()
