"""Checkpoints of AWQ, GPTQ and compressed-tensors, served beside the same weights as float32."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import quantised_checkpoint
from support import distance, logits
from tlm_server import BIN_DIR, TlmServer, run_server

import gguf_writer
from tlm.v1 import model_info_pb2

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


class CalibrationTest(unittest.TestCase):
    """The weights that a calibration is for are tested by tests/unit/server/loading."""

    def test_quantised_weights_are_refused_by_name(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        text, file, checkpoint = folder / "text.txt", folder / "model.gguf", folder / "checkpoint"
        text.write_text("The prince said that he would come in the evening. " * 40, encoding="utf-8")
        file.write_bytes(gguf_writer.small_llama().bytes())
        checkpoint.mkdir()
        quantised_checkpoint.Pair("pack-quantized").save(checkpoint)
        (checkpoint / "tokenizer.json").write_bytes(
            (gguf_writer.DEMO_MODEL / "tokenizer.json").read_bytes())
        for model, reason in ((file, "tensor 'blk.0.attn_k.weight' is Q4_0"),
                              (checkpoint, "has a quantization_config")):
            with self.subTest(model=model.name):
                status, said = run_server(f"--model={model}", "--port=0", "--weights=int4",
                                          f"--calibration={text}")
                self.assertEqual(status, 1, said)
                self.assertIn(f"--calibration={text}: --weights=int4: ", said)
                self.assertIn(reason, said)
                self.assertIn("--weights=auto serves these as they are", said)


if __name__ == "__main__":
    unittest.main()
