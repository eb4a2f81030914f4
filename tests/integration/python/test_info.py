"""ModelInfo, Tokenize, Detokenize, health and reflection."""

import hashlib
import json
import math
import struct
import unittest

import grpc

from support import ServerTest, request
from tlm_server import DEMO_MODEL, TlmServer, run_server

from grpc.health.v1 import health_pb2
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import model_info_pb2, tokenize_pb2


def checkpoint_tensors():
    """{name: number of elements} from the header of the model's weights."""
    with open(DEMO_MODEL / "model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return {name: math.prod(entry["shape"]) for name, entry in header.items()
            if name != "__metadata__"}


class ModelInfoTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.info = cls.model.ModelInfo(model_info_pb2.ModelInfoRequest(include_tensors=False))

    def test_identity_names_model_and_files(self):
        identity = self.info.identity
        self.assertEqual(identity.model_id, "demo")
        self.assertTrue(identity.server_version)
        self.assertGreaterEqual(identity.api_revision, 1)
        self.assertTrue(identity.backend)
        for digest, name in ((identity.weights_sha256, "model.safetensors"),
                             (identity.tokenizer_sha256, "tokenizer.json")):
            if digest:
                expected = hashlib.sha256((DEMO_MODEL / name).read_bytes()).hexdigest()
                self.assertEqual(digest, expected, name)

    def test_architecture_is_that_of_config_json(self):
        config = json.loads((DEMO_MODEL / "config.json").read_text())
        architecture = self.info.architecture
        self.assertEqual(architecture.num_layers, config["num_hidden_layers"])
        self.assertEqual(architecture.d_model, config["hidden_size"])
        self.assertEqual(architecture.num_heads, config["num_attention_heads"])
        self.assertEqual(architecture.num_kv_heads, config["num_key_value_heads"])
        self.assertEqual(architecture.head_dim, config["head_dim"])
        self.assertEqual(architecture.d_ff, config["intermediate_size"])
        self.assertEqual(architecture.vocab_size, config["vocab_size"])
        self.assertEqual(architecture.context_length, config["max_position_embeddings"])
        self.assertEqual(architecture.rope.theta, config["rope_theta"])
        self.assertEqual(architecture.tie_word_embeddings, config["tie_word_embeddings"])

    def test_parameters_are_those_of_the_checkpoint(self):
        counts = self.info.parameters
        tensors = checkpoint_tensors()
        if self.info.architecture.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
        self.assertEqual(counts.total, sum(tensors.values()))
        attention, ffn = counts.attention, counts.ffn
        self.assertEqual(counts.total,
                         counts.embedding + counts.position_embedding + counts.lm_head
                         + attention.q + attention.k + attention.v + attention.o
                         + ffn.gate + ffn.up + ffn.down + counts.norms + counts.biases)
        self.assertEqual(counts.non_embedding,
                         counts.total - counts.embedding - counts.position_embedding)

    def test_memory_parts_sum_to_the_total(self):
        memory = self.info.memory
        parts = (sum(weights.bytes for weights in memory.weights)
                 + memory.kv_blocks_total * memory.kv_block_tokens * memory.kv_bytes_per_token
                 + memory.activation_arena + memory.logits_workspace + memory.graph_pool
                 + memory.runtime_reserved)
        self.assertGreater(memory.allocated_total, 0)
        self.assertEqual(parts, memory.allocated_total)

    def test_flops_parts_sum_to_the_total(self):
        if not self.info.HasField("flops"):
            self.skipTest("this server does not count operations")
        flops = self.info.flops
        components = [component for _, component in flops.components.ListFields()]
        self.assertEqual(sum(c.flops for c in components), flops.total)
        self.assertAlmostEqual(sum(c.share for c in components), 1, places=9)

    def test_limits_hold(self):
        limits = self.info.limits
        self.assertGreater(limits.max_context_tokens, 0)
        for field in ("max_prompt_tokens", "max_queued_requests", "max_running_sequences",
                      "max_forward_rows", "max_text_bytes", "max_response_bytes"):
            self.assertGreater(getattr(limits, field), 0, field)

    def test_fingerprint_is_the_one_of_streams(self):
        answer = self.generate(request(max_new_tokens=1))
        self.assertTrue(answer.started.fingerprint)
        self.assertEqual(self.info.determinism.fingerprint, answer.started.fingerprint)
        self.assertEqual(self.info.determinism.guarantee,
                         model_info_pb2.DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE)
        self.assertEqual(set(self.info.determinism.scope),
                         set(model_info_pb2.DeterminismScope.values())
                         - {model_info_pb2.DETERMINISM_SCOPE_UNSPECIFIED})

    def test_build_is_what_the_program_says_of_itself(self):
        self.assertRegex(self.info.identity.build_id, "^[0-9a-f]{40}$")
        _, version = run_server("--version")
        self.assertIn(self.info.identity.build_id, version)

    def test_default_sampling_is_what_unset_fields_mean(self):
        defaults = self.info.default_sampling
        effective = self.generate(request(max_new_tokens=1)).started.effective
        for field in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"):
            self.assertTrue(defaults.HasField(field), field)
            self.assertEqual(getattr(defaults, field), getattr(effective, field), field)


