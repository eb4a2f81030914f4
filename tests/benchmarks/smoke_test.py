"""The benchmarks run, and what they report adds up. Not a measurement: loads are tiny."""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
BENCHMARKS_DIR = pathlib.Path(os.environ["TLM_BENCHMARKS_DIR"])
SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
DEMO_MODEL = SOURCE_DIR / "model" / "demo"

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


class SmokeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tlm-benchmark-test-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def run_benchmark(self, name, *flags, server_flags=None):
        """Runs it to a good end; its JSON and its standard output."""
        path = self.directory / "result.json"
        command = [BENCHMARKS_DIR / name, f"--json={path}", *flags]
        if server_flags is not None:
            command += [f"--server={BIN_DIR / 'tlm-server'}", "--", f"--model={DEMO_MODEL}",
                        "--threads=1", *server_flags]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return json.loads(path.read_text(encoding="utf-8")), result.stdout

    def check_point(self, point):
        requests = point["requests"]
        self.assertEqual(requests["offered"],
                         requests["completed"] + requests["refused"] + requests["failed"])
        self.assertEqual(requests["offered"] - requests["completed"],
                         sum(ending["count"] for ending in point["not_completed"]))
        self.assertLessEqual(requests["good"], requests["completed"])
        self.assertGreater(point["window_s"], 0)
        for name, summary in point["latency_s"].items():
            if summary is None:
                continue
            self.assertGreater(summary["count"], 0, name)
            self.assertLessEqual(0, summary["p50"], name)
            self.assertLessEqual(summary["p50"], summary["p90"], name)
            self.assertLessEqual(summary["p90"], summary["p99"], name)
            self.assertLessEqual(summary["p99"], summary["max"], name)

    def test_closed_and_open_loops_report_every_request(self):
        plot = self.directory / "plot.svg"
        result, output = self.run_benchmark(
            "serve_bench", "--concurrency=2", "--rate=40", "--requests=12", "--warmup=0s",
            "--prompt_tokens=4..16", "--output_tokens=3", f"--plot={plot}", server_flags=[])
        self.assertEqual([point["loop"] for point in result["points"]], ["closed", "open"])
        self.assertGreater(result["machine"]["cpus"], 0)
        self.assertEqual(result["server"]["vocab_size"], 2048)
        for point in result["points"]:
            self.check_point(point)
            self.assertEqual(point["requests"]["offered"], 12)
            self.assertEqual(point["requests"]["completed"], 12)
            self.assertEqual(point["latency_s"]["ttft"]["count"], 12)
            # 12 requests of 3 tokens, however many events they came in.
            self.assertAlmostEqual(point["per_second"]["output_tokens"] * point["window_s"], 36)
            self.assertIn(f"{point['load']:g}", output)
        self.assertIn("<svg", plot.read_text(encoding="utf-8"))

    def test_the_other_protocol_gives_as_many_tokens(self):
        result, _ = self.run_benchmark(
            "serve_bench", "--vllm", "--concurrency=2", "--requests=12", "--warmup=0s",
            "--prompt_tokens=4..16", "--output_tokens=3", server_flags=["--facades=vllm"])
        point, = result["points"]
        self.check_point(point)
        self.assertEqual(point["requests"]["completed"], 12)
        self.assertAlmostEqual(point["per_second"]["output_tokens"] * point["window_s"], 36)

    def test_refusals_are_counted_with_their_reason(self):
        result, _ = self.run_benchmark(
            "serve_bench", "--rate=2000", "--requests=60", "--warmup=0s", "--prompt_tokens=16",
            "--output_tokens=32",
            server_flags=["--max_running_requests=1", "--max_queued_requests=1"])
        point = result["points"][0]
        self.check_point(point)
        self.assertEqual(point["requests"]["offered"], 60)
        self.assertGreater(point["requests"]["refused"], 0)
        self.assertGreater(point["requests"]["completed"], 0)
        refusal = next(end for end in point["not_completed"] if end["outcome"] == "refused")
        self.assertEqual((refusal["code"], refusal["reason"]), ("RESOURCE_EXHAUSTED", "QUEUE_FULL"))
        self.assertEqual(refusal["with_retry_time"], refusal["count"])

    def test_same_seed_asks_the_same(self):
        prompt_tokens = []
        for _ in range(2):
            result, _ = self.run_benchmark(
                "serve_bench", "--concurrency=1", "--requests=10", "--warmup=0s", "--seed=7",
                "--prompt_tokens=4..64", "--output_tokens=2", server_flags=[])
            point = result["points"][0]
            tokens = point["per_second"]["total_tokens"] * point["window_s"]
            prompt_tokens.append(round(tokens) - 20)
        self.assertEqual(prompt_tokens[0], prompt_tokens[1])

    def test_long_prompt_is_measured_beside_running_streams(self):
        result, _ = self.run_benchmark(
            "long_prompt_bench", "--streams=2", "--stream_prompt_tokens=8",
            "--stream_output_tokens=1000", "--prompt_tokens=600", "--settle=20ms",
            "--undisturbed=50ms", "--repetitions=2",
            # Slowly enough that the streams outlive the prompt: the model's context is short.
            server_flags=["--isa=portable"])
        self.assertEqual(len(result["runs"]), 2)
        for run in result["runs"]:
            self.assertGreater(run["ttft_s"], 0)
            self.assertGreater(run["undisturbed_gap_s"]["count"], 0)
            self.assertAlmostEqual(
                run["worst_ratio"],
                run["disturbed_gap_s"]["max"] / run["undisturbed_gap_s"]["p99"])

    def test_served_steps_are_held_against_the_models(self):
        path = self.directory / "result.json"
        script = pathlib.Path(os.environ["TLM_SOURCE_DIR"]) / "tests/benchmarks/server_cost.py"
        result = subprocess.run(
            [sys.executable, "-B", script, f"--build={BIN_DIR.parent}", "--streams=1,2",
             "--threads=1", "--output_tokens=8", "--rounds=2", "--duration=500ms", "--warmup=0s",
             f"--json={path}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        # Whether the bars are met is not the question here.
        self.assertIn(result.returncode, (0, 1), result.stdout + result.stderr)
        document = json.loads(path.read_text(encoding="utf-8"))
        rounds = document["results"][:4]
        self.assertEqual([entry["streams"] for entry in rounds], [1, 2, 1, 2])
        for entry in rounds:
            self.assertGreater(entry["throughput_ratio"], 0)
            self.assertGreater(entry["client_step_s"], 0)
            self.assertLess(entry["server_percent"], entry["not_model_percent"])
            self.assertGreater(entry["tokens_per_event"], 0)
        self.assertEqual(len(document["verdicts"]), 4)
        self.assertEqual(result.returncode == 0, all(row["met"] for row in document["verdicts"]))

    def test_a_facade_is_held_against_tlm_v1(self):
        path = self.directory / "result.json"
        done = subprocess.run(
            [sys.executable, "-B", SOURCE_DIR / "tests/benchmarks/server_cost.py",
             "--facade=vllm", "--rounds=1", "--duration=1s", "--warmup=0s", "--output_tokens=16",
             "--streams=2", "--threads=1", f"--build={BIN_DIR.parent}", f"--json={path}"],
            capture_output=True, text=True, timeout=120, check=False)
        self.assertTrue(path.exists(), done.stdout + done.stderr)  # whether the bar is met or not
        document = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(len(document["verdicts"]), 1)
        self.assertGreater(min(document["results"][0]["without_model_us"].values()), 0)

    def test_streams_are_measured_without_a_model(self):
        result, _ = self.run_benchmark("stream_bench", "--streams=1,16", "--pace=0,2000",
                                       "--duration=500ms", "--warmup=200ms")
        self.assertEqual([(point["streams"], point["pace_tokens_per_second"])
                          for point in result["points"]],
                         [(1, 0), (16, 0), (1, 2000), (16, 2000)])
        for point in result["points"]:
            self.assertGreater(point["tokens_per_second"], 0)
            self.assertGreaterEqual(point["tokens_per_second"], point["messages_per_second"])
            self.assertGreater(point["server_cpu_us_per_token"], 0)
            if point["pace_tokens_per_second"]:
                self.assertLess(point["tokens_per_second"], 1.2 * 2000)

    def test_engine_bench_reports_rates_and_ceilings(self):
        result, output = self.run_benchmark(
            "engine_bench", "--backend=cpu", "--preset=cs336-tinystories", "--prompts=16,2048",
            "--decode=4", "--sequences=1,3", "--repetitions=3", "--threads=1", "--isa=portable")
        self.assertEqual([test["test"] for test in result["tests"]], ["pp16", "tg4", "tg4 x 3"])
        # The context of the model is 1,024.
        self.assertEqual(result["left_out"], ["pp2048", "tg4 @ d8192"])
        self.assertEqual(result["arithmetic"], "portable")
        self.assertEqual(result["n_threads"], 1)
        self.assertEqual(result["model_n_params"], 22696448)
        for name in ("read_bytes_per_second", "matmul_flops_per_second",
                     "product_flops_per_second"):
            self.assertGreater(result["ceilings"][name], 0)
        self.assertIn("from the L2 cache", result["ceilings"]["operands"])
        for test in result["tests"]:
            self.assertEqual(len(test["samples_ts"]), 3)
            self.assertIn(sorted(test["samples_ts"])[1], [test["tokens_per_second"]])
            tokens = test["n_prompt"] or test["n_parallel"]
            self.assertTrue(math.isclose(test["seconds"] * test["tokens_per_second"], tokens,
                                         rel_tol=1e-9))
            self.assertGreater(test["fraction_of_ceiling"], 0)
            self.assertIn(test["test"], output)

    def test_what_was_measured_before_the_end_stays(self):
        for name, flags, measured in (
                ("engine_bench", ("--prompts=", "--decode=2", "--sequences=1", "--long_depth=0",
                                  "--requests=1", "--request_prompt=1", "--request_output=1000"),
                 "tests"),
                ("ops_bench", ("--rows=1", "--contexts=64", "--seconds=0.2"), "operations")):
            path = self.directory / f"{name}.json"
            with subprocess.Popen(
                    [BENCHMARKS_DIR / name, "--backend=cpu", "--preset=cs336-tinystories",
                     "--threads=1", "--ceilings=false", f"--json={path}", *flags],
                    stdout=subprocess.DEVNULL) as process:
                while not path.exists() and process.poll() is None:
                    time.sleep(0.001)
                process.kill()
            report = json.loads(path.read_text(encoding="utf-8"))
            self.assertGreaterEqual(len(report[measured]), 1)
            self.assertLess(process.returncode, 0, "it ended before")

    def test_results_may_go_to_a_pipe(self):
        done = subprocess.run(
            [BENCHMARKS_DIR / "ops_bench", "--backend=cpu", "--preset=cs336-tinystories",
             "--threads=1", "--ceilings=false", "--rows=1", "--contexts=64", "--seconds=0.01",
             "--json=/dev/stdout"], capture_output=True, text=True, timeout=120, check=True)
        self.assertIn('"operations": [', done.stdout)

    def test_engine_bench_measures_a_model_directory_with_8_bit_weights(self):
        result, _ = self.run_benchmark(
            "engine_bench", "--backend=cpu", f"--model={DEMO_MODEL}", "--weights=int8",
            "--prompts=8", "--decode=2", "--sequences=2", "--long_depth=0", "--repetitions=1",
            "--ceilings=false")
        self.assertEqual(result["weights_dtype"], "I8")
        self.assertEqual([test["test"] for test in result["tests"]], ["pp8", "tg2 x 2"])
        self.assertNotIn("ceilings", result)

    def speculate(self, *flags):
        """speculation_bench on a text of its own; whether bars are met, its JSON and its output."""
        words = random.Random(1).choices([f"{a}{b}" for a in "bdfgklmnprst" for b in
                                          ("a", "ell", "inder", "oman", "ust")], k=4000)
        corpus = self.directory / "corpus.txt"
        corpus.write_text("\n".join(" ".join(words[i:i + 12]) + "." for i in
                                    range(0, len(words), 12)), encoding="utf-8")
        path = self.directory / "result.json"
        result = subprocess.run(
            [BENCHMARKS_DIR / "speculation_bench", "--backend=cpu", f"--corpus={corpus}",
             "--threads=1", "--prompt_tokens=96", "--output_tokens=40", "--rounds=1",
             f"--json={path}", *flags],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        self.assertIn(result.returncode, (0, 1), result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")
        report = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(result.returncode == 0,
                         all(test.get("met", True) for test in report["tests"]) and
                         report["tests"][-1]["found"] == report["tests"][-1]["changed"])
        return report, result.stdout

    def check_speculation(self, report):
        for test in report["tests"][:-1]:
            self.assertEqual(test["output_tokens"], report["output_tokens"] * test["streams"])
            self.assertLessEqual(test["accepted_tokens"], test["drafted_tokens"])
            self.assertEqual(test["met"] if test["bar"] else None,
                             test["ratio"] >= test["bar"] if test["bar"] else None)
            self.assertAlmostEqual(
                test["ratio"], test["on_tokens_per_second"] / test["off_tokens_per_second"])
        verify = report["tests"][-1]
        self.assertEqual((verify["task"], verify["changed"], verify["found"]), ("verify", 6, 6))

    def test_guesses_are_counted_and_change_no_token(self):
        report, output = self.speculate(f"--model={DEMO_MODEL}", "--streams=1,3",
                                        "--speculation=always", "--changed=6")
        self.check_speculation(report)
        names = ["edit", "rewrite", "extract", "json", "quote", "prose", "greedy", "sampled"]
        tests = report["tests"][:-1]
        self.assertEqual([(test["streams"], test["task"]) for test in tests],
                         [(streams, name) for streams in (1, 3) for name in names])
        for test in tests:
            copies = test["task"] in ("edit", "rewrite", "extract", "json", "quote")
            self.assertEqual(test["taught"], test["task"] not in ("greedy", "sampled"))
            self.assertEqual(test["forced_tokens"]["off"] > 0, test["task"] == "json")
            if copies:
                self.assertGreater(test["accepted_tokens"], 0)
                self.assertGreater(test["repeated"], 0)
            self.assertEqual(test["bar"] is not None, test["streams"] == 1 and test["task"] in (
                "edit", "extract", "json", "prose", "sampled"))
        self.assertIn("changed tokens found: 6 of 6: met (>= 6)", output)

    def test_a_draft_model_agrees_as_often_as_it_is_told(self):
        report, _ = self.speculate(
            "--preset=cs336-tinystories", "--draft_preset=cs336-tinystories",
            f"--tokenizer={DEMO_MODEL}", "--streams=1", "--tasks=prose", "--draft_agreement=1",
            # It would not be asked where its prompt costs much beside the output.
            "--prompt_tokens=16", "--output_tokens=160", "--speculation=always", "--changed=6")
        self.check_speculation(report)
        without, with_it = report["tests"][:-1]
        self.assertEqual((without["draft_agreement"], with_it["draft_agreement"]), (None, 1))
        self.assertEqual((without["bar"], with_it["bar"]), (0.98, 0.98))
        # Prose hardly repeats itself.
        self.assertLess(without["accepted_tokens"], 40)
        self.assertGreater(with_it["accepted_tokens"], 120)

    def test_speculation_bench_says_what_is_wrong(self):
        corpus = self.directory / "corpus.txt"
        corpus.write_text("few words", encoding="utf-8")
        for flags, message in (
                ([], "give a --corpus"),
                ([f"--corpus={corpus}"], "the corpus has 2 plain words, the least is 1000"),
                ([f"--corpus={corpus}", "--draft_agreement=1.5"],
                 "--draft_agreement has '1.5', not 0 to 1"),
                ([f"--corpus={corpus}", "--rounds=0"], "--rounds is 0, not 1 to"),
                ([f"--corpus={corpus}", "--speculation=off"], "not auto or always")):
            with self.subTest(message):
                result = subprocess.run(
                    [BENCHMARKS_DIR / "speculation_bench", f"--model={DEMO_MODEL}", *flags],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                    check=False)
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)

    def test_weights_loss_compares_formats_with_the_weights_as_stored(self):
        text = self.directory / "text.txt"
        text.write_text("The prince said that he would come in the evening. " * 30,
                        encoding="utf-8")
        result, output = self.run_benchmark(
            "weights_loss", "--backend=cpu", "--threads=1", f"--model={DEMO_MODEL}",
            "--weights=int8,int4:128", f"--text={text}", "--window=64", "--stride=32",
            f"--calibration={text}")
        self.assertEqual(result["bytes"], text.stat().st_size)
        self.assertGreater(result["positions"], 64)
        stored, *changed = result["rows"]
        self.assertEqual((stored["ratio"], stored["logits_relative_l2"]), (1, 0))
        self.assertEqual([row["weights"] for row in changed], ["int8", "int4:128"])
        for row in changed:
            self.assertIn(f"{row['bits_per_byte']:.5f}", output)
            self.assertGreater(row["logits_relative_l2"], 0)
            self.assertLess(row["stored_bytes"], stored["stored_bytes"])
            self.assertTrue(math.isclose(row["bits_per_byte"],
                                         stored["bits_per_byte"] * row["ratio"], rel_tol=1e-9))
        self.assertLess(changed[0]["logits_relative_l2"], changed[1]["logits_relative_l2"])

    def test_ops_bench_measures_every_operation(self):
        result, output = self.run_benchmark(
            "ops_bench", "--backend=cpu", "--preset=cs336-tinystories", "--rows=1,4",
            "--contexts=64", "--prefixes=0,64", "--seconds=0.001", "--threads=1", "--isa=portable")
        names = [operation["operation"] for operation in result["operations"]]
        for part in ("qkv", "output", "gate_up", "down", "head", "add + norm", "prepare 1 x 64",
                     "attention 4 x 64", "attention of 4 after 64"):
            self.assertTrue(any(name.startswith(part) for name in names), part)
        self.assertIn("GB/s read", output)
        for operation in result["operations"]:
            self.assertGreater(operation["seconds"], 0)
            self.assertGreater(operation["bytes"], 0)

    def test_ops_bench_stores_matrices_as_models_do(self):
        measured = {}
        for weights in ("auto", "int8", "int4"):
            result, _ = self.run_benchmark(
                "ops_bench", "--backend=cpu", "--preset=cs336-tinystories", "--rows=1",
                f"--weights={weights}", "--contexts=64", "--prefixes=0", "--seconds=0.001",
                "--threads=1", "--ceilings=false")
            self.assertEqual(result["weights"], weights)
            measured[weights] = {operation["operation"].split()[0]: operation["bytes"]
                                 for operation in result["operations"]}
        self.assertLess(measured["int4"]["down"], measured["int8"]["down"])
        for name in ("qkv", "head"):  # 4 bits are for feed-forward networks
            self.assertEqual(measured["int4"][name], measured["int8"][name])
            self.assertLess(measured["int8"][name], measured["auto"][name])

    def quick_engine_bench(self):
        """engine_bench without the seconds in which it measures the machine."""
        path = self.directory / "quick_engine_bench"
        path.write_text(f"#!/bin/sh\nexec '{BENCHMARKS_DIR / 'engine_bench'}' \"$@\" "
                        "--ceilings=false\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def compare(self, rate, *flags, params=22696448):
        """compare.py against a peer that says `rate` to everything."""
        peer = self.directory / "llama-bench"
        peer.write_text(FAKE_PEER.format(python=sys.executable, rate=rate, params=params),
                        encoding="utf-8")
        peer.chmod(0o755)
        (self.directory / "model.gguf").write_bytes(b"GGUF")
        return subprocess.run(
            [SOURCE_DIR / "tests" / "benchmarks" / "compare.py", f"--peer={peer}",
             f"--batched_peer={peer}", f"--gguf={self.directory / 'model.gguf'}", "--rounds=2",
             "--preset=cs336-tinystories", "--weights_dtype=float32", "--threads=1",
             "--tests=pp16,tg4,tg4x2", f"--engine_bench={self.quick_engine_bench()}",
             f"--json={self.directory / 'compare.json'}", *flags],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)

    def test_comparison_prints_ratios_and_bars(self):
        for rate, code, word in ((1e-3, 0, " met (>= 1.1)"), (1e9, 1, "NOT MET (>= 1.1)")):
            result = self.compare(rate)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertIn(word, result.stdout)
            report = json.loads((self.directory / "compare.json").read_text(encoding="utf-8"))
            self.assertEqual([test["test"] for test in report["tests"]], ["pp16", "tg4", "tg4 x 2"])
            self.assertEqual([test["bar"] for test in report["tests"]], [1.4, 1.1, None])
            for test in report["tests"]:
                self.assertEqual(len(test["samples"]["ours"]), 2)
                self.assertEqual(test["peer"], rate)
                self.assertAlmostEqual(test["ratio"], test["ours"] / rate)

    def test_scripts_name_the_build_of_a_missing_program(self):
        flag = f"--build={self.directory}"
        for script, *flags in (("overload.py", flag), ("long_prompt.py", flag),
                               ("prefix_cache.py", flag), ("neighbours.py", flag),
                               ("server_cost.py", flag), ("start_time.py", flag),
                               ("compare.py", f"--engine_bench={self.directory}/engine_bench",
                                "--peer=/nowhere/llama-bench", "--gguf=model.gguf",
                                "--preset=cs336-tinystories")):
            with self.subTest(script):
                result = subprocess.run(
                    [SOURCE_DIR / "tests" / "benchmarks" / script, *flags],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(result.returncode, 1, result.stderr)
                line, = result.stderr.splitlines()
                self.assertIn(str(self.directory), line)
                self.assertIn("tests/run.sh --build-only", line)

    def test_a_file_is_held_against_the_peer_and_against_our_own_weights(self):
        engine = self.directory / "engine_bench"
        engine.write_text(FAKE_ENGINE.format(python=sys.executable), encoding="utf-8")
        engine.chmod(0o755)
        flags = ["--weights_dtype=gguf", "--tests=tg4", f"--engine_bench={engine}"]
        for rate, code in ((150.0, 0), (250.0, 1)):
            result = self.compare(rate, *flags, params=1000)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            report = json.loads((self.directory / "compare.json").read_text(encoding="utf-8"))
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
                result = self.compare(1.0, *flags, params=params)
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
        python = folder / "bin" / "python"
        python.write_text(f"#!/bin/sh\nPYTHONPATH={folder / 'modules'} exec {sys.executable} \"$@\"\n",
                          encoding="utf-8")
        python.chmod(0o755)
        (model / "config.json").write_text(json.dumps({"vocab_size": 10000}), encoding="utf-8")
        (model / "tlm_bench.json").write_text(json.dumps(
            {"model_type": "fake", "weights_dtype": "float32", "model_n_params": params}),
            encoding="utf-8")
        return folder

    def compare_with_openvino(self, folder, *flags):
        return subprocess.run(
            [SOURCE_DIR / "tests" / "benchmarks" / "compare.py", "--peer=openvino",
             f"--openvino={folder}", "--preset=cs336-tinystories", "--weights_dtype=float32",
             "--rounds=1", "--threads=1", f"--engine_bench={self.quick_engine_bench()}",
             f"--json={self.directory / 'compare.json'}", *flags],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)

    def test_openvino_takes_turns_as_llama_cpp_does(self):
        result = self.compare_with_openvino(self.fake_openvino(500.0, 22696448),
                                            "--tests=pp16,tg4x2", "--rounds=2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads((self.directory / "compare.json").read_text(encoding="utf-8"))
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
