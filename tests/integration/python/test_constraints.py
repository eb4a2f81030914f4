"""Outputs that are constrained: JSON Schemas, expressions, grammars, choices, structural tags."""

import json
import re
import threading
import unittest

import grpc

from support import ServerTest, details_of, output_of, request, Answer

from google.rpc import error_details_pb2
from tlm.v1 import common_pb2, generate_pb2, model_info_pb2, verify_pb2

SCHEMA = json.dumps({
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4},
        "address": {"$ref": "#/$defs/address"}},
    "required": ["name", "age", "colours", "address"],
    "additionalProperties": False,
    "$defs": {"address": {
        "type": "object", "properties": {"street_name": {"type": "string", "maxLength": 8},
                                         "is_residential": {"type": "boolean"}},
        "required": ["street_name", "is_residential"], "additionalProperties": False}}})

# What no server may spend long on, or fall over.
HOSTILE = [
    {"regex": "(a*)*" * 50 + "b"},
    {"regex": "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
    {"regex": "(" * 20000},
    {"regex": "(a|b)*a(a|b){40}"},
    {"regex": "[\\s\\S]{100000}"},
    {"json_schema": "[" * 100000},
    {"json_schema": '{"allOf": [' * 500 + "{}" + "]}" * 500},
    {"json_schema": '{"$ref": "#"}'},
    {"json_schema": '{"$ref": "https://example.org/schema.json"}'},
    {"json_schema": json.dumps({"enum": [f"{i}" * 20 for i in range(20000)]})},
    {"json_schema": json.dumps({"type": "string", "pattern": "(x+x+)+y" * 200})},
    {"json_schema": json.dumps({"type": "object", "minProperties": 10 ** 9})},
    {"json_schema": json.dumps({"multipleOf": 1e-300})},
    {"grammar": "root ::= root"},
    {"grammar": "root ::= root root | \"\" | root \"a\" root"},
    {"grammar": "root ::= " + "(" * 50000},
    {"grammar": "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(3000)) + "\nroot ::= r0"},
]


class ConstraintsTest(ServerTest):
    """One server with the bundled model."""

    def constrained(self, seed=1, max_new_tokens=400, **fields):
        asked = request(temperature=1, seed=seed, max_new_tokens=max_new_tokens)
        asked.stopping.ignore_eos = False
        for name, value in fields.items():
            if hasattr(value, "DESCRIPTOR"):
                getattr(asked, name).CopyFrom(value)
            else:
                setattr(asked, name, value)
        return asked

    def assert_person(self, text):
        person = json.loads(text)
        self.assertEqual(list(person), ["name", "age", "colours", "address"])
        self.assertLessEqual(len(person["name"]), 12)
        self.assertTrue(0 <= person["age"] <= 150)
        self.assertLessEqual(set(person["colours"]), {"red", "green", "blue"})
        self.assertLessEqual(len(person["colours"]), 4)
        self.assertEqual(list(person["address"]), ["street_name", "is_residential"])

    def test_the_server_tells_what_it_can(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        self.assertTrue(info.capabilities.constraints)
        self.assertEqual(info.limits.max_constraint_time.ToMilliseconds(), 250)
        self.assertGreater(info.limits.max_constraint_bytes, 0)
        self.assertGreater(info.limits.max_constraint_states, 0)
        self.assertGreater(info.limits.max_constraint_memory_bytes, 0)

    def test_json_schema(self):
        for seed in range(8):
            answer = self.generate(self.constrained(seed, json_schema=SCHEMA))
            self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_EOS)
            self.assert_person(answer.text)

    def test_compact_json(self):
        for seed in range(4):
            answer = self.generate(self.constrained(
                seed, json_schema=SCHEMA,
                json=generate_pb2.JsonOptions(whitespace=generate_pb2.JSON_WHITESPACE_COMPACT)))
            self.assert_person(answer.text)
            self.assertEqual(answer.text, json.dumps(json.loads(answer.text), ensure_ascii=False,
                                                     separators=(",", ":")))

    def test_scores_change_no_token(self):
        # With scores every token is drawn; without them those that need no draw are not.
        for seed in range(6):
            asked = self.constrained(seed, json_schema=SCHEMA)
            plain = self.generate(asked)
            asked.output.top_logprobs = 2
            scored = self.generate(asked)
            self.assertEqual(scored.ids, plain.ids)
            self.assertEqual(scored.text, plain.text)
            self.assertTrue(all(token.HasField("logprob") for token in scored.tokens))

    def test_other_kinds(self):
        pattern = "(yes|no), [a-z]{3,8} and [0-9]+\\.[0-9]{2}"
        text = self.generate(self.constrained(regex=pattern)).text
        self.assertTrue(re.fullmatch(pattern, text), text)
        choices = ["the sea", "the sea and the sky", "nothing"]
        text = self.generate(
            self.constrained(choices=generate_pb2.Choices(choices=choices))).text
        self.assertIn(text, choices)
        asked = self.constrained(grammar='root ::= "(" root ")" | "x"', max_new_tokens=600)
        asked.sampling.frequency_penalty = 1  # or it opens brackets for ever
        text = self.generate(asked).text
        self.assertTrue(re.fullmatch(r"\(*x\)*", text), text)
        self.assertEqual(text.count("("), text.count(")"))
        answer = self.generate(self.constrained(json_object=True, max_new_tokens=900))
        if answer.finished.reason == common_pb2.FINISH_REASON_EOS:
            self.assertIsInstance(json.loads(answer.text), dict)

    def test_structural_tags(self):
        tag = generate_pb2.StructuralTag(triggers=["e"], regions=[
            {"begin": "e=<", "regex": "[0-9]{3}", "end": ">"}])
        asked = self.constrained(structural_tag=tag, max_new_tokens=60)
        text = self.generate(asked).text
        self.assertIn("e", text)
        whole = text[:text.rindex("e")]
        self.assertFalse(re.sub(r"e=<[0-9]{3}>", "", whole).count("e"), text)

    def test_every_output_is_constrained(self):
        asked = self.constrained(json_schema=SCHEMA)
        asked.sampling.num_sequences = 4
        events = list(self.model.Generate(asked, timeout=60))
        texts = {output_of(events, index).text for index in range(4)}
        for text in texts:
            self.assert_person(text)
        self.assertGreater(len(texts), 1)

    def test_ends(self):
        choices = generate_pb2.Choices(choices=["the sea"])
        asked = self.constrained(choices=choices)
        self.assertEqual(self.generate(asked).finished.reason, common_pb2.FINISH_REASON_EOS)
        asked.stopping.ignore_eos = True
        answer = self.generate(asked)
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_CONSTRAINT_COMPLETE)
        self.assertEqual(answer.text, "the sea")
        asked.stopping.max_new_tokens = 1
        self.assertEqual(self.generate(asked).finished.reason, common_pb2.FINISH_REASON_LENGTH)
        asked = self.constrained(choices=choices)
        asked.sampling.allowed_token_ids.extend(self.tokenize("xyz"))
        answer = self.generate(asked)
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_CONSTRAINT)
        self.assertEqual(answer.text, "")
        asked = self.constrained(choices=choices)
        asked.stopping.stop_strings.append(" s")
        answer = self.generate(asked)
        self.assertEqual((answer.text, answer.finished.stop_string), ("the", " s"))

    def test_a_resumed_output_must_be_allowed(self):
        asked = self.constrained(json_schema=SCHEMA)
        whole = self.generate(asked)
        asked.sampling.seed = whole.started.effective.seed
        asked.resume.fingerprint = whole.started.fingerprint
        asked.resume.generated_token_ids.extend(self.tokenize("[1]"))
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                  lambda: self.model.Generate(asked, timeout=60))
        violation, = details_of(error, error_details_pb2.BadRequest).field_violations
        self.assertTrue(violation.field.startswith("resume.generated_token_ids["))

    def test_documents_of_other_writers_are_continued_and_verified(self):
        schema = json.dumps({"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 6}, "count": {"type": "integer", "maximum": 50},
            "kind": {"enum": ["\u00e9t\u00e9", "hiver"]}},
            "required": ["name", "count", "kind"], "additionalProperties": False})
        any_escapes = generate_pb2.JsonOptions(escapes=generate_pb2.JSON_ESCAPES_ANY)
        for text in (r'{"name": "\u00e9\u006e\/", "count": 4e1, "k', r'{"\u006eame": "", "count": 1.0',
                     '{"name": "a", "count": -4.0E+01, "kind": "\\u00e9'):
            for options, allowed in ((generate_pb2.JsonOptions(), False), (any_escapes, True)):
                asked = self.constrained(json_schema=schema, json=options)
                asked.resume.fingerprint = self.generate(asked).started.fingerprint
                asked.resume.generated_token_ids.extend(self.tokenize(text))
                if not allowed:
                    self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                      lambda: self.model.Generate(asked, timeout=60))
                    continue
                document = json.loads(text + self.generate(asked).text)
                self.assertIn(document["kind"], ("\u00e9t\u00e9", "hiver"))
                self.assertEqual(document["count"], int(document["count"]))
        for seed in range(6):
            asked = self.constrained(seed, json_schema=schema, json=any_escapes)
            answer = self.generate(asked)
            self.assertLessEqual(len(json.loads(answer.text)["name"]), 6)
            asked.sampling.seed = answer.started.effective.seed
            response = self.model.Verify(verify_pb2.VerifyRequest(
                request=asked, claimed_token_ids=answer.ids, fingerprint=answer.started.fingerprint))
            self.assertTrue(response.verified, response)

    def test_hostile_constraints_disturb_nobody(self):
        quiet = request(temperature=1, seed=5, max_new_tokens=200)
        person = self.constrained(7, json_schema=SCHEMA)
        expected = self.generate(quiet).ids, self.generate(person).ids
        hostile_ends = []

        def be_hostile(fields):
            asked = self.constrained(max_new_tokens=30, **fields)
            try:
                hostile_ends.append(self.generate(asked).finished.reason)
            except grpc.RpcError as error:
                hostile_ends.append(error.code())
        threads = [threading.Thread(target=be_hostile, args=(fields,)) for fields in HOSTILE]
        for thread in threads:
            thread.start()
        self.assertEqual((self.generate(quiet).ids, self.generate(person).ids), expected)
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(len(hostile_ends), len(HOSTILE))
        refusals = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
        for end in hostile_ends:
            if isinstance(end, grpc.StatusCode):
                self.assertIn(end, refusals)
        self.assertEqual((self.generate(quiet).ids, self.generate(person).ids), expected)

    def test_cancelled_and_expired_calls_end(self):
        asked = self.constrained(json_schema=SCHEMA)
        calls = [self.model.Generate(asked, timeout=60) for _ in range(20)]
        for call in calls[::2]:
            call.cancel()
        for call in calls[1::2]:
            self.assert_person(Answer(list(call)).text)
        self.assert_fails(grpc.StatusCode.DEADLINE_EXCEEDED,
                          lambda: self.model.Generate(self.constrained(
                              json_schema=json.dumps({"type": "string", "minLength": 9000})),
                              timeout=0.02))


if __name__ == "__main__":
    unittest.main()
