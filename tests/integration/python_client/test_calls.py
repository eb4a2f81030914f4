"""The calls of both clients on a real server."""

import asyncio
import json
import re
import tempfile
import unittest

import numpy as np

from servers import CLIENTS, Replica, ServerTest, copy_model
from tlm_client import (AsyncClient, Client, DataType, FailedPrecondition, FinishReason,
                        FlopsQuery, Internal, Message, NotFound, Region, ResourceExhausted,
                        ResumePoint, RowValues, ServingStatus, StructuralTag, messages)
from tlm_client._collect import ForwardCollector

PROMPT = "Once upon a time"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tail }}assistant:"


class GenerateTest(ServerTest):

    def test_whole_result(self):
        result = self.client.generate(PROMPT, max_new_tokens=12, temperature=1, seed=3,
                                      ignore_eos=True, top_logprobs=2, prompt_logprobs=True,
                                      timing=True, resource_usage=True, request_id="mine")
        self.assertEqual(result.started.request_id, "mine")
        self.assertEqual(result.started.effective.seed, 3)
        self.assertEqual(len(result.prompt), result.started.prompt_token_count)
        self.assertIsNone(result.prompt[0].logprob)
        self.assertLessEqual(result.prompt[1].logprob, 0)
        self.assertEqual(len(result.token_ids), 12)
        self.assertEqual(b"".join(t.bytes for t in result.outputs[0].tokens).decode(), result.text)
        for token in result.outputs[0].tokens:
            self.assertEqual([top.rank for top in token.top], [1, 2])
        self.assertIs(result.finish_reason, FinishReason.LENGTH)
        self.assertEqual(result.usage.completion_tokens, 12)
        self.assertGreater(result.summary.timing.total, 0)
        self.assertGreater(result.summary.resources.flops, 0)
        self.assertEqual(result.resumes, 0)

    def test_ids_are_not_sent_unasked(self):
        result = self.client.generate(PROMPT, max_new_tokens=4)
        self.assertEqual(result.token_ids, [])
        self.assertIsNone(result.summary.timing)
        self.assertTrue(result.text)

    def test_token_ids_as_prompt_from_numpy(self):
        ids = np.array(self.client.tokenize(PROMPT).token_ids)
        self.assertEqual(self.client.generate(ids, max_new_tokens=np.int64(8), seed=1).text,
                         self.client.generate(PROMPT, max_new_tokens=8, seed=1).text)

    def test_options_reach_the_server(self):
        text = self.client.generate(PROMPT, temperature=0, max_new_tokens=30).text
        stopped = self.client.generate(PROMPT, temperature=0, max_new_tokens=30,
                                       stop_strings=[text[5:8]])
        self.assertEqual(stopped.text, text[:text.index(text[5:8])])
        self.assertEqual(stopped.outputs[0].finished.stop_string, text[5:8])
        only = self.client.generate(PROMPT, max_new_tokens=6, allowed_token_ids=[40, 41],
                                    logit_bias={40: 5.0}, token_ids=True, bypass_prefix_cache=True,
                                    priority=3, soft_time_limit=30.5, cache_salt="s",
                                    temperature=np.float32(0.5))
        self.assertLessEqual(set(only.token_ids), {40, 41})
        self.assertEqual(only.started.effective.logit_bias, {40: 5.0})
        self.assertEqual(only.started.effective.temperature, 0.5)

    def test_several_outputs(self):
        result = self.client.generate(PROMPT, max_new_tokens=9, num_sequences=3, seed=5,
                                      token_ids=True)
        self.assertEqual(len(result.outputs), 3)
        self.assertEqual(len({tuple(output.token_ids) for output in result.outputs}), 3)

    def test_a_stream_of_another_program_is_continued(self):
        whole = self.client.generate(PROMPT, max_new_tokens=20, seed=4, token_ids=True)
        point = ResumePoint(whole.token_ids[:7], whole.started.fingerprint)
        rest = self.client.generate(PROMPT, max_new_tokens=20, seed=4, token_ids=True,
                                    resume_from=point)
        self.assertEqual(whole.token_ids, whole.token_ids[:7] + rest.token_ids)

    def test_unknown_options_are_refused_here(self):
        for call in (lambda: self.client.generate(PROMPT, max_tokens=3),
                     lambda: self.client.forward([PROMPT], k=3),
                     lambda: self.client.tokenize(PROMPT, seed=1),
                     lambda: self.client.generate(PROMPT, stop_strings="the"),
                     lambda: self.client.forward(PROMPT),
                     lambda: self.client.score(PROMPT, "the"),
                     lambda: self.client.generate(b"ids"),
                     lambda: self.client.generate([1.5]),
                     lambda: self.client.generate(PROMPT, temperature="hot"),
                     lambda: self.client.chat("Hello")):
            self.assertRaises(TypeError, call)
        self.assertRaises(ValueError, lambda: self.client.generate(PROMPT, seed=-1))
        self.assertRaises(ValueError, lambda: self.client.health(metadata=[("Upper", "x")]))
        self.assertRaises(ValueError, lambda: self.client.health(traceparent="a\nb"))
        self.assertRaises(ValueError, lambda: self.client.generate(PROMPT, timeout=0))
        self.assertRaises(ValueError, lambda: self.client.forward([PROMPT], dtype="float64"))


