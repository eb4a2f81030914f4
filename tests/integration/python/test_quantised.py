"""Checkpoints of AWQ, GPTQ and compressed-tensors, served beside the same weights as float32."""

import json
import math
import pathlib
import struct
import subprocess
import tempfile
import unittest

import quantised_checkpoint
from tlm_server import BIN_DIR, TlmServer  # makes the stubs importable

from tlm.v1 import common_pb2, forward_pb2, model_info_pb2

TOKENS = 75  # more than a block of the KV cache
IDS = [(17 * i + 5) % quantised_checkpoint.SHAPE["vocab_size"] for i in range(TOKENS)]


def logits(server):
    request = forward_pb2.ForwardRequest(sequences=[common_pb2.TokenIds(ids=IDS)], all=True)
    values = []
    for response in server.model.Forward(request, timeout=60):
        data = response.rows.data
        values += struct.unpack(f"<{len(data) // 4}f", data)
    return values


def info_of(server):
    return server.model.ModelInfo(model_info_pb2.ModelInfoRequest(include_tensors=True))


def distance(actual, expected):
    """Relative L2."""
    error = math.fsum((a - e) ** 2 for a, e in zip(actual, expected, strict=True))
    return math.sqrt(error / math.fsum(e * e for e in expected))


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
                expected = logits(server)
                parameters = info_of(server).parameters
            with TlmServer(f"--model={quantised}", "--weights=float32") as server:
                self.assertLess(distance(logits(server), expected), 1e-5)
                info = info_of(server)
            with TlmServer(f"--model={quantised}") as server:
                self.assertLess(distance(logits(server), expected), 0.2)  # 8-bit activations
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


if __name__ == "__main__":
    unittest.main()
