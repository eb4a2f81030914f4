"""Streams that are interrupted and continued, by the same server or by another replica."""

import unittest

from support import ServerTest, request
from tlm_server import TlmServer

from tlm.v1 import common_pb2, generate_pb2


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
        cls.other = cls.enterClassContext(TlmServer("--max_batch_tokens=7", "--prefix_cache=false"))

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


if __name__ == "__main__":
    unittest.main()
