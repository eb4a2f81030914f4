"""LanguageModel.Generate: the shape of the stream, determinism, stopping, many streams at once."""

import concurrent.futures
import unittest

import grpc

from support import PROMPT, Answer, ServerTest, request

from tlm.v1 import common_pb2, forward_pb2, language_model_pb2_grpc, model_info_pb2


class StreamTest(ServerTest):

    def test_events_come_in_order(self):
        answer = self.generate(request(max_new_tokens=24))
        self.assertEqual(answer.kinds[0], "started")
        self.assertEqual(answer.kinds[-2:], ["finished", "summary"])
        self.assertEqual(set(answer.kinds[1:-2]), {"tokens"})
        for kind in ("started", "finished", "summary"):
            self.assertEqual(answer.kinds.count(kind), 1)

    def test_counts_agree(self):
        answer = self.generate(request(max_new_tokens=24))
        prompt_tokens = len(self.tokenize(PROMPT))
        self.assertEqual(len(answer.ids), 24)
        self.assertEqual(answer.started.prompt_token_count, prompt_tokens)
        self.assertEqual(answer.summary.usage.prompt_tokens, prompt_tokens)
        self.assertEqual(answer.summary.usage.completion_tokens, 24)
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_LENGTH)
        position = prompt_tokens
        for chunk in answer.chunks:
            if chunk.tokens:
                self.assertEqual(chunk.position, position)
                position += len(chunk.tokens)

    def test_text_is_the_text_of_the_ids(self):
        for seed in range(5):
            answer = self.generate(request(max_new_tokens=50, seed=seed, temperature=1.5))
            self.assertEqual(answer.text, self.detokenize(answer.ids))

    def test_token_ids_serve_as_prompt(self):
        by_text = self.generate(request(seed=1))
        by_ids = request(seed=1)
        by_ids.prompt_token_ids.ids.extend(self.tokenize(PROMPT))
        self.assertEqual(self.generate(by_ids).ids, by_text.ids)

    def test_text_alone_is_the_default(self):
        plain = request(seed=1)
        plain.ClearField("output")
        answer = self.generate(plain)
        self.assertEqual(answer.tokens, [])
        self.assertEqual(answer.text, self.generate(request(seed=1)).text)

    def test_final_only_sends_one_tokens_event(self):
        final = request(seed=1)
        final.output.final_only = True
        answer = self.generate(final)
        self.assertEqual(answer.kinds, ["started", "tokens", "finished", "summary"])
        self.assertEqual(answer.ids, self.generate(request(seed=1)).ids)

    def test_effective_parameters_are_echoed(self):
        answer = self.generate(request(temperature=0.5, top_k=7))
        effective = answer.started.effective
        self.assertEqual(effective.temperature, 0.5)
        self.assertEqual(effective.top_k, 7)
        for field in ("top_p", "min_p", "repetition_penalty", "seed", "num_sequences"):
            self.assertTrue(effective.HasField(field), field)

    def test_logprobs_are_those_of_forward(self):
        asked = request(temperature=0, max_new_tokens=6)
        asked.output.top_logprobs = 3
        answer = self.generate(asked)
        prompt_ids = self.tokenize(PROMPT)
        forward = forward_pb2.ForwardRequest(
            all=True, values=forward_pb2.ROW_VALUES_LOG_PROBABILITIES, top_k=3)
        forward.sequences.add().ids.extend(prompt_ids + answer.ids)
        lists = [top for message in self.model.Forward(forward) for top in message.rows.top]
        for token, expected in zip(answer.tokens, lists[len(prompt_ids) - 1:]):
            self.assertEqual([top.id for top in token.top], list(expected.ids))
            for top, logprob in zip(token.top, expected.values):
                self.assertAlmostEqual(top.logprob, logprob, places=4)
            self.assertEqual(token.rank, 1)
            self.assertEqual(token.id, token.top[0].id)
            self.assertEqual(token.logprob, token.top[0].logprob)