class Answer:
    """As classes of pydantic are to the client."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def model_json_schema(cls):
        return {"enum": [["\u00e9", "1"]]}

    @classmethod
    def model_validate_json(cls, json_data):
        return cls(json.loads(json_data))


class ConstraintTest(ServerTest):

    def text(self, **options):
        result = self.client.generate(PROMPT, max_new_tokens=60, seed=1, **options)
        self.assertIs(result.finish_reason, FinishReason.EOS)
        return result.text

    def test_every_kind_reaches_the_server(self):
        self.assertRegex(self.text(regex="[ab]{3}-"), "^[ab]{3}-$")
        self.assertIn(self.text(choices=["good", "bad"]), ("good", "bad"))
        self.assertRegex(self.text(grammar='root ::= "x" [0-9]'), "^x[0-9]$")
        self.assertEqual(json.loads(self.text(json_schema='{"const": [null, {}]}')), [None, {}])
        self.assertEqual(self.text(json_schema={"const": "\u00e9"}), '"\u00e9"')
        self.assertEqual(self.text(json_schema=True, choices=None, json_object=False,
                                   logit_bias={self.client.tokenize("null").token_ids[0]: 50})[:1],
                         "n")
        self.assertEqual(self.client.generate(PROMPT, max_new_tokens=1, json_object=True).text[:1],
                         "{")

    def test_classes_with_a_schema(self):
        result = self.client.generate(PROMPT, json_schema=Answer, max_new_tokens=20)
        self.assertEqual(result.parse(Answer).value, ["\u00e9", "1"])
        cut = self.client.generate(PROMPT, json_schema=Answer, max_new_tokens=1)
        self.assertRaises(ValueError, lambda: cut.parse(Answer))

    def test_how_json_is_written(self):
        schema = {"properties": {"b": {"const": 1}, "a": {"const": "x"}}, "type": "object",
                  "required": ["a", "b"], "additionalProperties": False}
        compact = self.text(json_schema=schema, json_whitespace="compact")
        self.assertNotIn(" ", compact)
        self.assertEqual(list(json.loads(compact)), ["b", "a"])
        orders = {tuple(json.loads(self.client.generate(
            PROMPT, json_schema=schema, json_property_order="any", json_whitespace="compact",
            json_escapes="any", seed=seed).text)) for seed in range(20)}
        self.assertEqual(orders, {("a", "b"), ("b", "a")})

    def test_structural_tags(self):
        less, = self.client.tokenize("<").token_ids
        tag = StructuralTag([Region("<a>", json_schema=Answer, end="</a>"),
                             Region("<b>", regex="[0-9]{2}", end=".")], ["<"])
        text = self.client.generate(PROMPT, max_new_tokens=80, seed=2, structural_tag=tag,
                                    logit_bias={less: 30}).text
        regions = re.findall(r'<a>\[\s*"\u00e9",\s*"1"\s*\]</a>|<b>[0-9]{2}\.', text)
        begun = len(re.findall("<[ab]", text))  # max_new_tokens may have cut the last one
        self.assertTrue(begun - 1 <= len(regions) <= begun, text)
        self.assertTrue(regions, text)

    def test_contradictions_are_refused_here(self):
        two = Region("<a>", regex="a", grammar="b")
        for error, options in (
                (ValueError, {"regex": "a", "json_object": True}),
                (ValueError, {"choices": ["a"], "json_schema": {}}),
                (ValueError, {"structural_tag": StructuralTag([two], ["<"])}),
                (ValueError, {"json_object": True, "json_whitespace": "none"}),
                (TypeError, {"choices": "ab"}), (TypeError, {"json_schema": int}),
                (TypeError, {"json_schema": {"const": object()}})):
            self.assertRaises(error, lambda o=options: self.client.generate(PROMPT, **o))

    def test_limits_are_told(self):
        info = self.client.model_info()
        self.assertTrue(info.capabilities.constraints)
        self.assertEqual(info.limits.max_constraint_time, 0.25)
        self.assertGreater(info.limits.max_constraint_states, 1000)


class VerifyTest(ServerTest):
    OPTIONS = {"max_new_tokens": 20, "temperature": 1, "token_ids": True}

    def test_a_result_is_verified(self):
        result = self.client.generate(PROMPT, num_sequences=2, **self.OPTIONS)
        for output in range(2):
            verdict = self.client.verify(PROMPT, result, output_index=output, num_sequences=2,
                                         request_id="mine", **self.OPTIONS)
            self.assertTrue(verdict.verified)
            self.assertIsNone(verdict.mismatch)
            self.assertEqual(verdict.verified_token_count, len(result.outputs[output].token_ids))
            self.assertIs(verdict.finish_reason, result.outputs[output].finish_reason)
            self.assertEqual(verdict.request_id, "mine")
            self.assertEqual(verdict.fingerprint, result.started.fingerprint)

    def test_the_token_that_ended_it_is_claimed(self):
        ids = self.client.generate(PROMPT, temperature=0, max_new_tokens=9, token_ids=True).token_ids
        options = {"temperature": 0, "stop_token_ids": [ids[5]], "token_ids": True}
        result = self.client.generate(PROMPT, **options)
        verdict = self.client.verify(PROMPT, result, **options)
        self.assertEqual(verdict.verified_token_count, len(result.token_ids) + 1)
        self.assertIs(verdict.finish_reason, FinishReason.STOP)

    def test_a_forged_token_is_found(self):
        result = self.client.generate(PROMPT, **self.OPTIONS)
        ids = result.token_ids
        forged = ids[:7] + [ids[7] ^ 1] + ids[8:]
        verdict = self.client.verify(PROMPT, forged, seed=result.started.effective.seed,
                                     resume=None, affinity_key="a", **self.OPTIONS)
        self.assertFalse(verdict.verified)
        self.assertEqual(verdict.mismatch.index, 7)
        self.assertEqual(verdict.mismatch.claimed_token_id, forged[7])
        self.assertEqual(verdict.mismatch.token_id, ids[7])
        self.assertIsNone(verdict.mismatch.finished)
        behind = self.client.verify(PROMPT, ids + [1], seed=result.started.effective.seed,
                                    **self.OPTIONS)
        self.assertEqual(behind.mismatch.index, 20)
        self.assertIsNone(behind.mismatch.token_id)
        self.assertIs(behind.mismatch.finished, FinishReason.LENGTH)

    def test_another_servers_result_is_stale(self):
        result = self.client.generate(PROMPT, **self.OPTIONS)
        with self.assertRaises(FailedPrecondition) as caught:
            self.client.verify(PROMPT, result, fingerprint="beef", **self.OPTIONS)
        self.assertEqual(caught.exception.reason, "STALE_FINGERPRINT")

    def test_a_result_without_ids_is_refused(self):
        result = self.client.generate(PROMPT, max_new_tokens=4)
        self.assertRaises(ValueError, lambda: self.client.verify(PROMPT, result))

    def test_speculation_changes_no_token(self):
        auto = self.client.generate(PROMPT, seed=1, speculation="auto", max_draft_tokens=3,
                                    **self.OPTIONS)
        off = self.client.generate(PROMPT, seed=1, speculation="off", **self.OPTIONS)
        self.assertEqual(auto.token_ids, off.token_ids)
        self.assertIsNone(off.summary.speculation)
        counts = auto.summary.speculation
        self.assertLessEqual(counts.accepted_tokens, counts.drafted_tokens)
        self.assertRaises(ValueError,
                          lambda: self.client.generate(PROMPT, speculation="on"))
        info = self.client.model_info()
        self.assertTrue(info.capabilities.verify)
        self.assertEqual(info.capabilities.speculation.draft_model, "")
        self.assertGreaterEqual(info.limits.max_draft_tokens, 1)


class ForwardTest(ServerTest):
    SEQUENCES = [[40, 433, 79, 1656], [259], [463, 278, 259]]

    def test_rows_agree_with_scores(self):
        """The log-probability Score gives is that of Forward's row before the token."""
        ids = list(self.client.tokenize("Once upon a time there was a king").token_ids)
        rows = self.client.forward([ids], positions="all", values="log_probabilities").values
        score = self.client.score(ids[:2], [ids[2:]]).scores[0]
        expected = rows[np.arange(1, len(ids) - 1), ids[2:]]
        np.testing.assert_allclose([token.logprob for token in score.tokens], expected, atol=2e-5)
        self.assertAlmostEqual(score.sum_logprob, float(expected.sum(dtype=np.float64)), places=3)
        self.assertAlmostEqual(score.mean_logprob, score.sum_logprob / score.token_count)
        self.assertAlmostEqual(score.perplexity, float(np.exp(-score.mean_logprob)))

    def test_ragged_batch(self):
        result = self.client.forward(self.SEQUENCES, positions="all")
        self.assertEqual(result.sequence_index.tolist(), [0, 0, 0, 0, 1, 2, 2, 2])
        self.assertEqual(result.positions.tolist(), [0, 1, 2, 3, 0, 0, 1, 2])
        self.assertEqual(result.values.shape, (8, result.header.vocab_size))
        self.assertEqual(result.values.dtype, np.float32)
        self.assertEqual(result.rows_of(2).tolist(), [5, 6, 7])
        last = self.client.forward(self.SEQUENCES)
        np.testing.assert_array_equal(last.values, result.values[[3, 4, 7]])
        self.assertIs(last.header.values, RowValues.LOGITS)

    def test_number_formats(self):
        exact = self.client.forward(self.SEQUENCES).values
        half = self.client.forward(self.SEQUENCES, dtype="float16")
        self.assertEqual(half.values.dtype, np.float16)
        np.testing.assert_array_equal(half.values, exact.astype(np.float16))
        brain = self.client.forward(self.SEQUENCES, dtype="bfloat16")
        self.assertIs(brain.header.dtype, DataType.BFLOAT16)
        self.assertEqual(brain.values.dtype, np.float32)
        self.assertFalse((brain.values.view(np.uint32) & 0xffff).any())
        np.testing.assert_allclose(brain.values, exact, rtol=2**-8)

    def test_largest_values(self):
        rows = self.client.forward(self.SEQUENCES, positions=[0], vocab_slice=(100, 300))
        self.assertEqual(rows.values.shape, (3, 200))
        top = self.client.forward(self.SEQUENCES, positions=[0], vocab_slice=(100, 300), top_k=5)
        self.assertEqual((top.values.shape, rows.top_ids.shape), ((3, 0), (3, 0)))
        np.testing.assert_array_equal(top.top_ids, 100 + np.argsort(-rows.values, axis=1)[:, :5])
        np.testing.assert_array_equal(top.top_values, -np.sort(-rows.values, axis=1)[:, :5])

    def test_more_than_one_message_of_rows(self):
        result = self.client.forward([list(range(5, 605))], positions="all",
                                     values="probabilities")
        self.assertEqual(len(result.values), 600)
        np.testing.assert_allclose(result.values.sum(axis=1), 1, rtol=1e-4)

    def test_results_beyond_the_limit_are_refused(self):
        with self.assertRaisesRegex(ResourceExhausted, "more than 4000 values"):
            self.client.forward(self.SEQUENCES, max_values=4000)


