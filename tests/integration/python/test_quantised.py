"""Checkpoints of AWQ, GPTQ and compressed-tensors, served beside the same weights as float32."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import quantised_checkpoint
from support import distance, logits
from tlm_server import BIN_DIR, TlmServer

import gguf_writer
from tlm.v1 import common_pb2, forward_pb2, model_info_pb2

TOKENS = 75  # more than a block of the KV cache
IDS = [(17 * i + 5) % quantised_checkpoint.SHAPE["vocab_size"] for i in range(TOKENS)]


def info_of(server):
    return server.model.ModelInfo(model_info_pb2.ModelInfoRequest(include_tensors=True))


class QuantisedTest(unittest.TestCase):

    def check(self, name):
        pair = quantised_checkpoint.Pair(name)
        with tempfile.TemporaryDirectory() as folder:
            quantised, floats = pathlib.Path(folder) / "quantised", pathlib.Path(folder) / "floats"
            quantised.mkdir()
            floats.mkdir()
            pair.save(quantised)
            pair.save_floats(floats)
            with TlmServer(f"--model={floats}", "--weights=float32") as server:
                expected = logits(server.model, [IDS])
                parameters = info_of(server).parameters
            with TlmServer(f"--model={quantised}", "--weights=float32") as server:
                self.assertLess(distance(logits(server.model, [IDS]), expected), 1e-5)
                info = info_of(server)
            with TlmServer(f"--model={quantised}") as server:
                self.assertLess(distance(logits(server.model, [IDS]), expected), 0.2)  # 8-bit activations
                self.assertNotEqual(info_of(server).determinism.fingerprint,
                                    info.determinism.fingerprint)
            described = json.loads(subprocess.run(
                [BIN_DIR / "tlm", "info", str(quantised), "--json"], check=True,
                capture_output=True, text=True, timeout=60).stdout)
        self.assertEqual(info.parameters.total, parameters.total)
        self.assertEqual(info.parameters.stored, parameters.stored)
        self.assertEqual(int(described["parameters"]["total"]), parameters.total)
        stored = {tensor.name: tensor for tensor in info.parameters.tensors}
        self.assertEqual(stored.keys(), pair.stored.keys())
        for tensor, (dtype, shape, data) in pair.stored.items():
            self.assertEqual(stored[tensor].stored_type, dtype)
            self.assertEqual(tuple(stored[tensor].shape), tuple(shape))
            self.assertEqual(stored[tensor].stored_bytes, len(data))

    def test_every_format(self):
        for name in quantised_checkpoint.FORMATS:
            with self.subTest(name):
                self.check(name)

    def test_a_spoiled_tensor_is_named_with_its_file(self):
        pair = quantised_checkpoint.Pair("pack-quantized")
        name = "model.layers.1.mlp.up_proj.weight_scale"
        dtype, shape, data = pair.stored[name]
        pair.stored[name] = dtype, (shape[0], shape[1] - 1), data[:len(data) * 1 // 2]
        with tempfile.TemporaryDirectory() as folder:
            pair.save(pathlib.Path(folder))
            ran = subprocess.run([BIN_DIR / "tlm-server", f"--model={folder}", "--port=0"],
                                 capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn(f"'{name}' has shape [256, 1]", ran.stderr)
        self.assertIn("ask for [256, 2]", ran.stderr)


class CalibrationTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text("The prince said that he would come in the evening. " * 40,
                             encoding="utf-8")

    def refusal(self, model, *flags):
        ran = subprocess.run([BIN_DIR / "tlm-server", f"--model={model}", "--port=0",
                              f"--calibration={self.text}", *flags],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(ran.returncode, 0)
        return ran.stderr

    def test_the_text_decides_the_scales(self):
        fingerprints = set()
        for flags in ([], [f"--calibration={self.text}"]):
            with TlmServer("--weights=int4:64", *flags) as server:
                info = info_of(server)
                fingerprints.add(info.determinism.fingerprint)
                request = forward_pb2.ForwardRequest(sequences=[common_pb2.TokenIds(ids=[5, 7])])
                self.assertTrue(list(server.model.Forward(request, timeout=60)))
        self.assertEqual(len(fingerprints), 2)

    def test_quantised_weights_are_refused_by_name(self):
        (self.folder / "gguf").mkdir()
        file = self.folder / "gguf" / "model.gguf"
        file.write_bytes(gguf_writer.small_llama().bytes())
        checkpoint = self.folder / "checkpoint"
        checkpoint.mkdir()
        quantised_checkpoint.Pair("pack-quantized").save(checkpoint)
        (checkpoint / "tokenizer.json").write_bytes(
            (gguf_writer.DEMO_MODEL / "tokenizer.json").read_bytes())
        for model, reason in ((file, "tensor 'blk.0.attn_k.weight' is Q4_0"),
                              (checkpoint, "has a quantization_config")):
            with self.subTest(model=model.name):
                said = self.refusal(model, "--weights=int4")
                self.assertIn(f"--calibration={self.text}: --weights=int4: ", said)
                self.assertIn(reason, said)
                self.assertIn("--weights=auto serves these as they are", said)
                self.assertIn("--calibration is for --weights=int4", self.refusal(model))


if __name__ == "__main__":
    unittest.main()
