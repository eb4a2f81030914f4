"""LanguageModel.Score beside Forward and Generate."""

import array
import concurrent.futures
import unittest

import grpc

from support import PROMPT, ServerTest, request

from tlm.v1 import forward_pb2, score_pb2

LOG_PROBABILITIES = forward_pb2.ROW_VALUES_LOG_PROBABILITIES


class ScoreTest(ServerTest):

    def score(self, **fields):
        return self.model.Score(score_pb2.ScoreRequest(**fields), timeout=60)

    def logprobs(self, prompt, continuation):
        """Of the continuation's tokens, from the rows of Forward."""
        ids = prompt + continuation
        forward = forward_pb2.ForwardRequest(all=True, values=LOG_PROBABILITIES,
                                             sequences=[{"ids": ids}])
        values = array.array("f", b"".join(m.rows.data for m in self.model.Forward(forward)))
        width = len(values) // len(ids)
        return [values[(len(prompt) + i - 1) * width + id_] for i, id_ in enumerate(continuation)]

    def test_scores_are_those_of_forward(self):
        prompt = self.tokenize(PROMPT)
        continuations = [[7], [5, 6, 7, 8, 9], self.tokenize(" there was a prince"),
                         [1 + i % 900 for i in range(150)]]
        response = self.score(prompt=PROMPT, top_logprobs=3,
                              continuations=[{"token_ids": {"ids": c}} for c in continuations])
        self.assertEqual(len(response.scores), len(continuations))
        for score, ids in zip(response.scores, continuations):
            self.assertEqual([token.id for token in score.tokens], ids)
            self.assertEqual(score.token_count, len(ids))
            for token, expected in zip(score.tokens, self.logprobs(prompt, ids)):
                self.assertAlmostEqual(token.logprob, expected, places=4)
                self.assertEqual(len(token.top), 3)
                self.assertGreaterEqual(token.rank, 1)
            total = 0.0
            for token in score.tokens:
                total += token.logprob
            self.assertEqual(score.sum_logprob, total)
        self.assertEqual(response.usage.prompt_tokens,
                         len(prompt) + sum(len(ids) for ids in continuations))
        self.assertEqual(response.usage.completion_tokens, 0)

    def test_greedy_continuations_are_told(self):
        answer = self.generate(request(temperature=0, max_new_tokens=12))
        other = answer.ids[:-1] + [answer.ids[-1] ^ 1]
        response = self.score(prompt=PROMPT, continuations=[
            {"token_ids": {"ids": answer.ids}}, {"token_ids": {"ids": other}},
            {"token_ids": {"ids": answer.ids[:5]}}])
        self.assertEqual([score.is_greedy for score in response.scores], [True, False, True])
        self.assertGreater(response.scores[0].sum_logprob, response.scores[1].sum_logprob)

    def test_text_is_tokenized_on_its_own(self):
        text = " there was"
        response = self.score(prompt=PROMPT, continuations=[{"text": text}])
        self.assertEqual([token.id for token in response.scores[0].tokens], self.tokenize(text))
        self.assertEqual(b"".join(token.bytes for token in response.scores[0].tokens),
                         text.encode())

    def test_order_and_company_change_nothing(self):
        texts = [" a", " prince", " the war and the peace", "\n", " of"]
        alone = [self.score(prompt=PROMPT, continuations=[{"text": text}]).scores[0]
                 for text in texts]
        together = self.score(prompt=PROMPT, continuations=[{"text": text} for text in texts])
        self.assertEqual(list(together.scores), alone)
        turned = self.score(prompt=PROMPT, continuations=[{"text": t} for t in reversed(texts)])
        self.assertEqual(list(turned.scores), alone[::-1])

    def test_many_calls_at_once(self):
        expected = self.score(prompt=PROMPT, continuations=[{"text": " a b c"}]).scores[0]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(self.score, prompt=PROMPT, continuations=[{"text": " a b c"}] * 3)
                     for _ in range(16)]
            for call in calls:
                self.assertEqual(list(call.result().scores), [expected] * 3)

    def test_cancelled_calls_leave_the_server_alone(self):
        long = [{"token_ids": {"ids": [5 + i] * 800}} for i in range(40)]
        for _ in range(3):
            call = self.model.Score.future(
                score_pb2.ScoreRequest(prompt=PROMPT, continuations=long))
            call.cancel()
            with self.assertRaises(grpc.FutureCancelledError):
                call.result()
        self.assert_fails(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            lambda: self.model.Score(score_pb2.ScoreRequest(prompt=PROMPT, continuations=long),
                                     timeout=0.05))
        self.assertEqual(len(self.score(prompt=PROMPT, continuations=[{"text": "a"}]).scores), 1)


if __name__ == "__main__":
    unittest.main()
