"""The prefix cache: which prompts hit, what is reported, and that results do not depend on it."""

import concurrent.futures
import random
import tempfile
import unittest

from support import Answer, ServerTest, bypassing, output_of, request, request_of_ids
from test_chat import TEMPLATE, model_with_template
from tlm_server import TlmServer

from tlm.v1 import common_pb2, forward_pb2, generate_pb2, score_pb2

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


def salted(asked, salt):
    asked.cache.cache_salt = salt
    return asked


class PrefixCacheTest(ServerTest):

    def hit(self, asked):
        """The cached tokens that the whole answer reports."""
        return self.hit_of(self.generate(asked))

    def hit_of(self, answer):
        cached = answer.started.cached_prompt_tokens
        self.assertEqual(answer.summary.usage.cached_prompt_tokens, cached)
        return cached

    def test_same_prompt_hits_all_whole_blocks_before_its_last_token(self):
        for tokens in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1, 5 * BLOCK + 17):
            with self.subTest(tokens=tokens):
                ids = new_ids(tokens)
                self.assertEqual(self.hit(request_of_ids(ids, max_new_tokens=2)), 0)
                self.assertEqual(self.hit(request_of_ids(ids, max_new_tokens=2)),
                                 whole_blocks(tokens - 1))

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

    def test_a_bypass_neither_hits_nor_publishes(self):
        asked = request_of_ids(new_ids(200), **SAMPLED)
        alone = self.generate(bypassing(request_of_ids(asked.prompt_token_ids.ids, **SAMPLED)))
        self.assertEqual(self.hit_of(alone), 0)
        first = self.generate(asked)
        self.assertEqual(self.hit_of(first), 0)
        again = self.generate(bypassing(request_of_ids(asked.prompt_token_ids.ids, **SAMPLED)))
        self.assertEqual(self.hit_of(again), 0)
        self.assertEqual(self.hit(asked), 192)
        self.assertEqual(first.ids, alone.ids)
        self.assertEqual(again.ids, alone.ids)

    def test_salts_do_not_meet(self):
        ids = new_ids(130)
        self.assertEqual(self.hit(request_of_ids(ids)), 0)
        for salt in ("one", "two"):
            self.assertEqual(self.hit(salted(request_of_ids(ids), salt)), 0)
            self.assertEqual(self.hit(salted(request_of_ids(ids), salt)), 128)
        self.assertEqual(self.hit(request_of_ids(ids)), 128)

    def test_prompts_hit_as_far_as_they_begin_alike(self):
        system = new_ids(150)
        self.generate(request_of_ids(system + new_ids(60)))
        for _ in range(3):
            self.assertEqual(self.hit(request_of_ids(system + new_ids(60))), 128)
        self.assertEqual(self.hit(request_of_ids(system[:100])), 64)
        self.assertEqual(self.hit(request_of_ids(system[:-1] + new_ids(1))), 128)
        self.assertEqual(self.hit(request_of_ids(new_ids(1) + system[1:])), 0)
        self.assertEqual(self.hit(request_of_ids(system[64:])), 0)

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

    def test_outputs_of_one_request_hit_and_publish(self):
        asked = request_of_ids(new_ids(130), max_new_tokens=70, num_sequences=3, **SAMPLED)
        cold = list(self.model.Generate(asked, timeout=60))
        warm = list(self.model.Generate(asked, timeout=60))
        self.assertEqual(self.hit_of(output_of(cold, 0)), 0)
        self.assertEqual(self.hit_of(output_of(warm, 0)), 128)
        prompt = list(asked.prompt_token_ids.ids)
        for index in range(3):
            output = output_of(cold, index)
            self.assertEqual(output_of(warm, index).ids, output.ids)
            self.assertEqual(self.hit(request_of_ids(prompt + output.ids)), 192)

    def test_prompts_that_arrive_together_share_one_computation(self):
        asked = request_of_ids(new_ids(300), **SAMPLED)
        alone = self.generate(bypassing(request_of_ids(asked.prompt_token_ids.ids, **SAMPLED)))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(self.generate, [asked] * 8))
        for answer in answers:
            self.assertEqual(answer.ids, alone.ids)
            self.assertEqual(self.hit_of(answer) % BLOCK, 0)
        self.assertEqual(self.hit(asked), 256)

    def test_prompt_logprobs_are_all_computed(self):
        ids = new_ids(200)
        self.generate(request_of_ids(ids))
        asked = request_of_ids(ids)
        asked.output.prompt_logprobs = True
        answer = self.generate(asked)
        self.assertEqual(self.hit_of(answer), 0)
        self.assertEqual(len(answer.prompt), 200)
        fresh = bypassing(request_of_ids(ids))
        fresh.output.prompt_logprobs = True
        self.assertEqual(answer.prompt, self.generate(fresh).prompt)

    def forward(self, ids, **positions):
        """The rows' bytes and the usage."""
        asked = forward_pb2.ForwardRequest(sequences=[common_pb2.TokenIds(ids=ids)], **positions)
        messages = list(self.model.Forward(asked, timeout=60))
        data = b"".join(m.rows.data for m in messages if m.HasField("rows"))
        return data, messages[-1].summary.usage

    def test_forward_hits_before_its_first_row(self):
        ids = new_ids(200)
        cold, usage = self.forward(ids, last=True)
        self.assertEqual(usage.cached_prompt_tokens, 0)
        warm, usage = self.forward(ids, last=True)
        self.assertEqual(usage.cached_prompt_tokens, 192)
        self.assertEqual(warm, cold)
        every, usage = self.forward(ids, all=True)
        self.assertEqual(usage.cached_prompt_tokens, 0)
        self.assertEqual(every[-len(cold):], cold)
        indices = forward_pb2.PositionIndices(indices=[100, 150])
        some, usage = self.forward(ids, indices=indices)
        self.assertEqual(usage.cached_prompt_tokens, 64)
        self.assertEqual(some[:len(cold)], every[100 * len(cold):101 * len(cold)])

    def test_score_hits_its_prompt(self):
        prompt = new_ids(200)

        def score():
            asked = score_pb2.ScoreRequest(prompt_token_ids=common_pb2.TokenIds(ids=prompt))
            for continuation in continuations:
                asked.continuations.add().token_ids.ids.extend(continuation)
            return self.model.Score(asked, timeout=60)

        continuations = [new_ids(5), new_ids(100), new_ids(70)]
        cold = score()
        warm = score()
        self.assertEqual(cold.usage.cached_prompt_tokens, 0)
        self.assertEqual(warm.usage.cached_prompt_tokens, 192)
        self.assertEqual(warm.scores, cold.scores)
        self.assertEqual(self.hit(request_of_ids(prompt)), 192)


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


class NoCacheTest(unittest.TestCase):

    def test_without_a_cache_nothing_hits(self):
        asked = request_of_ids(new_ids(200), **SAMPLED)
        with TlmServer() as server:
            cached = Answer(list(server.model.Generate(asked, timeout=60)))
        with TlmServer("--prefix_cache=false") as server:
            for _ in range(2):
                answer = Answer(list(server.model.Generate(asked, timeout=60)))
                self.assertEqual(answer.started.cached_prompt_tokens, 0)
                self.assertEqual(answer.ids, cached.ids)


if __name__ == "__main__":
    unittest.main()