class DeterminismTest(ServerTest):

    def test_same_seed_gives_same_tokens(self):
        first = self.generate(request(seed=7, temperature=1))
        self.assertEqual(self.generate(request(seed=7, temperature=1)).ids, first.ids)
        self.assertNotEqual(self.generate(request(seed=8, temperature=1)).ids, first.ids)

    def test_seeds_use_all_64_bits(self):
        low = self.generate(request(seed=7, temperature=1))
        high = self.generate(request(seed=7 + (1 << 40), temperature=1))
        self.assertNotEqual(low.ids, high.ids)

    def test_chosen_seed_repeats_the_output(self):
        first = self.generate(request(temperature=1))
        seed = first.started.effective.seed
        self.assertEqual(self.generate(request(temperature=1, seed=seed)).ids, first.ids)

    def test_greedy_ignores_the_seed(self):
        first = self.generate(request(temperature=0, seed=1))
        self.assertEqual(self.generate(request(temperature=0, seed=2)).ids, first.ids)

    def test_batch_mates_change_nothing(self):
        alone = self.generate(request(temperature=1, seed=5, max_new_tokens=40))
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            others = [pool.submit(self.generate, request(prompt="The " * n, seed=n))
                      for n in range(1, 9)]
            together = self.generate(request(temperature=1, seed=5, max_new_tokens=40))
            for other in others:
                other.result()
        self.assertEqual(together.ids, alone.ids)


class StoppingTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.greedy = cls.generate(cls(), request(temperature=0, max_new_tokens=40))

    def test_stop_string_ends_the_text_before_it(self):
        text = self.greedy.text
        stop = text[len(text) // 2:len(text) // 2 + 5]
        asked = request(temperature=0, max_new_tokens=40)
        asked.stopping.stop_strings.append(stop)
        answer = self.generate(asked)
        self.assertEqual(answer.text, text[:text.index(stop)])
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_STOP)
        self.assertEqual(answer.finished.stop_string, stop)

        asked.stopping.include_stop_in_output = True
        self.assertEqual(self.generate(asked).text, text[:text.index(stop)] + stop)

    def test_stop_token_ends_the_output(self):
        stop = self.greedy.ids[10]
        asked = request(temperature=0, max_new_tokens=40)
        asked.stopping.stop_token_ids.append(stop)
        answer = self.generate(asked)
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_STOP)
        self.assertEqual(answer.finished.stop_token_id, stop)
        count = self.greedy.ids.index(stop)
        self.assertEqual([i for i in answer.ids if i != stop], self.greedy.ids[:count])

    def test_context_ends_the_output(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        asked = request(temperature=0)
        asked.prompt_token_ids.ids.extend([5] * (info.limits.max_context_tokens - 3))
        asked.stopping.ClearField("max_new_tokens")
        answer = self.generate(asked)
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_CONTEXT_LENGTH)
        self.assertEqual(len(answer.ids), 3)


class ManyStreamsTest(ServerTest):

    def test_cancelled_streams_leave_the_others_alone(self):
        streams = 32
        expected = {n: self.generate(request(seed=n, temperature=1, max_new_tokens=30)).ids
                    for n in range(streams) if n % 3 != 0}

        def run(n):
            if n % 3 != 0:
                return self.generate(request(seed=n, temperature=1, max_new_tokens=30)).ids
            call = self.model.Generate(request(seed=n, max_new_tokens=900), timeout=60)
            for event in call:
                if event.HasField("tokens"):
                    call.cancel()
                    break
            with self.assertRaises(grpc.RpcError) as caught:
                for _ in call:
                    pass
            return caught.exception.code()

        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            results = list(pool.map(run, range(streams)))
        for n, result in enumerate(results):
            self.assertEqual(result, expected.get(n, grpc.StatusCode.CANCELLED), n)

    def test_a_reader_that_stops_delays_no_other_call_and_loses_nothing(self):
        asked = request(seed=3, temperature=1, max_new_tokens=900)
        asked.output.top_logprobs = 20  # more than connections and token streams hold
        expected = self.generate(asked)
        connection = self.server.connect()
        self.addCleanup(connection.close)
        slow = language_model_pb2_grpc.LanguageModelStub(connection).Generate(asked, timeout=60)
        events = [next(slow)]
        self.assertTrue(events[0].HasField("started"))
        for seed in range(8):
            alone = self.generate(request(seed=seed, temperature=1, max_new_tokens=60))
            self.assertEqual(len(alone.ids), 60)
        answer = Answer(events + list(slow))
        self.assertEqual(answer.tokens, expected.tokens)
        self.assertEqual(answer.text, expected.text)

    def test_deadline_ends_a_running_stream(self):
        self.assert_fails(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            lambda: self.model.Generate(request(max_new_tokens=900), timeout=0.1))
        self.assertEqual(len(self.generate(request(max_new_tokens=3)).ids), 3)


if __name__ == "__main__":
    unittest.main()