class FingerprintTest(unittest.TestCase):

    def info(self, *flags):
        with TlmServer(*flags) as server:
            return server.model.ModelInfo(model_info_pb2.ModelInfoRequest())

    def test_it_is_the_same_on_replicas_and_whatever_decides_no_token(self):
        usual = self.info().determinism.fingerprint
        self.assertEqual(self.info().determinism.fingerprint, usual)
        self.assertEqual(
            self.info("--threads=1", "--noprefix_cache", "--max_batch_tokens=64",
                      "--max_running_requests=3", "--max_context=100",
                      "--max_queue_time=inf").determinism.fingerprint, usual)

    def test_it_changes_with_what_decides_tokens(self):
        flags = [(), ("--kv_cache_dtype=float16",), ("--kv_cache_dtype=fp8", "--backend=cpu"),
                 ("--weights=int8", "--backend=cpu"),
                 ("--random_weights=1",),
                 ("--random_weights=2",)]
        fingerprints = [self.info(*of).determinism.fingerprint for of in flags]
        self.assertEqual(len(set(fingerprints)), len(flags))

    def test_limits_and_capabilities_follow_the_flags(self):
        usual = self.info()
        self.assertTrue(usual.capabilities.prefix_cache)
        self.assertTrue(usual.capabilities.resume)
        self.assertEqual(usual.limits.max_queue_time.seconds, 30)
        self.assertEqual(usual.limits.max_step_prefill_tokens, usual.limits.max_step_tokens)
        other = self.info("--noprefix_cache", "--max_queue_time=inf", "--max_batch_tokens=100")
        self.assertFalse(other.capabilities.prefix_cache)
        self.assertFalse(other.limits.HasField("max_queue_time"))
        self.assertEqual(other.limits.max_step_prefill_tokens, 100)


class TokenizeTest(ServerTest):

    def test_text_survives_the_round_trip(self):
        for text in ("", "Once upon a time", "naïve café, 日本語, 🙂", "  \n\t spaces ", "a\0b",
                     "<b>&amp;</b>", "x" * 5000):
            with self.subTest(text[:20]):
                response = self.model.Tokenize(tokenize_pb2.TokenizeRequest(text=text))
                self.assertEqual(b"".join(response.token_bytes), text.encode())
                self.assertEqual(len(response.token_bytes), len(response.token_ids))
                self.assertEqual(self.detokenize(response.token_ids), text)

    def test_broken_utf8_keeps_its_bytes(self):
        response = self.model.Tokenize(tokenize_pb2.TokenizeRequest(text="日"))
        for id_, piece in zip(response.token_ids, response.token_bytes):
            back = self.model.Detokenize(tokenize_pb2.DetokenizeRequest(token_ids=[id_]))
            self.assertEqual(back.bytes, piece)
            self.assertEqual(back.text, piece.decode(errors="replace"))


class HealthTest(ServerTest):

    def test_server_and_service_are_serving(self):
        for service in ("", "tlm.v1.LanguageModel"):
            response = self.server.health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(response.status, health_pb2.HealthCheckResponse.SERVING, service)

    def test_unknown_service_is_not_found(self):
        self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.server.health.Check(
            health_pb2.HealthCheckRequest(service="no.such.Service")))


class ReflectionTest(ServerTest):

    def test_services_are_listed(self):
        stub = ServerReflectionStub(self.server.channel)
        responses = stub.ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")]))
        names = [s.name for s in next(iter(responses)).list_services_response.service]
        self.assertIn("tlm.v1.LanguageModel", names)
        self.assertIn("grpc.health.v1.Health", names)


if __name__ == "__main__":
    unittest.main()
