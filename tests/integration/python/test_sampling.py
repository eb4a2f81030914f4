"""How tokens are drawn: every parameter beside the rows of Forward, several outputs, scores."""

import array
import concurrent.futures
import json
import math
import unittest

from support import PROMPT, ServerTest, output_of, request
from tlm_server import DEMO_MODEL

from tlm.v1 import common_pb2, forward_pb2, model_info_pb2

GREEDY = {"temperature": 0}
PROCESSED = common_pb2.LOGPROBS_MODE_PROCESSED


def softmax(values):
    """Probabilities of a list of logits, -infinity among them."""
    largest = max(values)
    weights = [math.exp(value - largest) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


class SamplingTest(ServerTest):

    def rows(self, ids):
        """The logits after every token of `ids`."""
        forward = forward_pb2.ForwardRequest(all=True, sequences=[{"ids": ids}])
        data = b"".join(m.rows.data for m in self.model.Forward(forward, timeout=60))
        values = array.array("f", data)
        width = len(values) // len(ids)
        return [values[i * width:(i + 1) * width] for i in range(len(ids))]

    def ask(self, max_new_tokens=24, **sampling):
        return self.generate(request(max_new_tokens=max_new_tokens, **sampling))

    def first_distribution(self, **sampling):
        """What the first token is drawn from: {id: probability} as the server tells it."""
        asked = request(max_new_tokens=1, **sampling)
        asked.output.top_logprobs = 20
        asked.output.logprobs_mode = PROCESSED
        return {top.id: math.exp(top.logprob) for top in self.generate(asked).tokens[0].top}


class StepsTest(SamplingTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.prompt_ids = self.tokenize(PROMPT)
        cls.logits = list(self.rows(cls.prompt_ids)[-1])
        cls.order = sorted(range(len(cls.logits)), key=lambda i: (-cls.logits[i], i))

    def assert_distribution(self, expected, **sampling):
        """The server's 20 most likely tokens beside those of `expected`, a list of logits."""
        seen = self.first_distribution(**sampling)
        probabilities = softmax(expected)
        order = sorted(range(len(expected)), key=lambda i: (-expected[i], i))
        for i in order[:10]:
            if probabilities[i] > 1e-6:
                self.assertAlmostEqual(seen.get(i, 0), probabilities[i], places=4)
        self.assertLessEqual(sum(seen.values()), 1 + 1e-4)

    def kept(self, ids, temperature=1.0):
        return [x / temperature if i in ids else -math.inf for i, x in enumerate(self.logits)]

    def test_temperature(self):
        self.assert_distribution([x / 0.5 for x in self.logits], temperature=0.5, top_p=1)

    def test_top_k(self):
        self.assert_distribution(self.kept(set(self.order[:5])), temperature=1, top_p=1, top_k=5)

    def test_top_p(self):
        total, kept = 0.0, set()
        probabilities = softmax(self.logits)
        for i in self.order:
            if total >= 0.5:
                break
            kept.add(i)
            total += probabilities[i]
        self.assert_distribution(self.kept(kept), temperature=1, top_p=0.5)

    def test_min_p(self):
        floor = max(self.logits) + math.log(0.2)
        kept = {i for i, x in enumerate(self.logits) if x >= floor}
        self.assert_distribution(self.kept(kept), temperature=1, top_p=1, min_p=0.2)

    def test_typical_p(self):
        probabilities = softmax(self.logits)
        entropy = -math.fsum(p * math.log(p) for p in probabilities)
        total, kept = 0.0, set()
        for i in sorted(range(len(probabilities)),
                        key=lambda i: abs(-math.log(probabilities[i]) - entropy)):
            if total >= 0.3:
                break
            kept.add(i)
            total += probabilities[i]
        self.assert_distribution(self.kept(kept), temperature=1, top_p=1, typical_p=0.3)

    def test_logit_bias(self):
        biased = list(self.logits)
        biased[self.order[0]] -= 5
        biased[7] += 12
        self.assert_distribution(biased, temperature=1, top_p=1,
                                 logit_bias={self.order[0]: -5, 7: 12})

    def test_allowed_and_banned_ids(self):
        allowed = self.order[3:12]
        kept = set(allowed) - {allowed[0]}
        self.assert_distribution(self.kept(kept), temperature=1, top_p=1,
                                 allowed_token_ids=allowed, banned_token_ids=[allowed[0]])
        for seed in range(3):
            answer = self.ask(seed=seed, temperature=3, allowed_token_ids=allowed)
            self.assertLessEqual(set(answer.ids), set(allowed))
            answer = self.ask(seed=seed, banned_token_ids=self.order[:500])
            self.assertFalse(set(answer.ids) & set(self.order[:500]))

    def test_greedy_with_penalties_is_the_argmax_of_penalised_rows(self):
        penalties = {"repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4}
        answer = self.ask(**GREEDY, **penalties)
        self.assertNotEqual(answer.ids, self.ask(**GREEDY).ids)
        rows = self.rows(self.prompt_ids + answer.ids)
        for i, drawn in enumerate(answer.ids):
            logits = list(rows[len(self.prompt_ids) + i - 1])
            output = answer.ids[:i]
            for seen in set(self.prompt_ids + output):
                logits[seen] = (logits[seen] / 1.3 if logits[seen] > 0 else logits[seen] * 1.3)
                times = output.count(seen)
                logits[seen] -= 0.4 * times + (0.7 if times else 0)
            self.assertAlmostEqual(logits[drawn], max(logits), places=4)

    def test_min_new_tokens_holds_the_end_back(self):
        eos = json.loads((DEMO_MODEL / "config.json").read_text())["eos_token_id"]
        asked = request(max_new_tokens=30, logit_bias={eos: 100}, seed=1)
        asked.stopping.ignore_eos = False
        answer = self.generate(asked)
        self.assertEqual(answer.summary.usage.completion_tokens, 1)
        self.assertEqual(answer.finished.eos_token_id, eos)
        asked.stopping.min_new_tokens = 10
        answer = self.generate(asked)
        self.assertEqual(answer.summary.usage.completion_tokens, 11)
        self.assertNotIn(eos, answer.ids)


class LogprobsTest(SamplingTest):

    def test_processed_probabilities_are_of_what_is_kept(self):
        asked = request(max_new_tokens=12, temperature=0.7, top_k=5, top_p=1, seed=3)
        asked.output.top_logprobs = 7
        asked.output.logprobs_mode = PROCESSED
        answer = self.generate(asked)
        for token in answer.tokens:
            self.assertAlmostEqual(sum(math.exp(top.logprob) for top in token.top), 1, places=4)
            self.assertEqual([top.logprob for top in token.top[5:]], [-math.inf] * 2)
            own = token.top[token.rank - 1]
            self.assertEqual((own.id, own.logprob), (token.id, token.logprob))
        # What is told of the tokens does not change them.
        self.assertEqual(answer.ids, self.ask(12, temperature=0.7, top_k=5, top_p=1, seed=3).ids)

    def test_prompt_tokens_have_the_log_probabilities_of_forward(self):
        prompt = PROMPT * 40  # more than one step
        asked = request(prompt=prompt, max_new_tokens=3, seed=1)
        asked.output.prompt_logprobs = True
        asked.output.top_logprobs = 2
        answer = self.generate(asked)
        ids = self.tokenize(prompt)
        self.assertEqual([token.id for token in answer.prompt], ids)
        self.assertLess(max(i for i, kind in enumerate(answer.kinds) if kind == "prompt"),
                        answer.kinds.index("tokens"))
        first = answer.prompt[0]
        self.assertFalse(first.HasField("logprob") or first.HasField("rank") or first.top)
        forward = forward_pb2.ForwardRequest(
            all=True, values=forward_pb2.ROW_VALUES_LOG_PROBABILITIES, sequences=[{"ids": ids}])
        values = array.array("f", b"".join(m.rows.data for m in self.model.Forward(forward)))
        width = len(values) // len(ids)
        for i, token in enumerate(answer.prompt[1:]):
            row = values[i * width:(i + 1) * width]
            self.assertAlmostEqual(token.logprob, row[token.id], places=4)
            self.assertAlmostEqual(token.top[0].logprob, max(row), places=4)
            self.assertEqual(len(token.top), 2)
            above = sum(x > row[token.id] for x in row)
            self.assertGreaterEqual(token.rank, above + 1)
        self.assertEqual(answer.ids, self.generate(request(prompt=prompt, max_new_tokens=3,
                                                           seed=1)).ids)


class NumSequencesTest(SamplingTest):

    def outputs(self, count, **options):
        asked = request(num_sequences=count, temperature=1, **options)
        events = list(self.model.Generate(asked, timeout=60))
        return events, [output_of(events, index) for index in range(count)]

    def test_every_output_is_complete(self):
        events, outputs = self.outputs(4, seed=5)
        kinds = [event.WhichOneof("event") for event in events]
        for kind, count in (("started", 1), ("finished", 4), ("summary", 1)):
            self.assertEqual(kinds.count(kind), count)
        self.assertEqual((kinds[0], kinds[-1]), ("started", "summary"))
        self.assertEqual(events[0].started.effective.num_sequences, 4)
        for output in outputs:
            self.assertEqual(len(output.ids), 24)
            self.assertEqual(output.text, self.detokenize(output.ids))
        usage = events[-1].summary.usage
        self.assertEqual(usage.prompt_tokens, len(self.tokenize(PROMPT)))
        self.assertEqual(usage.completion_tokens, 4 * 24)

    def test_outputs_differ_and_repeat(self):
        _, outputs = self.outputs(4, seed=5)
        ids = [tuple(output.ids) for output in outputs]
        self.assertEqual(len(set(ids)), 4)
        _, again = self.outputs(4, seed=5)
        self.assertEqual([tuple(output.ids) for output in again], ids)
        _, fewer = self.outputs(2, seed=5)
        self.assertEqual([tuple(output.ids) for output in fewer], ids[:2])
        self.assertEqual(tuple(self.ask(seed=5, temperature=1).ids), ids[0])

    def test_prompts_of_every_length_are_shared_rightly(self):
        # Around the borders of KV blocks of 64 tokens.
        for length in (1, 63, 64, 65, 128, 130):
            with self.subTest(length):
                asked = request(temperature=1, seed=9, num_sequences=3, max_new_tokens=70)
                asked.prompt_token_ids.ids.extend(5 + i % 50 for i in range(length))
                events = list(self.model.Generate(asked, timeout=60))
                asked.sampling.num_sequences = 1
                self.assertEqual(output_of(events, 0).ids, self.generate(asked).ids)
                self.assertEqual(len({tuple(output_of(events, i).ids) for i in range(3)}), 3)

    def test_batch_mates_change_no_output(self):
        _, alone = self.outputs(3, seed=8)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            others = [pool.submit(self.outputs, 2, prompt="The " * n, seed=n) for n in range(1, 6)]
            _, together = self.outputs(3, seed=8)
            for other in others:
                other.result()
        self.assertEqual([output.ids for output in together], [output.ids for output in alone])

    def test_a_stop_string_ends_one_output(self):
        _, outputs = self.outputs(4, seed=5)
        stop = outputs[2].text[8:14]
        asked = request(num_sequences=4, temperature=1, seed=5)
        asked.stopping.stop_strings.append(stop)
        events = list(self.model.Generate(asked, timeout=60))
        for index, whole in enumerate(outputs):
            answer = output_of(events, index)
            self.assertEqual(answer.text, whole.text.partition(stop)[0])
            stopped = answer.finished.reason == common_pb2.FINISH_REASON_STOP
            self.assertEqual(stopped, stop in whole.text)

    def test_final_only_sends_one_tokens_event_an_output(self):
        asked = request(num_sequences=3, temperature=1, seed=5)
        asked.output.final_only = True
        events = list(self.model.Generate(asked, timeout=60))
        chunks = [event.tokens for event in events if event.HasField("tokens")]
        self.assertEqual(sorted(chunk.output_index for chunk in chunks), [0, 1, 2])


class DefaultsTest(SamplingTest):

    def test_generation_config_is_respected_and_visible(self):
        config = json.loads((DEMO_MODEL / "generation_config.json").read_text())
        defaults = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).default_sampling
        effective = self.ask(1).started.effective
        for name in ("temperature", "top_p"):
            self.assertAlmostEqual(getattr(defaults, name), config[name], places=6)
            self.assertEqual(getattr(effective, name), getattr(defaults, name))
        self.assertFalse(defaults.HasField("seed"))
        own = self.ask(1, temperature=1, top_p=1).started.effective
        self.assertEqual((own.temperature, own.top_p), (1, 1))

    def test_what_is_set_is_echoed(self):
        effective = self.ask(1, typical_p=0.5, repetition_penalty=1.5, presence_penalty=1,
                             frequency_penalty=-1, logit_bias={3: 2.0, 1: -1.0},
                             allowed_token_ids=[5, 9, 5, 7],
                             banned_token_ids=[9]).started.effective
        self.assertEqual(effective.typical_p, 0.5)
        self.assertEqual(effective.repetition_penalty, 1.5)
        self.assertEqual((effective.presence_penalty, effective.frequency_penalty), (1, -1))
        self.assertEqual(dict(effective.logit_bias), {1: -1.0, 3: 2.0})
        self.assertEqual(list(effective.allowed_token_ids), [5, 7, 9])
        self.assertEqual(list(effective.banned_token_ids), [9])


if __name__ == "__main__":
    unittest.main()
