"""The benchmarks run, and what they report adds up. Not a measurement: loads are tiny."""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import unittest

from program_case import DEMO_MODEL, SCRIPTS_DIR, ProgramCase

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
BENCHMARKS_DIR = pathlib.Path(os.environ["TLM_BENCHMARKS_DIR"])


class SmokeTest(ProgramCase):
    def run_benchmark(self, name, *flags, server_flags=None):
        """Runs it to a good end; its JSON and its standard output."""
        command = [BENCHMARKS_DIR / name, f"--json={self.directory / 'result.json'}", *flags]
        if server_flags is not None:
            command += [f"--server={BIN_DIR / 'tlm-server'}", "--", f"--model={DEMO_MODEL}",
                        "--threads=1", *server_flags]
        result = self.run_program(*command)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return self.report(), result.stdout

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

    def server_cost(self, *flags):
        """What server_cost.py says and reports; whether the bars are met is not the question."""
        result = self.run_program(
            sys.executable, "-B", SCRIPTS_DIR / "server_cost.py", f"--build={BIN_DIR.parent}",
            "--threads=1", "--warmup=0s", f"--json={self.directory / 'result.json'}", *flags)
        self.assertIn(result.returncode, (0, 1), result.stdout + result.stderr)
        return result, self.report()

    def test_served_steps_are_held_against_the_models(self):
        result, document = self.server_cost("--streams=1,2", "--output_tokens=8", "--rounds=2",
                                            "--duration=500ms")
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
        _, document = self.server_cost("--facade=vllm", "--rounds=1", "--duration=1s",
                                       "--output_tokens=16", "--streams=2")
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
        done = self.run_program(
            BENCHMARKS_DIR / "ops_bench", "--backend=cpu", "--preset=cs336-tinystories",
            "--threads=1", "--ceilings=false", "--rows=1", "--contexts=64", "--seconds=0.01",
            "--json=/dev/stdout")
        self.assertEqual(done.returncode, 0, done.stderr)
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
        result = self.run_program(
            BENCHMARKS_DIR / "speculation_bench", "--backend=cpu", f"--corpus={corpus}",
            "--threads=1", "--prompt_tokens=96", "--output_tokens=40", "--rounds=1",
            f"--json={self.directory / 'result.json'}", *flags)
        self.assertIn(result.returncode, (0, 1), result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")
        report = self.report()
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
                result = self.run_program(BENCHMARKS_DIR / "speculation_bench",
                                          f"--model={DEMO_MODEL}", *flags)
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

    def test_scripts_name_the_build_of_a_missing_program(self):
        flag = f"--build={self.directory}"
        for script, *flags in (("overload.py", flag), ("long_prompt.py", flag),
                               ("prefix_cache.py", flag), ("neighbours.py", flag),
                               ("server_cost.py", flag), ("start_time.py", flag),
                               ("compare.py", f"--engine_bench={self.directory}/engine_bench",
                                "--peer=/nowhere/llama-bench", "--gguf=model.gguf",
                                "--preset=cs336-tinystories")):
            with self.subTest(script):
                result = self.run_program(SCRIPTS_DIR / script, *flags)
                self.assertEqual(result.returncode, 1, result.stderr)
                line, = result.stderr.splitlines()
                self.assertIn(str(self.directory), line)
                self.assertIn("tests/run.sh --build-only", line)



if __name__ == "__main__":
    unittest.main(verbosity=2)
