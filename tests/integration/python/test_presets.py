"""Models without weights: `tlm info` offline, and servers that draw their own."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import grpc

from tlm_server import BIN_DIR, DEMO_MODEL, TlmServer

from tlm.v1 import common_pb2, generate_pb2, model_info_pb2

SMALL_CONFIG = {"model_type": "cs336", "vocab_size": 500, "context_length": 128, "d_model": 64,
                "num_layers": 2, "num_heads": 4, "d_ff": 96, "rope_theta": 10000.0}


def tlm_info(*flags, status=0):
    """What `tlm info` prints on standard output, or on standard error if it fails."""
    result = subprocess.run([BIN_DIR / "tlm", "info", *flags], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == status, (result.returncode, result.stderr)
    return result.stderr if status else result.stdout


def info_json(*flags):
    # 64-bit numbers are texts in protobuf's JSON.
    return json.loads(tlm_info("--json", *flags))


class OfflineInfoTest(unittest.TestCase):

    def test_directory_and_file_give_the_same(self):
        directory = info_json(DEMO_MODEL)
        self.assertEqual(directory, info_json(DEMO_MODEL / 'config.json'))
        config = json.loads((DEMO_MODEL / "config.json").read_text())
        self.assertEqual(directory["architecture"]["d_model"], config["hidden_size"])
        self.assertEqual(directory["identity"]["model_id"], "demo")

    def test_errors_are_one_line(self):
        for status, flags, text in (
                (1, ["--preset=gpt5"], "qwen3-8b"),
                (1, ["/nonexistent"], "/nonexistent"),
                (1, ["--preset=gpt2", "--prompt_tokens=16777217"], "flops.prompt_tokens"),
                (1, ["--preset=gpt2", "--new_tokens=4294967295"], "flops.new_tokens"),
                (2, ["--preset=gpt2", "x"], "DIRECTORY"),
                (2, ["--preset=gpt2", "--batch=-1"], "batch")):
            error = tlm_info(*flags, status=status)
            self.assertIn(text, error)
            self.assertEqual(error.count("\n"), 1, error)


class RandomWeightsTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name) / "small"
        self.directory.mkdir()
        self.write("config.json", json.dumps(SMALL_CONFIG))

    def write(self, name, text):
        (self.directory / name).write_text(text, encoding="utf-8")

    def answer(self, *flags):
        """ModelInfo of a server with these flags, and what it generates greedily."""
        with TlmServer(f"--model={self.directory}", *flags) as server:
            info = server.model.ModelInfo(model_info_pb2.ModelInfoRequest(include_tensors=True))
            events = server.model.Generate(generate_pb2.GenerateRequest(
                prompt_token_ids=common_pb2.TokenIds(ids=[1, 2, 3]),
                sampling=common_pb2.SamplingParams(temperature=0),
                stopping=generate_pb2.StoppingCriteria(max_new_tokens=16, ignore_eos=True),
                output=generate_pb2.OutputOptions(token_ids=True, text=False)), timeout=60)
            ids = [token.id for event in events for token in event.tokens.tokens]
        self.assertEqual(len(ids), 16)
        return info, ids

    def test_a_seed_names_the_weights(self):
        info, ids = self.answer("--random_weights=7")
        again, same_ids = self.answer("--random_weights=7", "--threads=1")
        other, other_ids = self.answer("--random_weights=8")
        self.assertEqual(ids, same_ids)
        self.assertEqual(info.determinism.fingerprint, again.determinism.fingerprint)
        self.assertNotEqual(ids, other_ids)
        self.assertNotEqual(info.determinism.fingerprint, other.determinism.fingerprint)
        self.assertEqual(info.identity.weights_sha256, "")
        self.assertEqual(info.identity.model_id, "small")

    def test_a_preset_is_served(self):
        with TlmServer("--model=", "--preset=gpt2", "--random_weights=0:bfloat16",
                       "--max_context=64") as server:
            info = server.model.ModelInfo(model_info_pb2.ModelInfoRequest(
                flops=model_info_pb2.FlopsQuery(prompt_tokens=16384)))
        self.assertEqual(info.identity.model_id, "gpt2")
        self.assertEqual(info.parameters.total, 124439808)
        self.assertEqual(info.flops.query.prompt_tokens, 16384)
        self.assertFalse(info.capabilities.tokenizer)
        self.assertTrue(info.architecture.learned_positions)

    def test_texts_beyond_a_small_vocabulary_are_refused(self):
        self.write("config.json", json.dumps(SMALL_CONFIG | {"vocab_size": 100}))
        self.write("tokenizer.json", (DEMO_MODEL / "tokenizer.json").read_text(encoding="utf-8"))
        with TlmServer(f"--model={self.directory}", "--random_weights=0") as server:
            with self.assertRaises(grpc.RpcError) as caught:
                list(server.model.Generate(generate_pb2.GenerateRequest(prompt="In the evening")))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("vocabulary has 100 tokens", caught.exception.details())
            answer = server.model.Generate(generate_pb2.GenerateRequest(
                prompt_token_ids=common_pb2.TokenIds(ids=[1, 99])), timeout=60)
            self.assertTrue(any(event.HasField("summary") for event in answer))


if __name__ == "__main__":
    unittest.main()
