"""How tokens are drawn: every parameter beside the rows of Forward."""

import math
import unittest

from support import PROMPT, ServerTest, logits, request

from tlm.v1 import common_pb2


def softmax(values):
    """Probabilities of a list of logits, -infinity among them."""
    largest = max(values)
    weights = [math.exp(value - largest) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


class SamplingTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.prompt_ids = self.tokenize(PROMPT)
        cls.logits = logits(cls.model, [cls.prompt_ids])[0][-1]

    def kept(self, ids):
        return [x if i in ids else -math.inf for i, x in enumerate(self.logits)]

    def first_of(self, order, mass):
        """The first ids of the order whose probabilities reach `mass`."""
        probabilities, total, ids = softmax(self.logits), 0.0, set()
        for i in order:
            if total >= mass:
                break
            ids.add(i)
            total += probabilities[i]
        return ids

    def test_every_parameter_decides_what_a_token_is_drawn_from(self):
        row = self.logits
        order = sorted(range(len(row)), key=lambda i: -row[i])
        floor = max(row) + math.log(0.2)
        surprise = [-math.log(p) for p in softmax(row)]
        entropy = math.fsum(math.exp(-s) * s for s in surprise)
        typical = sorted(range(len(row)), key=lambda i: abs(surprise[i] - entropy))
        bias = {order[0]: -5, 7: 12}
        allowed = order[3:12]
        for sampling, expected in (
                ({"temperature": 0.5}, [x / 0.5 for x in row]),
                ({"top_k": 5}, self.kept(order[:5])),
                ({"top_p": 0.5}, self.kept(self.first_of(order, 0.5))),
                ({"min_p": 0.2}, [x if x >= floor else -math.inf for x in row]),
                ({"typical_p": 0.3}, self.kept(self.first_of(typical, 0.3))),
                ({"logit_bias": bias}, [x + bias.get(i, 0) for i, x in enumerate(row)]),
                ({"allowed_token_ids": allowed, "banned_token_ids": allowed[:1]},
                 self.kept(allowed[1:]))):
            with self.subTest(next(iter(sampling))):
                self.assert_distribution(expected, **{"temperature": 1, "top_p": 1} | sampling)

    def assert_distribution(self, expected, **sampling):
        """The likely tokens, as the server tells them, are those of `expected`, a list of logits."""
        asked = request(max_new_tokens=1, **sampling)
        asked.output.top_logprobs = 20
        asked.output.logprobs_mode = common_pb2.LOGPROBS_MODE_PROCESSED
        told = {top.id: math.exp(top.logprob) for top in self.generate(asked).tokens[0].top}
        likely = sorted(enumerate(softmax(expected)), key=lambda entry: -entry[1])[:10]
        for i, probability in likely:
            if probability > 1e-6:
                self.assertAlmostEqual(told.get(i, 0), probability, places=4)
        self.assertLessEqual(sum(told.values()), 1 + 1e-4)

    def test_greedy_with_penalties_is_the_argmax_of_penalised_rows(self):
        penalties = {"repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4}
        answer = self.generate(request(temperature=0, **penalties))
        self.assertNotEqual(answer.ids, self.generate(request(temperature=0)).ids)
        rows, = logits(self.model, [self.prompt_ids + answer.ids])
        for i, drawn in enumerate(answer.ids):
            row = rows[len(self.prompt_ids) + i - 1]
            output = answer.ids[:i]
            for seen in set(self.prompt_ids + output):
                row[seen] = row[seen] / 1.3 if row[seen] > 0 else row[seen] * 1.3
                times = output.count(seen)
                row[seen] -= 0.4 * times + (0.7 if times else 0)
            self.assertAlmostEqual(row[drawn], max(row), places=4)


if __name__ == "__main__":
    unittest.main()
