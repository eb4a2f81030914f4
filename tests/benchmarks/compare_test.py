"""compare.py against peers that say what they are told. Not a measurement."""

import json
import os
import pathlib
import sys
import unittest

from program_case import SCRIPTS_DIR, ProgramCase

ENGINE_BENCH = pathlib.Path(os.environ["TLM_BENCHMARKS_DIR"]) / "engine_bench"

# Stands for llama-bench and llama-batched-bench: answers what it is asked for, at the rates given.
FAKE_PEER = """#!{python}
import json, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert arguments["-m"].endswith("model.gguf") and arguments["-t"] == "1", arguments
print("a warning, as real ones print")
if "-npl" in arguments:
    for count in arguments["-npl"].split(","):
        print(json.dumps({{"pl": int(count), "tg": int(arguments["-ntg"]), "speed_tg": {rate}}}))
else:
    print(json.dumps([{{"n_prompt": int(arguments["-p"]), "n_gen": int(arguments["-n"]),
                       "n_depth": int(arguments.get("-d", 0)), "samples_ts": [{rate}],
                       "model_n_params": {params}, "build_commit": "fake"}}]))
"""

# Stands for engine_bench: decodes by rates that are known for every kind of weights.
FAKE_ENGINE = """#!{python}
import json, sys
flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
assert flags["--threads"] == "1", flags
if flags.get("--model", "").endswith("model.gguf"):
    assert "--weights" not in flags and "--preset" not in flags, flags
    rate = 300.0
else:
    assert flags["--preset"] == "cs336-tinystories", flags
    rate = {{"int8": 200.0, "int4:128": 350.0}}[flags["--weights"]]
json.dump({{"model_n_params": 1000, "weight_bytes_read": 500,
           "ceilings": {{"read_bytes_per_second": 40000.0}},
           "tests": [{{"n_prompt": 0, "n_gen": 4, "n_depth": 0, "n_parallel": 1, "bytes": 500,
                      "tokens_per_second": rate, "seconds": 1 / rate}}]}},
          open(flags["--json"], "w"))
"""

# Stand for the modules that openvino_bench.py imports: a token takes 1 / {rate} seconds, of a prompt
# or decoded.
FAKE_OPENVINO = """class Type:
    i64 = "i64"
class Shape(tuple):
    pass
class Tensor:
    def __init__(self, dtype, shape):
        self.data = [None] * shape[0]
"""
FAKE_GENAI = """import types
__version__ = "fake"
class GenerationConfig:
    pass
class TokenizedInputs:
    def __init__(self, ids, mask):
        assert [len(row) for row in ids.data] == [sum(row) for row in mask.data]
        assert all(0 <= token < 10000 for row in ids.data for token in row)
        self.ids = ids.data
def milliseconds(tokens):
    return lambda: types.SimpleNamespace(mean=1e3 * tokens / {rate})
class LLMPipeline:
    def __init__(self, model, device, INFERENCE_NUM_THREADS, INFERENCE_PRECISION_HINT):
        assert (device, INFERENCE_NUM_THREADS, INFERENCE_PRECISION_HINT) == ("CPU", 1, "f32")
    def generate(self, inputs, config):
        assert config.ignore_eos and not config.do_sample
        sequences, tokens = len(inputs.ids), config.max_new_tokens
        prompt = len(inputs.ids[0])
        return types.SimpleNamespace(perf_metrics=types.SimpleNamespace(
            get_ttft=milliseconds(prompt),
            get_generate_duration=milliseconds(prompt + sequences * (tokens - 1)),
            get_num_generated_tokens=lambda: sequences * tokens))
"""


