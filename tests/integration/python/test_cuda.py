"""The CUDA backend behind the real border, on an emulated GPU
(tests/support/cuda_modules), against the CPU backend."""

import os
import pathlib
import tempfile
import unittest

import quantised_checkpoint
from observed_server import ObservedServer
import support
from support import Answer, request
from tlm_server import DEMO_MODEL, TlmServer

from tlm.v1 import model_info_pb2, tokenize_pb2

MODULES = pathlib.Path(os.environ["TLM_CUDA_MODULES"])
PROMPTS = ["In the evening", "It was", "She looked at him for a long time and then"]
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
# bfloat16 between operations, 8 bits of it, over 6 layers.
TOLERANCE = 0.25


def emulated(*flags, server=TlmServer, libraries=("driver",), **environment):
    """A server on the emulated GPU; the library with the driver's name lets it look for one."""
    environment["LD_LIBRARY_PATH"] = ":".join(str(MODULES / name) for name in libraries)
    return server("--backend=cuda", f"--cuda_module={MODULES / 'libtlm_cuda_emulated.so'}",
                  "--max_running_requests=4", *flags, environment=environment)


def rows_of(server, ids=None):
    """The logits of these ids, or of PROMPTS."""
    tokenize = server.model.Tokenize
    sequences = [ids] if ids else [
        list(tokenize(tokenize_pb2.TokenizeRequest(text=text)).token_ids) for text in PROMPTS]
    return support.logits(server.model, sequences)


def memory_of(server):
    return server.model.ModelInfo(model_info_pb2.ModelInfoRequest()).memory


def tokens(server, **fields):
    return Answer(list(server.model.Generate(request(**fields), timeout=120))).ids


class CudaTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cuda = cls.enterClassContext(emulated("--max_batch_tokens=64"))
        cls.cpu = cls.enterClassContext(TlmServer("--backend=cpu"))

    def test_says_what_it_runs_on(self):
        identity = self.cuda.model.ModelInfo(model_info_pb2.ModelInfoRequest()).identity
        self.assertEqual(identity.backend, "cuda")
        self.assertEqual(identity.device_name, "emulated GPU")
        self.assertEqual(identity.device_uuid, UUID)
        cpu = self.cpu.model.ModelInfo(model_info_pb2.ModelInfoRequest()).identity
        self.assertEqual(cpu.device_uuid, "")
        self.assertIn(f"backend cuda: emulated GPU, {UUID}; as asked", self.cuda.log())

    def test_metrics_of_the_gpu_are_those_of_its_library(self):
        named = f"--gpu_device={UUID[:12]}"
        with emulated(named, server=ObservedServer, libraries=("driver", "../nvml/new")) as server:
            samples = server.samples_where(lambda s: s.of("tlm_gpu_info"))
            self.assertTrue(samples.of("tlm_gpu_info", uuid=UUID, driver="580.65.06"))
            self.assertEqual(samples.sum("tlm_gpu_up"), 1)
            self.assertEqual(samples.sum("tlm_gpu_power_watts"), 612.5)
        with emulated(server=ObservedServer) as server:
            self.assertNotIn("tlm_gpu", server.samples().text)
            self.assertIn("no metrics of the GPU: libnvidia-ml.so.1", server.log())

    def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(self):
        with self.assertRaisesRegex(RuntimeError, f"GPU-99 asked for, visible are 0: {UUID}"):
            with emulated("--gpu_device=GPU-99"):
                pass

    def test_fingerprints_of_backends_differ(self):
        infos = [server.model.ModelInfo(model_info_pb2.ModelInfoRequest())
                 for server in (self.cuda, self.cpu)]
        self.assertNotEqual(*(info.determinism.fingerprint for info in infos))
        self.assertEqual(*(info.identity.weights_sha256 for info in infos))

    def test_tensor_cores_with_a_defect_cost_the_guarantee(self):
        with emulated(TLM_EMULATED_DEFECT="1") as server:
            found = server.model.ModelInfo(model_info_pb2.ModelInfoRequest()).determinism
            self.assertEqual(found.guarantee, model_info_pb2.DETERMINISM_GUARANTEE_NONE)
            self.assertIn("products differ with their place in a tile", found.reason)
            self.assertIn(f"the rest of the batch ({found.reason})", server.log())
            self.assertEqual(len(tokens(server, seed=1, max_new_tokens=2)), 2)
        sound = self.cuda.model.ModelInfo(model_info_pb2.ModelInfoRequest()).determinism
        self.assertEqual((sound.guarantee, sound.reason),
                         (model_info_pb2.DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE, ""))

    def test_memory_parts_sum_to_the_total(self):
        tokens(self.cuda, seed=1, max_new_tokens=2)
        memory = memory_of(self.cuda)
        self.assertEqual(support.parts_of(memory), memory.allocated_total)
        self.assertLess(memory.allocated_total, 0.9 * memory.device_total)

    def test_logits_are_those_of_the_cpu(self):
        self.assert_close(rows_of(self.cuda), rows_of(self.cpu))

    def assert_close(self, actual, expected):
        for rows, others in zip(actual, expected, strict=True):
            for row, other in zip(rows, others, strict=True):
                self.assertLess(max(abs(a - b) for a, b in zip(row, other, strict=True)), TOLERANCE)

    def test_a_stream_is_the_same_without_graphs_overlap_and_large_steps(self):
        asked = dict(seed=7, max_new_tokens=12)
        with emulated("--max_batch_tokens=5", "--noprefix_cache",
                      "--debug_disable=cuda_graphs,cuda_overlap,cuda_library") as plain:
            self.assertEqual(tokens(plain, **asked), tokens(self.cuda, **asked))

    def test_weights_are_quantised_at_start(self):
        with emulated("--weights=int4", "--max_batch_tokens=64") as quantised:
            memory = memory_of(quantised)
            rows = rows_of(quantised)
            asked = dict(seed=7, max_new_tokens=8)
            streams = {tuple(tokens(quantised, **asked)) for _ in range(2)}
        self.assertEqual(len(streams), 1)
        stored = {weights.type for weights in memory.weights}
        self.assertTrue({"I4_G32", "I8_G256"} <= stored, stored)
        with TlmServer("--backend=cpu", "--weights=int4") as on_cpu:
            expected = rows_of(on_cpu)  # of the same integers, activations in 8 bits
        self.assertLess(support.distance(rows, expected), 0.05)

    def test_quantised_checkpoints_keep_their_blocks(self):
        for name, blocks in (("awq", "I4_G"), ("gptq, act-order", "I4_G"),
                             ("pack-quantized, act-order", "I4_G"), ("fp8", "F8_G"),
                             ("float-quantized, channels", "F8_G")):
            pair = quantised_checkpoint.Pair(name)
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                pair.save(pathlib.Path(folder))
                asked = dict(ids=[(17 * i + 5) % 96 for i in range(75)])
                with TlmServer("--backend=cpu", f"--model={folder}", "--weights=float32") as exact:
                    expected = rows_of(exact, **asked)
                with emulated(f"--model={folder}", "--max_batch_tokens=64") as quantised:
                    self.assertLess(support.distance(rows_of(quantised, **asked), expected), 0.03)
                    memory = memory_of(quantised)
                stored = {weights.type for weights in memory.weights}
                self.assertTrue(any(kind.startswith(blocks) for kind in stored), stored)
                with emulated(f"--model={folder}", "--weights=float32") as floats:
                    self.assertLess(support.distance(rows_of(floats, **asked), expected), 1e-4)

    def test_keys_and_values_of_8_bits_are_those_of_the_cpu(self):
        flag = "--kv_cache_dtype=fp8"
        with emulated(flag, "--max_batch_tokens=64") as cuda, TlmServer("--backend=cpu", flag) as cpu:
            self.assert_close(rows_of(cuda), rows_of(cpu))
            bytes_per_token = [memory_of(server).kv_bytes_per_token
                               for server in (cuda, cpu, self.cuda)]
            self.assertEqual(*bytes_per_token[:2])
            self.assertLess(bytes_per_token[0], 0.6 * bytes_per_token[2])
            asked = dict(seed=7, max_new_tokens=12)
            with emulated(flag, "--max_batch_tokens=5", "--noprefix_cache") as plain:
                self.assertEqual(tokens(plain, **asked), tokens(cuda, **asked))

    def test_takes_no_draft_model(self):
        with self.assertRaisesRegex(RuntimeError, "--draft_model is not there yet on backend cuda"):
            emulated(f"--draft_model={DEMO_MODEL}").__enter__()


if __name__ == "__main__":
    unittest.main()
