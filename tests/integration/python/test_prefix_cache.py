"""The prefix cache: which prompts hit, what is reported, and that results do not depend on it."""

import random
import tempfile
import unittest

from support import Answer, ServerTest, bypassing, request, request_of_ids
from test_chat import TEMPLATE, model_with_template
from tlm_server import TlmServer

from tlm.v1 import generate_pb2

BLOCK = 64  # tokens
VOCABULARY = 2048
SAMPLED = {"temperature": 1, "seed": 11}


def new_ids(count, rnd=random.Random(3)):
    """Token ids that no request has begun with before."""
    return [rnd.randrange(1, VOCABULARY) for _ in range(count)]


def whole_blocks(tokens):
    return tokens // BLOCK * BLOCK


def with_logprobs(asked):
    asked.output.top_logprobs = 3
    return asked


class PrefixCacheTest(ServerTest):

    def hit_of(self, answer):
        cached = answer.started.cached_prompt_tokens
        self.assertEqual(answer.summary.usage.cached_prompt_tokens, cached)
        return cached

    def test_a_hit_shows_in_no_token_and_no_logprob(self):
        for sampling in ({"temperature": 0}, SAMPLED, {**SAMPLED, "repetition_penalty": 1.3}):
            with self.subTest(sampling):
                asked = with_logprobs(request_of_ids(new_ids(200), 40, **sampling))
                cold = self.generate(asked)
                warm = self.generate(asked)
                self.assertEqual(self.hit_of(cold), 0)
                self.assertEqual(self.hit_of(warm), 192)
                self.assertEqual(warm.tokens, cold.tokens)
                self.assertEqual(warm.text, cold.text)

    def test_conversations_hit_what_was_generated_too(self):
        conversation = new_ids(70)
        computed = 0
        for _ in range(4):
            answer = self.generate(request_of_ids(conversation, max_new_tokens=50, **SAMPLED))
            self.assertEqual(self.hit_of(answer), whole_blocks(computed))
            fresh = self.generate(bypassing(request_of_ids(conversation, 50, **SAMPLED)))
            self.assertEqual(answer.ids, fresh.ids)
            computed = len(conversation) + len(answer.ids) - 1  # its last token was only drawn
            conversation = conversation + answer.ids + new_ids(20)


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
            self.assertGreaterEqual(cached, whole_blocks(before - BLOCK // 2))
            self.assertGreaterEqual(cached, 2 * BLOCK)


class SmallCacheTest(unittest.TestCase):

    def test_old_prompts_make_room_for_new_ones(self):
        rnd = random.Random(5)
        prompts = [[rnd.randrange(1, VOCABULARY) for _ in range(300)] for _ in range(12)]
        with TlmServer("--kv_cache_bytes=8MiB") as server:
            def generate(ids):
                asked = request_of_ids(ids, 8, **SAMPLED)
                return Answer(list(server.model.Generate(asked, timeout=60)))

            cold = [generate(ids) for ids in prompts]
            self.assertEqual({a.started.cached_prompt_tokens for a in cold}, {0})
            latest = generate(prompts[-1])
            self.assertEqual(latest.started.cached_prompt_tokens, 256)
            oldest = generate(prompts[0])
            self.assertEqual(oldest.started.cached_prompt_tokens, 0)
            self.assertEqual(latest.ids, cold[-1].ids)
            self.assertEqual(oldest.ids, cold[0].ids)


if __name__ == "__main__":
    unittest.main()