class CompareTest(ProgramCase):
    def quick_engine_bench(self):
        """engine_bench without the seconds in which it measures the machine."""
        return self.program("quick_engine_bench", "#!/bin/sh\nexec "
                            f"'{ENGINE_BENCH}' \"$@\" --ceilings=false\n")

    def compare(self, *flags):
        return self.run_program(
            SCRIPTS_DIR / "compare.py", "--preset=cs336-tinystories", "--weights_dtype=float32",
            "--threads=1", f"--engine_bench={self.quick_engine_bench()}",
            f"--json={self.directory / 'compare.json'}", *flags)

    def compare_with_llama(self, rate, *flags, params=22696448):
        """compare.py against a peer that says `rate` to everything."""
        peer = self.program("llama-bench",
                            FAKE_PEER.format(python=sys.executable, rate=rate, params=params))
        (self.directory / "model.gguf").write_bytes(b"GGUF")
        return self.compare(f"--peer={peer}", f"--batched_peer={peer}", "--rounds=2",
                            f"--gguf={self.directory / 'model.gguf'}", "--tests=pp16,tg4,tg4x2",
                            *flags)

    def test_comparison_prints_ratios_and_bars(self):
        for rate, code, word in ((1e-3, 0, " met (>= 1.1)"), (1e9, 1, "NOT MET (>= 1.1)")):
            result = self.compare_with_llama(rate)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertIn(word, result.stdout)
            report = self.report("compare.json")
            self.assertEqual([test["test"] for test in report["tests"]], ["pp16", "tg4", "tg4 x 2"])
            self.assertEqual([test["bar"] for test in report["tests"]], [1.4, 1.1, None])
            for test in report["tests"]:
                self.assertEqual(len(test["samples"]["ours"]), 2)
                self.assertEqual(test["peer"], rate)
                self.assertAlmostEqual(test["ratio"], test["ours"] / rate)

    def test_a_file_is_held_against_the_peer_and_against_our_own_weights(self):
        engine = self.program("engine_bench", FAKE_ENGINE.format(python=sys.executable))
        flags = ["--weights_dtype=gguf", "--tests=tg4", f"--engine_bench={engine}"]
        for rate, code in ((150.0, 0), (250.0, 1)):
            result = self.compare_with_llama(rate, *flags, params=1000)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            report = self.report("compare.json")
            test, = report["tests"]
            # The file has 4 bytes for 1,000 parameters: less than 6 bits each.
            self.assertEqual((test["bar"], test["machine_bar"]), (1.5, 0.85))
            self.assertAlmostEqual(test["ratio"], 300 / rate)
            self.assertAlmostEqual(test["of_machine"], 500 * 300 / 40000)
            own = {row["weights"]: (row["ratio"], row["bar"]) for row in report["own"]}
            self.assertEqual(own, {"int8": (1.0, None), "int4:128": (1.75, 1.7),
                                   "4 bits": (1.5, 1.45)})

    def test_comparison_says_why_it_cannot_be_made(self):
        for flags, params, message in (
                (["--peer=/nowhere/llama-bench"], 22696448, "there is no such file"),
                (["--batched_peer=/bin/true"], 22696448, "no result"),
                (["--peer=/bin/false"], 22696448, "exited with 1"),
                (["--tests=tg4@d4096"], 22696448, "within the context"),
                ([], 1000, "the models differ")):
            with self.subTest(message):
                result = self.compare_with_llama(1.0, *flags, params=params)
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)
                self.assertNotIn("Traceback", result.stderr)

    def fake_openvino(self, rate, params):
        """A folder as install_openvino.sh leaves it after the first comparison, and a model in it."""
        folder = self.directory / "openvino"
        model = folder / "models" / "cs336-tinystories-float32"
        for made in (folder / "bin", folder / "modules", model):
            made.mkdir(parents=True, exist_ok=True)
        for name, text in (("openvino", FAKE_OPENVINO), ("openvino_genai", FAKE_GENAI)):
            (folder / "modules" / f"{name}.py").write_text(text.replace("{rate}", str(rate)),
                                                           encoding="utf-8")
        self.program("openvino/bin/python", f"#!/bin/sh\nPYTHONPATH={folder / 'modules'} exec "
                                            f"{sys.executable} \"$@\"\n")
        (model / "config.json").write_text(json.dumps({"vocab_size": 10000}), encoding="utf-8")
        (model / "tlm_bench.json").write_text(json.dumps(
            {"model_type": "fake", "weights_dtype": "float32", "model_n_params": params}),
            encoding="utf-8")
        return folder

    def compare_with_openvino(self, folder, *flags):
        return self.compare("--peer=openvino", f"--openvino={folder}", "--rounds=1", *flags)

    def test_openvino_takes_turns_as_llama_cpp_does(self):
        result = self.compare_with_openvino(self.fake_openvino(500.0, 22696448),
                                            "--tests=pp16,tg4x2", "--rounds=2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report("compare.json")
        self.assertEqual(report["peer"]["build_commit"], "openvino-genai fake")
        self.assertEqual([test["test"] for test in report["tests"]], ["pp16", "tg4 x 2"])
        for test in report["tests"]:
            self.assertEqual(len(test["samples"]["peer"]), 2)
            self.assertAlmostEqual(test["peer"], 500.0)
            self.assertIsNone(test["bar"])
            self.assertIsNone(test["of_machine"])

    def test_a_comparison_with_openvino_says_why_it_cannot_be_made(self):
        there = self.fake_openvino(500.0, 1000)
        empty = self.directory / "empty"
        (empty / "bin").mkdir(parents=True)
        (empty / "bin" / "python").symlink_to(sys.executable)
        (empty / "models").symlink_to(there / "models")
        for folder, flags, code, message in (
                (there, ["--tests=pp16"], 1, "the models differ"),
                (self.directory / "nowhere", [], 1, "install_openvino.sh DIR installs it"),
                (empty, ["--tests=pp16"], 1, "install_openvino.sh installs it"),
                (there, ["--preset=unknown"], 1, "invalid choice: 'unknown'"),
                (there, ["--weights_dtype=float16"], 2, "no weights of float16"),
                (there, ["--peer=/bin/true"], 2, "--openvino is for --peer=openvino")):
            with self.subTest(message):
                result = self.compare_with_openvino(folder, *flags)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(message, result.stderr)
                self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