class ForwardCollectorTest(unittest.TestCase):
    """A server that contradicts itself."""

    HEADER = {"header": {"rows_total": 2, "row_width": 3, "dtype": messages.DATA_TYPE_FLOAT32}}
    TOP_HEADER = {"header": {"rows_total": 2}}
    ROWS = {"rows": {"row_count": 2, "data": bytes(24)}}

    def collect(self, *events, max_values=1000):
        collector = ForwardCollector(max_values)
        for event in events:
            collector.add(messages.ForwardResponse(**event))
        return collector.result()

    def test_complete(self):
        result = self.collect(self.HEADER, {}, self.ROWS, {"summary": {}})
        np.testing.assert_array_equal(result.values, np.zeros((2, 3)))
        none = self.collect({"header": {"row_width": 3}}, {"summary": {}})
        self.assertEqual(none.values.shape, (0, 0))

    def test_contradictions(self):
        top = {"ids": [1], "values": [0.5]}
        for name, events in {
                "nothing": [], "no summary": [self.HEADER, self.ROWS],
                "no rows": [self.HEADER, {"summary": {}}], "two headers": [self.HEADER] * 2,
                "rows first": [self.ROWS], "too many": [self.HEADER, self.ROWS, self.ROWS],
                "no row": [self.HEADER, {"rows": {"row_count": 0}}],
                "bytes": [self.HEADER, {"rows": {"row_count": 2, "data": bytes(23)}}],
                "huge": [{"header": {"rows_total": 1 << 40, "row_width": (1 << 32) - 1}},
                         {"rows": {"row_count": (1 << 32) - 1, "data": bytes(8)}}],
                "number format": [{"header": {"rows_total": 2, "row_width": 3, "dtype": 4}},
                                  self.ROWS],
                "unknown format": [{"header": {"rows_total": 2, "row_width": 3, "dtype": 99}},
                                   self.ROWS],
                "one list": [self.TOP_HEADER, {"rows": {"row_count": 2, "top": [top]}}],
                "ragged": [self.TOP_HEADER, {"rows": {"row_count": 2, "top": [
                    top, {"ids": [1, 2], "values": [0, 0]}]}}],
                "ids alone": [self.TOP_HEADER, {"rows": {"row_count": 1, "top": [
                    {"ids": [1, 2], "values": [0]}]}}],
                "lists for rows": [self.HEADER, {"rows": {"row_count": 1, "top": [top]}}],
        }.items():
            with self.subTest(name):
                self.assertRaises(Internal, lambda: self.collect(*events))

    def test_limit(self):
        self.collect(self.HEADER, self.ROWS, {"summary": {}}, max_values=6)
        with self.assertRaises(ResourceExhausted):
            self.collect(self.HEADER, self.ROWS, max_values=5)


