"""Logits that are not finite: a model with one token that makes infinities of whatever sees it."""

import concurrent.futures
import pathlib
import random
import tempfile
import unittest

import float64_model
from support import ServerTest, bypassing, request_of_ids, stop_report
from tlm_server import TlmServer

import grpc
from grpc.health.v1 import health_pb2

BLOCK = 64  # tokens
WIDTH = 24
VOCABULARY = 61
POISON = 17
CONFIG = {"model_type": "cs336", "vocab_size": VOCABULARY, "context_length": 1024, "d_model": WIDTH,
          "num_layers": 2, "num_heads": 4, "d_ff": 37, "rope_theta": 10000.0}
SAMPLED = {"temperature": 1, "seed": 5}


def poisoned_tensors():
    """Element 0 of the residual stream is zero for every token but one, and nothing adds to it.
    The first layer's values take it times 3e38, so that they overflow for this token alone."""
    tensors = float64_model.random_tensors(float64_model.ConfigFields(CONFIG), seed=9)
    embeddings = tensors["token_embeddings.weight"]
    for token in range(VOCABULARY):
        embeddings[token * WIDTH] = 100.0 if token == POISON else 0.0
    for layer in range(CONFIG["num_layers"]):
        for name, inputs in (("attn.output_proj", WIDTH), ("ffn.w2", CONFIG["d_ff"])):
            tensors[f"layers.{layer}.{name}.weight"][:inputs] = [0.0] * inputs
    tensors["layers.0.ln1.weight"][0] = 1.0
    tensors["layers.0.attn.v_proj.weight"][0] = 3e38
    return tensors


def clean_ids(count, rnd=random.Random(2)):
    """Token ids without the poisoned one that no request has begun with before."""
    return [rnd.choice([id for id in range(VOCABULARY) if id != POISON]) for _ in range(count)]


def without_poison(asked):
    """It is never drawn."""
    asked.sampling.banned_token_ids.append(POISON)
    asked.output.top_logprobs = 2
    return asked


class PoisonedTokenTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        float64_model.save(pathlib.Path(directory.name), CONFIG, poisoned_tensors())
        cls.server = cls.enterClassContext(TlmServer(f"--model={directory.name}"))
        cls.addClassCleanup(cls.check_that_all_blocks_came_back)
        cls.model = cls.server.model

    @classmethod
    def check_that_all_blocks_came_back(cls):
        report = stop_report(cls.server)
        assert report["kv_blocks_used"] == 0, report

    def tearDown(self):
        status = self.server.health.Check(health_pb2.HealthCheckRequest(), timeout=60).status
        self.assertEqual(status, health_pb2.HealthCheckResponse.SERVING)

    def assert_data_loss(self, asked):
        error = self.assert_fails(grpc.StatusCode.DATA_LOSS,
                                  lambda: self.model.Generate(asked, timeout=60))
        self.assertIn("logit", error.details())

    def cached(self, ids):
        """What a request that succeeds finds of these tokens."""
        return self.generate(without_poison(request_of_ids(ids))).started.cached_prompt_tokens

    def test_only_the_token_does_it(self):
        every = [id for id in range(VOCABULARY) if id != POISON]
        self.assertEqual(len(self.generate(without_poison(request_of_ids(every))).ids), 24)
        self.assert_data_loss(request_of_ids([POISON]))
        self.assert_data_loss(request_of_ids(every + [POISON]))
        self.assert_data_loss(request_of_ids([POISON] + every))

    def test_batch_mates_do_not_notice(self):
        prompts = [clean_ids(40 + 30 * n) for n in range(6)]

        def mate(ids):
            return self.generate(bypassing(without_poison(request_of_ids(ids, 60, **SAMPLED))))

        def offender(n):
            self.assert_data_loss(request_of_ids(clean_ids(10 + 20 * n) + [POISON] + clean_ids(n)))

        alone = [mate(ids) for ids in prompts]
        with concurrent.futures.ThreadPoolExecutor(2 * len(prompts)) as pool:
            offenders = [pool.submit(offender, n) for n in range(10)]
            together = list(pool.map(mate, prompts))
            for future in offenders:
                future.result()
        for answer, expected in zip(together, alone):
            self.assertEqual(answer.tokens, expected.tokens)

    def test_it_fails_again_behind_a_prefix_that_others_computed(self):
        prefix = clean_ids(3 * BLOCK)
        poisoned = prefix + [POISON] + clean_ids(100)
        self.cached(prefix + clean_ids(1))
        for _ in range(3):
            self.assert_data_loss(request_of_ids(poisoned))
        self.assertEqual(self.cached(prefix + clean_ids(1)), 3 * BLOCK)


if __name__ == "__main__":
    unittest.main()
