"""mask_bench's verdicts and counts on schemas whose answers are known. Not a measurement."""

import json
import os
import pathlib
import unittest

from program_case import DEMO_MODEL, ProgramCase

MASK_BENCH = pathlib.Path(os.environ["TLM_BENCHMARKS_DIR"]) / "mask_bench"


def case(schema, valid, invalid):
    return {"schema": schema,
            "tests": [{"description": f"valid {i}", "data": data, "valid": True}
                      for i, data in enumerate(valid)] +
                     [{"description": f"invalid {i}", "data": data, "valid": False}
                      for i, data in enumerate(invalid)]}


class MaskBenchTest(ProgramCase):
    def setUp(self):
        super().setUp()
        (self.directory / "schemas" / "inner").mkdir(parents=True)

    def write(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.directory / "schemas" / name).write_text(text, encoding="utf-8")

    def bench(self, *flags):
        """Its exit status, standard output and JSON."""
        path = self.directory / "result.json"
        result = self.run_program(MASK_BENCH, f"--tokenizer={DEMO_MODEL}",
                                  f"--schemas={self.directory}/schemas", f"--json={path}", *flags)
        return (result.returncode, result.stdout + result.stderr,
                self.report() if path.exists() else None)

    def test_counts(self):
        self.write("object.json", case(
            {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
                                              "age": {"type": "integer", "minimum": 3}},
             "required": ["name"], "additionalProperties": False},
            [{"name": "Tom"}, {"name": "\u00e9\n\"\u4f60\u0001", "age": 3}],
            [{}, {"name": "Timothy"}, {"name": "Tom", "age": 2}, {"name": "Tom", "x": 1}]))
        # The test suite's form.
        self.write("inner/suite.json", [case(True, [1, None, [], {"a": [True]}], []),
                                        case({"const": "a"}, ["a"], ["b", 1])])
        self.write("bad.json", case({"type": "strin"}, [], [1]))
        status, output, report = self.bench()
        self.assertEqual(status, 0, output)
        self.assertEqual(report["schemas"], 4)
        self.assertEqual(report["right_schemas"], 3)
        self.assertEqual(report["refused_schemas"], 1)
        self.assertEqual(report["documents"], 14)
        self.assertEqual(report["right_documents"], 13)
        self.assertEqual((report["invalid_accepted"], report["valid_rejected"]), (0, 0))
        self.assertEqual(report["first_mask_us"]["count"], 3)
        self.assertEqual(report["mask_us"]["count"], report["tokens"])
        self.assertGreater(report["tokens"], 20)
        self.assertIn("3 of 4, 75.0 %; bar 95 %: not met", output)

    def test_numbers_stand_as_python_writes_them(self):
        numbers = ["1.0", "-0.5", "1e-5", "1E+22", "123456789012345678901234567890", "1.50",
                   "100000000000000000000.0", "0.0001", "12345.678e-2", "-0"]
        self.write("numbers.json", '{"schema": {"type": "string"}, "tests": [{"data": [%s], '
                                   '"valid": true}]}' % ", ".join(numbers))
        _, _, report = self.bench()
        text = report["results"][-1]["wrong"][0]["text"]
        self.assertEqual(text, json.dumps([json.loads(number) for number in numbers]))

    def test_an_invalid_document_that_is_accepted_fails_it(self):
        self.write("wrong.json", case({"type": "integer"}, ["text"], [3]))
        status, output, report = self.bench()
        self.assertEqual(status, 1, output)
        self.assertEqual((report["invalid_accepted"], report["valid_rejected"]), (1, 1))
        self.assertIn("bar 0: not met", output)

    def test_bad_input_is_named(self):
        self.write("broken.json", "{")
        status, output, _ = self.bench()
        self.assertEqual(status, 1)
        self.assertIn("broken.json", output)
        status, output, _ = self.bench("--property_order=some")
        self.assertEqual(status, 1)
        self.assertIn("--property_order=some", output)


if __name__ == "__main__":
    unittest.main()
