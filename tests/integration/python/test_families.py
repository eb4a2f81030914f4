"""The course's families and every config field of the generic one, served from random checkpoints,
beside an implementation that shares nothing with the server."""

import pathlib
import tempfile
import unittest

import float64_model
from support import logits
from tlm_server import TlmServer

from tlm.v1 import model_info_pb2

SHAPE = {"vocab_size": 61, "context_length": 96, "d_model": 24, "num_layers": 2, "num_heads": 4,
         "d_ff": 37}
TOKENS = 75  # more than a block of the KV cache

CONFIGS = {
    "cs336": {**SHAPE, "rope_theta": 10000.0},
    "cs336 by its type": {**SHAPE, "model_type": "cs336", "rope_theta": 500.0},
    "cs336 without positions": {**SHAPE},
    "cs336, silu": {**SHAPE, "rope_theta": 10000.0, "ffn_type": "silu"},
    "cs336, relu": {**SHAPE, "rope_theta": 10000.0, "ffn_type": "relu"},
    "qwen3_mha": {"model_type": "qwen3_mha", "d_model": 24, "n_head": 3, "d_hidden": 41,
                  "n_layer": 2, "vocab_size": 61, "max_seq_len": 96, "rope_theta": 10000.0},
    "second course variant": {"norm_eps_placement": "outside", "norm_eps": 0.01, "rope_theta": 1e4,
                              "ffn_up": "w2", "ffn_down": "w3"},
    "layer norm, learned, biases": {"norm": "layer", "rope_layout": "none", "learned_positions": True,
                                    "qkv_bias": True, "attention_output_bias": True,
                                    "ffn_bias": True, "ffn_type": "gelu",
                                    "tie_word_embeddings": True},
    "layer norm, eps outside": {"norm": "layer", "norm_eps": 0.03, "norm_eps_placement": "outside",
                                "rope_layout": "half", "rope_theta": 100.0, "ffn_type": "gelu_tanh"},
    "grouped heads, own head_dim, QK-norm": {"num_kv_heads": 2, "head_dim": 10, "qk_norm": True,
                                             "rope_layout": "half", "ffn_gate": "w3",
                                             "ffn_up": "w1"},
    "one kv head, odd head_dim, no positions": {"num_kv_heads": 1, "head_dim": 7,
                                                "rope_layout": "none", "ffn_type": "relu"},
    "learned beside rotary, window": {"learned_positions": True, "rope_layout": "interleaved",
                                      "sliding_window": 9, "qkv_bias": True, "qk_norm": True,
                                      "norm_eps_placement": "outside", "norm_eps": 0.02},
}


def generic(config):
    """The shape and type are written once."""
    if "d_model" in config:
        return config
    return {"model_type": "transformer_lm", **SHAPE, **config}


class FamiliesTest(unittest.TestCase):

    def check(self, config, prefix=""):
        fields = float64_model.ConfigFields(config)
        tensors = float64_model.random_tensors(fields, seed=7)
        ids = [(17 * i + 5) % fields.vocab for i in range(TOKENS)]
        expected = float64_model.logits(config, tensors, ids)
        with tempfile.TemporaryDirectory() as name:
            float64_model.save(pathlib.Path(name), config, tensors, prefix)
            with TlmServer(f"--model={name}") as server:
                actual, = logits(server.model, [ids])
                info = server.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        values = [value for row in expected for value in row]
        spread = max(values) - min(values)
        self.assertEqual(len(actual), len(expected))
        error = max(abs(a - e) for got, want in zip(actual, expected)
                    for a, e in zip(got, want, strict=True))
        self.assertLess(error, 1e-5 * spread)
        self.assertEqual(info.parameters.total, sum(len(tensor) for tensor in tensors.values()))

    def test_saved_from_a_compiled_model(self):
        self.check(CONFIGS["cs336"], prefix="_orig_mod.")


def add_tests():
    for name, config in CONFIGS.items():
        def test(self, config=generic(config)):
            self.check(config)
        setattr(FamiliesTest, "test_" + "".join(c if c.isalnum() else "_" for c in name), test)


add_tests()
