"""Documents drawn through Generate under JSON Schemas, each checked by the package jsonschema; and
random schemas and values, judged by it and by another, jsonschema-rs."""

import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import grpc

import in_venv

PACKAGES = pathlib.Path(os.environ["TLM_PACKAGES_DIR"])
if not in_venv.make(PACKAGES, pathlib.Path(__file__).with_name("requirements.txt")):
    sys.exit(in_venv.SKIPPED)
sys.path += map(str, PACKAGES.glob("lib/python3*/site-packages"))

import jsonschema  # noqa: E402
import jsonschema_rs  # noqa: E402

from json_schemas import SCHEMAS  # noqa: E402
from random_schemas import DRAFTS, RandomSchemas  # noqa: E402
from support import ServerTest  # noqa: E402
from tlm_server import BIN_DIR, SOURCE_DIR, TlmServer  # noqa: E402

from tlm.v1 import common_pb2, generate_pb2  # noqa: E402

REAL_SCHEMAS = pathlib.Path(os.environ.get("TLM_ORACLES", SOURCE_DIR.parent / "shared/oracles"),
                            "maskbench", "maskbench-half.tar.xz")
# Of the real schemas, one in so many.
STRIDE = 16
OUTPUTS = 16  # of a call, the most that it may have
CALLS = 24  # at a time
MAX_NEW_TOKENS = 220
RANDOM_SCHEMAS = int(os.environ.get("TLM_RANDOM_SCHEMAS", "10000"))
SEED = os.environ.get("TLM_SCHEMA_SEED", "1")
VALUES = 10  # of a random schema
# Texts of the real schemas have no limit, and these models do not know what to write: so they end
# them sooner.
ENDS = {'"': 4.0, "}": 2.0, "]": 2.0}


