"""Texts under regular expressions, grammars, choices, JSON options and structural tags, checked by
other readers; constraints that cost too much, and streams beside them. Which constraints are refused,
and in which words, is tested by tests/unit/model/constraint; schemas are drawn by test_json_schema."""

import concurrent.futures
import json
import re
import unittest

import grpc

from support import Answer, ServerTest, request

from tlm.v1 import common_pb2, generate_pb2

Code = grpc.StatusCode
ENDED = common_pb2.FINISH_REASON_EOS
CUT = common_pb2.FINISH_REASON_LENGTH

# Python's re reads them as ECMA-262 does.
PATTERNS = (
    r"[a-z]{3}-\d{2}", r"(yes|no|maybe)( indeed)?!", r"0|[1-9][0-9]{0,8}",
    r"[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8}){1,2}", r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    r"(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}",
    r"[^a-z\s]{5,9}", r"(a|b){3,6}abb", r"\u0416[\u0430-\u044f]+", r"(ab?){2,5}c?", r"[\w.]{1,9}@\w{1,9}\.(com|org)",
    r"\{\"id\": \d+(, \"tag\": \"[a-z]{1,5}\")?\}", r"(?!the)[a-z]{3,6}", r"x{0,3}y{2}", r"")

ARITHMETIC = r'''
# Sums of products.
root    ::= sum "="
sum     ::= product (("+" | "-") product)*
product ::= factor ("*" factor)*
factor  ::= number | "(" sum ")"
number  ::= "0" | [1-9] [0-9]{0,2}
'''

TAG = {"regions": [
    {"begin": "<call name=sum>", "json_schema": json.dumps({
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 99},
                                         "b": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a", "b"], "additionalProperties": False}), "end": "</call>"},
    {"begin": "<call name=day>", "regex": r"\d{4}-\d{2}-\d{2}", "end": "</call>"}],
    "triggers": ["<"]}

PERSON = json.dumps({
    "type": "object", "properties": {
        "name": {"type": "string", "maxLength": 12},
        "colours": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 4}},
    "required": ["name", "colours"], "additionalProperties": False})

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


def constrained(max_new_tokens=60, seed=1, **constraint):
    asked = request(max_new_tokens=max_new_tokens, temperature=1, seed=seed)
    asked.stopping.ignore_eos = False
    asked.MergeFrom(generate_pb2.GenerateRequest(**constraint))
    return asked


def reads_sum(text):
    """Whether the text is a `sum`, by a descent of its own."""
    def product(at):
        at = factor(at)
        while at is not None and text[at:at + 1] == "*":
            at = factor(at + 1)
        return at

    def total(at):
        at = product(at)
        while at is not None and text[at:at + 1] in ("+", "-"):
            at = product(at + 1)
        return at

    def factor(at):
        if text[at:at + 1] == "(":
            at = total(at + 1)
            return at + 1 if at is not None and text[at:at + 1] == ")" else None
        number = re.compile("0|[1-9][0-9]{0,2}").match(text, at)
        return number.end() if number else None

    return total(0) == len(text)


class OutputTest(ServerTest):
    FLAGS = ("--max_constraint_time=10s",)  # of a machine that is busy with other tests

    def outputs(self, count, **constraint):
        """Answers, each of a call with a seed of its own, at the same time."""
        calls = [self.model.Generate(constrained(seed=seed, **constraint), timeout=60)
                 for seed in range(count)]
        return [Answer(list(call)) for call in calls]

    def assert_ends(self, answers):
        """Each ended or was cut; the texts of those that ended, one at least."""
        for answer in answers:
            self.assertIn(answer.finished.reason, (ENDED, CUT))
        whole = [answer.text for answer in answers if answer.finished.reason == ENDED]
        self.assertTrue(whole)
        return whole

    def test_regular_expressions(self):
        for pattern in PATTERNS:
            with self.subTest(pattern):
                for text in self.assert_ends(self.outputs(12, regex=pattern)):
                    self.assertTrue(re.fullmatch(pattern, text, re.ASCII), text)

    def test_grammars(self):
        ends = {self.tokenize(sign)[0]: 3.0 for sign in "=)"}
        whole = self.assert_ends(self.outputs(24, grammar=ARITHMETIC,
                                              sampling={"logit_bias": ends}))
        for text in whole:
            self.assertTrue(text.endswith("=") and reads_sum(text[:-1]), text)

    def test_choices(self):
        choices = ["good", "goodness", "", "\u65e5\u672c", "no, not at all", "no"]
        whole = self.assert_ends(self.outputs(40, choices={"choices": choices}))
        self.assertEqual(len(whole), 40)
        self.assertLessEqual(set(whole), set(choices))
        self.assertGreater(len(set(whole)), 1)

    def test_json_objects(self):
        bias = {token: by for text, by in (('"', 5.0), ("}", 4.0), ("]", 4.0))
                for token in self.tokenize(text)}
        for options in ({}, {"whitespace": generate_pb2.JSON_WHITESPACE_COMPACT}):
            answers = self.outputs(24, json_object=True, json=options,
                                   sampling={"logit_bias": bias},
                                   stopping={"max_new_tokens": 200})
            for text in self.assert_ends(answers):
                self.assertIsInstance(json.loads(text), dict)

    def test_structural_tags(self):
        called = 0
        likely = {self.tokenize("<")[0]: 30.0}
        for answer in self.outputs(24, structural_tag=TAG, sampling={"logit_bias": likely},
                                   stopping={"max_new_tokens": 150}):
            self.assertIn(answer.finished.reason, (ENDED, CUT))
            text = answer.text
            if answer.finished.reason == CUT and "<call" in text:
                text = text[:text.rindex("<call")]
            for part in text.replace("</call>", "\0").split("<")[1:]:
                called += 1
                arguments = re.match(r"call name=(sum|day)>(.*?)\0", part, re.S)
                self.assertTrue(arguments, answer.text)
                if arguments[1] == "day":
                    self.assertRegex(arguments[2], r"^\d{4}-\d{2}-\d{2}$")
                else:
                    value = json.loads(arguments[2])
                    self.assertEqual(list(value), ["a", "b"])
                    self.assertTrue(value["a"] <= 99 and 0 <= value["b"] <= 99, value)
        self.assertGreater(called, 5)


class CostTest(ServerTest):

    def test_hostile_constraints_disturb_nobody(self):
        quiet = request(temperature=1, seed=5, max_new_tokens=200)
        person = constrained(400, 7, json_schema=PERSON)
        expected = self.generate(quiet).ids, self.generate(person).ids

        def be_hostile(fields):
            try:
                self.generate(constrained(30, **fields))
                return Code.OK
            except grpc.RpcError as error:
                return error.code()

        with concurrent.futures.ThreadPoolExecutor(len(HOSTILE)) as pool:
            ends = pool.map(be_hostile, HOSTILE)
            self.assertEqual((self.generate(quiet).ids, self.generate(person).ids), expected)
            self.assertLessEqual(set(ends), {Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED})
        self.assertEqual((self.generate(quiet).ids, self.generate(person).ids), expected)


if __name__ == "__main__":
    unittest.main()
