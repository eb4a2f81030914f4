"""LanguageModel.Verify: outputs of Generate are verified, and what differs is found."""

import json
import unittest

from support import Answer, ServerTest, output_of, request
from test_tools import ADD, TEMPLATE
from tlm_server import TlmServer

from tlm.v1 import common_pb2, generate_pb2, verify_pb2

Chat = generate_pb2.ChatInput
NO_REASON = common_pb2.FINISH_REASON_UNSPECIFIED


def claim_of(asked, answer, ids=None, **fields):
    """That `asked` gave the answer, or these ids."""
    claim = verify_pb2.VerifyRequest(request=asked, fingerprint=answer.started.fingerprint,
                                     claimed_token_ids=answer.ids if ids is None else ids, **fields)
    claim.request.sampling.seed = answer.started.effective.seed
    return claim


def tools_request(**fields):
    asked = request(max_new_tokens=300, seed=4)
    asked.stopping.ignore_eos = False
    asked.chat.messages.add(role="user", content="Add.")
    asked.chat.tools.add(name="add", parameters_json_schema=json.dumps(ADD))
    asked.chat.tool_choice.CopyFrom(Chat.ToolChoice(**fields))
    return asked


class VerifyTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Other chunks, other batches, no prefix cache: nothing of it shows.
        cls.other = cls.enterClassContext(TlmServer("--max_batch_tokens=7", "--prefix_cache=false"))

    def verify(self, claim):
        return self.model.Verify(claim, timeout=60)

    def assert_verified(self, claim, reason=NO_REASON):
        for model in (self.model, self.other.model):
            response = model.Verify(claim, timeout=60)
            self.assertFalse(response.HasField("mismatch"), response)
            self.assertTrue(response.verified)
            self.assertEqual(response.verified_token_count, len(claim.claimed_token_ids))
            self.assertEqual(response.finish_reason, reason)
        return response

    def assert_found(self, claim, index, token=None, finished=None):
        """The claim is wrong at `index`, where the server has this token, or has ended."""
        response = self.verify(claim)
        self.assertFalse(response.verified)
        self.assertEqual(response.verified_token_count, index)
        mismatch = response.mismatch
        self.assertEqual(mismatch.index, index)
        self.assertEqual(mismatch.claimed_token_id, claim.claimed_token_ids[index])
        if finished is None:
            self.assertEqual(mismatch.WhichOneof("drawn"), "token_id")
            self.assertEqual(mismatch.token_id, token)
        else:
            self.assertEqual(mismatch.WhichOneof("drawn"), "finished")
            self.assertEqual(mismatch.finished, finished)
        return response

    def check(self, asked, output=0):
        """The output of `asked` is verified whole and in part, and each forged token is found."""
        answer = output_of(list(self.model.Generate(asked, timeout=60)), output)
        whole = claim_of(asked, answer, output_index=output)
        if answer.finished.reason == common_pb2.FINISH_REASON_LENGTH:
            self.assert_verified(whole, common_pb2.FINISH_REASON_LENGTH)
        else:
            self.assert_verified(whole)
        half = len(answer.ids) // 2
        self.assert_verified(claim_of(asked, answer, answer.ids[:half], output_index=output))
        for index in {0, half, len(answer.ids) - 1}:
            forged = list(answer.ids)
            forged[index] ^= 1
            response = self.assert_found(claim_of(asked, answer, forged, output_index=output),
                                         index, token=answer.ids[index])
            self.assertEqual(response.mismatch.position,
                             answer.started.prompt_token_count + index)
        return answer

    def test_what_generate_gives_is_verified(self):
        for asked in (request(temperature=1, max_new_tokens=20),  # with a seed that the server chose
                      request(temperature=1.2, top_p=0.9, top_k=50, min_p=0.01, typical_p=0.95,
                              repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.7,
                              seed=11, max_new_tokens=40, logit_bias={5: 2.0},
                              banned_token_ids=[7, 8]),
                      request(temperature=0.8, seed=2, max_new_tokens=900)):  # several steps
            with self.subTest(asked.sampling):
                self.check(asked)

    def test_greedy_needs_no_seed(self):
        asked = request(temperature=0, max_new_tokens=40)
        answer = self.check(asked)
        claim = claim_of(asked, answer)
        claim.request.sampling.ClearField("seed")
        response = self.assert_verified(claim, common_pb2.FINISH_REASON_LENGTH)
        self.assertEqual(response.fingerprint, answer.started.fingerprint)
        self.assertTrue(response.request_id)
        self.assertEqual(response.usage.prompt_tokens, answer.started.prompt_token_count + 40)
        self.assertEqual(response.usage.completion_tokens, 0)
        claim.ClearField("fingerprint")
        self.assert_verified(claim, common_pb2.FINISH_REASON_LENGTH)

    def test_claims_of_another_request_are_not_verified(self):
        asked = request(temperature=1, max_new_tokens=30, seed=6)
        for change in ({"sampling": {"seed": 2}}, {"regex": "[0-9]*"}):
            claim = claim_of(asked, self.generate(asked))
            claim.request.MergeFrom(generate_pb2.GenerateRequest(**change))
            self.assertFalse(self.verify(claim).verified, change)

    def test_constraints(self):
        schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}},
                  "required": ["day"], "additionalProperties": False}
        for constraint in ({"json_schema": json.dumps(schema)}, {"choices": {"choices": ["kind", "proud"]}},
                           {"grammar": 'root ::= ("a" | "b" | " "){12}'}):
            with self.subTest(constraint=next(iter(constraint))):
                asked = request(temperature=1, seed=6, max_new_tokens=60)
                asked.stopping.ignore_eos = False
                asked.MergeFrom(generate_pb2.GenerateRequest(**constraint))
                answer = self.check(asked)
                if answer.finished.WhichOneof("matched") == "eos_token_id":
                    ended = answer.ids + [answer.finished.eos_token_id]
                    self.assert_verified(claim_of(asked, answer, ended),
                                         common_pb2.FINISH_REASON_EOS)

