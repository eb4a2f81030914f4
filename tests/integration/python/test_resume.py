"""Streams that are interrupted and continued, by the same server or by another replica."""

import unittest

from support import ServerTest, request
from tlm_server import TlmServer

from tlm.v1 import common_pb2, generate_pb2, model_info_pb2


def continued(asked, started, ids):
    """The request that continues `asked` behind the tokens `ids`."""
    message = generate_pb2.GenerateRequest()
    message.CopyFrom(asked)
    message.sampling.seed = started.effective.seed
    message.resume.fingerprint = started.fingerprint
    message.resume.generated_token_ids.extend(ids)
    return message


class ResumeTest(ServerTest):
    """Cuts streams of one server behind every event and continues them on another."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Other chunks, other batches, no prefix cache: nothing of it shows.
        cls.other = TlmServer("--max_batch_tokens=7", "--prefix_cache=false").__enter__()
        cls.addClassCleanup(cls.other.close)

    def assert_continues(self, asked):
        """Every cut of the stream of `asked` continues it; the undisturbed answer."""
        whole = self.generate(asked)
        position = whole.started.prompt_token_count
        for cut in range(len(whole.chunks) + 1):
            with self.subTest(cut=cut, sampling=asked.sampling):
                sent = [token for chunk in whole.chunks[:cut] for token in chunk.tokens]
                text = "".join(chunk.text for chunk in whole.chunks[:cut])
                message = continued(asked, whole.started, [token.id for token in sent])
                events = list(self.other.model.Generate(message, timeout=60))
                kinds = [event.WhichOneof("event") for event in events]
                self.assertEqual(kinds[0], "started")
                self.assertEqual(kinds[-2:], ["finished", "summary"])
                chunks = [event.tokens for event in events if event.HasField("tokens")]
                if chunks:
                    self.assertEqual(chunks[0].position, position + len(sent))
                rest = [token for chunk in chunks for token in chunk.tokens]
                self.assertEqual(sent + rest, whole.tokens)
                self.assertEqual(text + "".join(chunk.text for chunk in chunks), whole.text)
                self.assertEqual(events[-2].finished, whole.finished)
                usage = events[-1].summary.usage
                self.assertEqual(usage.prompt_tokens, whole.summary.usage.prompt_tokens)
                self.assertEqual(usage.completion_tokens, whole.summary.usage.completion_tokens)
        return whole

    def test_sampled(self):
        for sampling, output in (
                ({"temperature": 1}, {"top_logprobs": 4}),
                ({"temperature": 1.2, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.3,
                  "presence_penalty": 0.5, "frequency_penalty": 0.7, "seed": 11},
                 {"top_logprobs": 2, "logprobs_mode": common_pb2.LOGPROBS_MODE_PROCESSED}),
                ({"temperature": 1, "seed": 8}, {"min_chunk_tokens": 3})):
            asked = request(max_new_tokens=20, **sampling)
            asked.output.MergeFrom(generate_pb2.OutputOptions(**output))
            self.assert_continues(asked)

    def test_greedy_without_a_seed(self):
        asked = request(temperature=0, max_new_tokens=16)
        whole = self.generate(asked)
        message = continued(asked, whole.started, whole.ids[:7])
        message.sampling.ClearField("seed")
        self.assertEqual(self.generate(message).ids, whole.ids[7:])

    def test_characters_split_over_tokens(self):
        asked = request(prompt="\u4f60\u597d\U0001f642", temperature=5, seed=3, max_new_tokens=40)
        self.assertIn("\ufffd", self.assert_continues(asked).text)

    def test_stop_strings(self):
        text = self.generate(request(temperature=1, seed=4, max_new_tokens=40)).text
        stop = text[len(text) // 2:][:6]
        begins_alike = [text[i:i + 3] + "\u00a7" for i in range(0, len(text) - 3, 5)][:8]
        for include in (False, True):
            with self.subTest(include=include):
                asked = request(temperature=1, seed=4, max_new_tokens=40)
                asked.stopping.stop_strings.extend([stop] + begins_alike)
                asked.stopping.include_stop_in_output = include
                whole = self.assert_continues(asked)
                self.assertEqual(whole.finished.stop_string, stop)

    def test_stop_tokens_and_ends_of_sequence(self):
        ids = self.generate(request(temperature=1, seed=6, max_new_tokens=24)).ids
        for include, min_new_tokens in ((False, 0), (True, 12)):
            asked = request(temperature=1, seed=6, max_new_tokens=24)
            asked.stopping.stop_token_ids.append(ids[10])
            asked.stopping.min_new_tokens = min_new_tokens
            asked.stopping.include_stop_in_output = include
            self.assert_continues(asked)
        asked = request(temperature=1, seed=6, max_new_tokens=24, logit_bias={0: 12.0})
        asked.stopping.ignore_eos = False
        asked.stopping.min_new_tokens = 5
        whole = self.assert_continues(asked)
        self.assertEqual(whole.finished.reason, common_pb2.FINISH_REASON_EOS)

    def test_constraints(self):
        schema = ('{"type": "object", "properties": {"first_name": {"type": "string", "maxLength": '
                  '9}, "is_member": {"type": "boolean"}}, "required": ["first_name", "is_member"], '
                  '"additionalProperties": false}')
        for ignore_eos in (False, True):
            asked = request(temperature=1, seed=4, max_new_tokens=60)
            asked.json_schema = schema
            asked.stopping.ignore_eos = ignore_eos
            whole = self.assert_continues(asked)
            self.assertIn(whole.finished.reason, (common_pb2.FINISH_REASON_EOS,
                                                  common_pb2.FINISH_REASON_CONSTRAINT_COMPLETE))
        asked = request(temperature=1, seed=4, max_new_tokens=40, repetition_penalty=1.2)
        asked.regex = "([a-z]+ )*"
        asked.output.top_logprobs = 1
        self.assert_continues(asked)

    def test_prompts_as_ids_and_a_full_context(self):
        limit = self.model.ModelInfo(
            model_info_pb2.ModelInfoRequest()).limits.max_context_tokens
        asked = request(temperature=1, seed=9)
        asked.prompt_token_ids.ids.extend([5 + i % 90 for i in range(limit - 5)])
        asked.stopping.ClearField("max_new_tokens")
        whole = self.assert_continues(asked)
        self.assertEqual(whole.finished.reason, common_pb2.FINISH_REASON_CONTEXT_LENGTH)

    def test_behind_a_cancelled_stream(self):
        asked = request(temperature=1, max_new_tokens=60)
        call = self.model.Generate(asked, timeout=60)
        started = next(call).started
        ids, text = [], ""
        for event in call:
            ids += [token.id for token in event.tokens.tokens]
            text += event.tokens.text
            if len(ids) >= 20:
                call.cancel()
                break
        rest = self.other.model.Generate(continued(asked, started, ids), timeout=60)
        for event in rest:
            ids += [token.id for token in event.tokens.tokens]
            text += event.tokens.text
        asked.sampling.seed = started.effective.seed
        whole = self.generate(asked)
        self.assertEqual((ids, text), (whole.ids, whole.text))

    def test_twice(self):
        asked = request(temperature=1, seed=2, max_new_tokens=30)
        whole = self.generate(asked)
        first = continued(asked, whole.started, whole.ids[:10])
        call = self.other.model.Generate(first, timeout=60)
        started = next(call).started
        ids = whole.ids[:10]
        while len(ids) < 15:
            ids += [token.id for token in next(call).tokens.tokens]
        call.cancel()
        self.assertEqual(self.generate(continued(asked, started, ids)).ids,
                         whole.ids[len(ids):])


if __name__ == "__main__":
    unittest.main()