class OtherCallsTest(ServerTest):

    def test_model_info(self):
        info = self.client.model_info(include_tensors=True, flops=FlopsQuery(2, 10, 3))
        self.assertEqual(info.identity.model_id, "demo")
        self.assertEqual(info.flops.query, FlopsQuery(2, 10, 3))
        self.assertEqual(sum(tensor.elements for tensor in info.parameters.tensors),
                         info.parameters.stored)
        self.assertGreater(info.limits.max_queue_time, 0)
        self.assertIsNone(info.default_sampling.seed)
        self.assertIsNone(info.architecture.rope.scaling)
        self.assertIn(DataType.BFLOAT16, info.capabilities.forward_dtypes)
        self.assertEqual(self.client.model_info().parameters.tensors, ())

    def test_tokens_and_back(self):
        tokenized = self.client.tokenize("naïve 日本")
        self.assertEqual(b"".join(tokenized.token_bytes).decode(), "naïve 日本")
        back = self.client.detokenize(tokenized.token_ids)
        self.assertEqual((back.text, back.bytes), ("naïve 日本", "naïve 日本".encode()))

    def test_health(self):
        self.assertIs(self.client.health(), ServingStatus.SERVING)
        self.assertIs(self.client.health("tlm.v1.LanguageModel"), ServingStatus.SERVING)
        self.assertRaises(NotFound, lambda: self.client.health("no.Such"))


class ChatTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        replica = Replica(f"--model={copy_model(directory.name, TEMPLATE)}")
        cls.addClassCleanup(replica.close)
        cls.client = Client(replica.target)
        cls.addClassCleanup(cls.client.close)

    def test_conversation(self):
        conversation = [Message("system", "Be brief."), {"role": "user", "content": "Who?"}]
        options = {"temperature": 0, "max_new_tokens": 8}
        answer = self.client.chat(conversation, template_arguments={"tail": "! "}, **options)
        prompt = "system: Be brief.\nuser: Who?\n! assistant:"
        self.assertEqual(answer.text, self.client.generate(prompt, add_special_tokens=False,
                                                           **options).text)
        self.assertEqual(answer.message, Message("assistant", answer.text))
        with self.client.stream_chat(conversation + [answer.message], **options) as stream:
            self.assertTrue("".join(stream.text()))
        options["token_ids"] = True
        answer = self.client.chat(conversation, **options)
        self.assertTrue(self.client.verify_chat(conversation, answer, **options).verified)


class AsyncCallsTest(ServerTest):

    def test_the_same_answers(self):
        ids = list(self.client.tokenize(PROMPT).token_ids)
        options = {"max_new_tokens": 10, "seed": 8, "token_ids": True}
        with CLIENTS[1](self.target) as other:
            other.wait_until_serving()
            self.assertTrue(other.verify(PROMPT, other.generate(PROMPT, **options), **options).verified)
            for call in (
                    lambda client: client.health(), lambda client: client.tokenize(PROMPT),
                    lambda client: client.generate(PROMPT, **options).outputs,
                    lambda client: client.detokenize(ids).text,
                    lambda client: client.forward([ids], positions="all").values.tolist(),
                    lambda client: client.score(PROMPT, [" there", " when"]).scores,
                    lambda client: client.model_info().identity):
                self.assertEqual(call(other), call(self.client))

    def test_many_at_a_time(self):
        async def main():
            async with AsyncClient(self.target) as client:
                answers = await asyncio.gather(*[
                    client.generate(PROMPT, max_new_tokens=12, seed=i, token_ids=True)
                    for i in range(40)])
                for i in (0, 17, 39):
                    alone = self.client.generate(PROMPT, max_new_tokens=12, seed=i, token_ids=True)
                    self.assertEqual(answers[i].outputs, alone.outputs)
        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