def unique_members(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError(f"a name stands twice: {pairs}")
    return value


def validator_of(schema):
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def why_wrong(validator, text):
    """None where the text is a document that the schema allows."""
    try:
        document = json.loads(text, object_pairs_hook=unique_members)
    except ValueError as error:
        return f"is not JSON: {error}"
    error = next(validator.iter_errors(document), None)
    return None if error is None else error.message


def is_valid(validator, value):
    """None where the package fails, as on "items": false beside unevaluatedItems in 2019-09."""
    try:
        return validator.is_valid(value)
    except TypeError:
        return None


class Tally:
    """What became of the outputs."""

    def __init__(self):
        self.reasons = collections.Counter()
        self.refused = collections.Counter()
        self.wrong = []
        self.dead_ends = []

    @property
    def valid(self):
        return self.reasons["EOS"] + self.reasons["CONSTRAINT_COMPLETE"] - len(self.wrong)


class JsonSchemaTest(ServerTest):
    FLAGS = ("--sampling_defaults=neutral", "--max_constraint_time=10s")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.random = cls.enterClassContext(TlmServer(*cls.FLAGS, "--random_weights=1"))
        cls.models = (cls.model, cls.random.model)

    def draw(self, model, schema, outputs, seed, **sampling):
        """(finish reason, text) of each output."""
        whitespace = (generate_pb2.JSON_WHITESPACE_PRINTED if seed % 8 == 0 else
                      generate_pb2.JSON_WHITESPACE_COMPACT)
        asked = generate_pb2.GenerateRequest(
            prompt="The answer: ", json_schema=json.dumps(schema),
            json=generate_pb2.JsonOptions(whitespace=whitespace),
            sampling=common_pb2.SamplingParams(temperature=1, seed=seed, num_sequences=outputs,
                                               **sampling),
            stopping=generate_pb2.StoppingCriteria(max_new_tokens=MAX_NEW_TOKENS),
            output=generate_pb2.OutputOptions(text=True))
        texts, reasons = [""] * outputs, [None] * outputs
        for event in model.Generate(asked, timeout=200):
            if event.HasField("tokens"):
                texts[event.tokens.output_index] += event.tokens.text
            elif event.HasField("finished"):
                name = common_pb2.FinishReason.Name(event.finished.reason)
                reasons[event.finished.output_index] = name.removeprefix("FINISH_REASON_")
        return list(zip(reasons, texts))

    def draw_all(self, schemas, calls, outputs, may_refuse, **sampling):
        """From each model, with that many calls for each schema."""
        tally = Tally()
        jobs = {}
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
            for name, schema in schemas.items():
                for model in self.models * calls:
                    jobs[pool.submit(self.draw, model, schema, outputs, len(jobs), **sampling)] = (
                        name, schema)
        drawn = time.monotonic()
        for job, (name, schema) in jobs.items():
            try:
                answers = job.result()
            except grpc.RpcError as error:
                if not may_refuse:
                    raise
                self.assertIn(error.code(), (grpc.StatusCode.INVALID_ARGUMENT,
                                             grpc.StatusCode.RESOURCE_EXHAUSTED), error.details())
                tally.refused[error.code().name] += 1
                continue
            validator = validator_of(schema)
            for reason, text in answers:
                tally.reasons[reason] += 1
                if reason == "CONSTRAINT":
                    tally.dead_ends.append(f"{name}: {text}")
                if reason not in ("EOS", "CONSTRAINT_COMPLETE"):
                    continue
                why = why_wrong(validator, text)
                if why is not None:
                    tally.wrong.append(f"{name}: {text}: {why}")
        print(f"\n{len(schemas)} schemas: {tally.valid} documents valid, {len(tally.wrong)} not; "
              f"ends: {dict(tally.reasons)}; refused: {dict(tally.refused)}; drawn in "
              f"{drawn - begin:.1f} s, checked in {time.monotonic() - drawn:.1f} s", flush=True)
        return tally

    def test_documents_of_own_schemas(self):
        tally = self.draw_all(SCHEMAS, 2, OUTPUTS, False)
        self.assertEqual(tally.wrong, [])
        # Of items that are objects, and repeated names: json_shapes.h.
        self.assertLess(len(tally.dead_ends), sum(tally.reasons.values()) / 10, tally.dead_ends)
        self.assertGreater(tally.valid, sum(tally.reasons.values()) / 2)

    def test_documents_of_real_schemas(self):
        if not REAL_SCHEMAS.exists():
            self.skipTest(f"{REAL_SCHEMAS.name} is not there")
        schemas = {}
        with tarfile.open(REAL_SCHEMAS) as archive:
            names = sorted(name for name in archive.getnames() if name.endswith(".json"))
            for name in names[::STRIDE]:
                schemas[name] = json.load(archive.extractfile(name))["schema"]
        bias = {}
        for text, by in ENDS.items():
            token, = self.tokenize(text)
            bias[token] = by
        tally = self.draw_all(schemas, 1, 1, True, logit_bias=bias)
        self.assertEqual(tally.wrong, [])
        self.assertGreater(tally.valid, len(schemas) / 2)

    def random_cases(self, count):
        """Random schemas of all drafts, each with values that both packages judge alike."""
        for draft in DRAFTS:
            schemas = RandomSchemas(SEED, draft)
            for _ in range(count // len(DRAFTS)):
                schema = schemas.document()
                validator = validator_of(schema)
                other = jsonschema_rs.validator_for(schema, validate_formats=True)
                verdicts = [(value, is_valid(validator, value), other.is_valid(value))
                            for value in schemas.values(VALUES)]
                yield {"schema": schema, "tests": [
                    {"data": value, "valid": first} for value, first, second in verdicts
                    if first == second]}

    def test_random_schemas_take_what_both_packages_take(self):
        with tempfile.TemporaryDirectory(prefix="tlm-schemas-") as folder:
            cases = list(self.random_cases(RANDOM_SCHEMAS))
            pathlib.Path(folder, "cases.json").write_text(json.dumps(cases), encoding="utf-8")
            result = pathlib.Path(folder, "result")
            subprocess.run([BIN_DIR.parent / "benchmarks" / "mask_bench", "--property_order=any",
                            f"--tokenizer={SOURCE_DIR}/model/demo", f"--schemas={folder}",
                            f"--json={result}"], stdout=subprocess.DEVNULL, check=False)
            report = json.loads(result.read_text(encoding="utf-8"))
        wrong = {verdict: [(cases[int(case["name"].split("#")[1])]["schema"], document["text"])
                           for case in report["results"] for document in case.get("wrong", ())
                           if document["valid"] != verdict] for verdict in (True, False)}
        # Also where no value is valid, or the constraint would be too large.
        refused = {name: number for name, number in report["refusals"].items()
                   if "unsatisfiable" not in name}
        print(f"\n{report['schemas']} schemas, {report['documents']} documents, of "
              f"{RANDOM_SCHEMAS * VALUES} those that both packages judge alike; "
              f"{report['refused_schemas']} schemas refused, other than as unsatisfiable: "
              f"{refused}; accepted and invalid: {len(wrong[True])}, rejected and valid: "
              f"{len(wrong[False])}", flush=True)
        self.assertEqual(wrong[True], [])
        # In 2019-09 these validators count items that match `contains` as evaluated.
        self.assertLess(len(wrong[False]), report["documents"] / 1000, wrong[False])
        self.assertLess(sum(refused.values()), RANDOM_SCHEMAS / 50, refused)
        self.assertGreater(report["documents"], RANDOM_SCHEMAS * VALUES * 0.9)

    def test_documents_of_random_schemas(self):
        schemas = {f"{SEED} {i}": case["schema"]
                   for i, case in enumerate(self.random_cases(len(DRAFTS) * 40))}
        tally = self.draw_all(schemas, 1, 2, True)
        self.assertEqual(tally.wrong, [])
        self.assertGreater(tally.valid, len(schemas))


if __name__ == "__main__":
    unittest.main()
