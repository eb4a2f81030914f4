"""The prefix cache: which prompts hit, what is reported, and that results do not depend on it."""

import random
import tempfile
import unittest

from support import Answer, ServerTest, request, request_of_ids
from test_chat import TEMPLATE, model_with_template
from tlm_server import TlmServer

from tlm.v1 import generate_pb2

BLOCK = 64  # tokens
VOCABULARY = 2048
SAMPLED = {"temperature": 1, "seed": 11}


def new_ids(count, rnd=random.Random(3)):
    """Token ids that no request has begun with before."""
    return [rnd.randrange(1, VOCABULARY) for _ in range(count)]


class PrefixCacheTest(ServerTest):

    def test_a_hit_shows_in_no_token_and_no_logprob(self):
        for sampling in ({"temperature": 0}, SAMPLED, {**SAMPLED, "repetition_penalty": 1.3}):
            with self.subTest(sampling):
                asked = request_of_ids(new_ids(200), 40, **sampling)
                asked.output.top_logprobs = 3
                cold, warm = self.generate(asked), self.generate(asked)
                for answer, cached in ((cold, 0), (warm, 192)):
                    self.assertEqual(answer.started.cached_prompt_tokens, cached)
                    self.assertEqual(answer.summary.usage.cached_prompt_tokens, cached)
                self.assertEqual(warm.tokens, cold.tokens)
                self.assertEqual(warm.text, cold.text)


class ChatTest(unittest.TestCase):

    def test_every_turn_hits_the_one_before(self):
        messages = [("system", "Tell stories of ships and of the sea. " * 20)]
        sizes = []
        with tempfile.TemporaryDirectory() as name:
            with TlmServer(f"--model={model_with_template(name, TEMPLATE)}") as server:
                for question in ("Of the first?", "Of the next one?", "And of the last?"):
                    messages.append(("user", question))
                    asked = request(max_new_tokens=70, temperature=0)
                    asked.chat.CopyFrom(generate_pb2.ChatInput(
                        messages=[{"role": role, "content": text} for role, text in messages]))
                    answer = Answer(list(server.model.Generate(asked, timeout=60)))
                    messages.append(("assistant", answer.text))
                    sizes.append((answer.started.prompt_token_count,
                                  answer.started.cached_prompt_tokens))
        self.assertEqual(sizes[0][1], 0)
        for (before, _), (_, cached) in zip(sizes, sizes[1:]):
            # Where the answer begins, its text may be tokenized in another way than it was drawn.
            self.assertGreaterEqual(cached, (before - BLOCK // 2) // BLOCK * BLOCK)
            self.assertGreaterEqual(cached, 2 * BLOCK)


if __name__ == "__main__":
    unittest.main()
