"""A server with a draft model: the bundled model is its own."""

import unittest

from tlm_server import DEMO_MODEL, TlmServer  # makes the stubs importable

from support import output_of, parts_of, request

from tlm.v1 import model_info_pb2


def answers(server):
    """Greedily and by chance, several outputs at a time."""
    for temperature in (0, 1):
        asked = request(max_new_tokens=100, temperature=temperature, seed=7, num_sequences=3)
        events = list(server.model.Generate(asked, timeout=60))
        yield [output_of(events, index).ids for index in range(3)]


def info_of(server):
    return server.model.ModelInfo(model_info_pb2.ModelInfoRequest())


class DraftModelTest(unittest.TestCase):

    def test_changes_neither_tokens_nor_the_fingerprint(self):
        with TlmServer("--speculation=off") as server:
            alone, expected = info_of(server), list(answers(server))
        self.assertEqual([len(ids) for ids in expected[1]], [100, 100, 100])
        self.assertEqual(alone.memory.draft_model, 0)
        self.assertFalse(alone.capabilities.HasField("speculation"))
        with TlmServer(f"--draft_model={DEMO_MODEL}") as server:
            info = info_of(server)
            self.assertEqual(list(answers(server)), expected)
            self.assertIn("draft model 'demo'", server.log())
        self.assertEqual(info.determinism.fingerprint, alone.determinism.fingerprint)
        self.assertEqual(info.capabilities.speculation.draft_model, "demo")
        memory = info.memory
        weights = sum(weights.bytes for weights in memory.weights)
        # Both have the same weights and as many keys and values.
        cache = memory.kv_blocks_total * memory.kv_block_tokens * memory.kv_bytes_per_token
        self.assertGreater(memory.draft_model, weights + cache)
        self.assertLess(memory.draft_model, weights + cache + memory.activation_arena
                        + memory.logits_workspace + memory.runtime_reserved + 1)
        self.assertEqual(memory.allocated_total, parts_of(memory))


if __name__ == "__main__":
    unittest.main()