class VerifyChatTest(ServerTest):
    TEMPLATE = TEMPLATE

    def test_tool_calls(self):
        for asked in (tools_request(mode=Chat.ToolChoice.REQUIRED), tools_request(name="add"),
                      tools_request(mode=Chat.ToolChoice.AUTO)):
            answer = Answer(list(self.model.Generate(asked, timeout=60)))
            claim = claim_of(asked, answer)
            if answer.finished.WhichOneof("matched") == "eos_token_id":
                claim.claimed_token_ids.append(answer.finished.eos_token_id)
            response = self.model.Verify(claim, timeout=60)
            self.assertTrue(response.verified, response)
            self.assertEqual(response.finish_reason, answer.finished.reason)
            claim.claimed_token_ids[5] ^= 1
            response = self.model.Verify(claim, timeout=60)
            self.assertEqual(response.mismatch.index, 5)
            self.assertEqual(response.mismatch.token_id, answer.ids[5])

    def test_stop_strings_in_the_markup_of_regions(self):
        """With regions special tokens are text, in which stop strings are found."""
        asked = tools_request(name="add")
        whole = Answer(list(self.model.Generate(asked, timeout=60)))
        asked.stopping.stop_strings.append('"name"')
        asked.output.stop_string_tokens = True
        answer = Answer(list(self.model.Generate(asked, timeout=60)))
        self.assertEqual(answer.finished.stop_string, '"name"')
        response = self.model.Verify(claim_of(asked, answer), timeout=60)
        self.assertTrue(response.verified, response)
        self.assertEqual(response.finish_reason, common_pb2.FINISH_REASON_STOP)
        response = self.model.Verify(claim_of(asked, whole), timeout=60)
        self.assertEqual(response.mismatch.index, len(answer.ids))
        self.assertEqual(response.mismatch.finished, common_pb2.FINISH_REASON_STOP)


if __name__ == "__main__":
    unittest.main()
