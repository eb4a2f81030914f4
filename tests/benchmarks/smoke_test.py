"""The benchmarks run, and what they report adds up. Not a measurement: loads are tiny."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
BENCHMARKS_DIR = pathlib.Path(os.environ["TLM_BENCHMARKS_DIR"])
DEMO_MODEL = pathlib.Path(os.environ["TLM_SOURCE_DIR"]) / "model" / "demo"


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
            "--stream_output_tokens=1000", "--prompt_tokens=600", "--settle=50ms",
            "--undisturbed=100ms", "--repetitions=2", server_flags=[])
        self.assertEqual(len(result["runs"]), 2)
        for run in result["runs"]:
            self.assertGreater(run["ttft_s"], 0)
            self.assertGreater(run["undisturbed_gap_s"]["count"], 0)
            self.assertAlmostEqual(
                run["worst_ratio"],
                run["disturbed_gap_s"]["max"] / run["undisturbed_gap_s"]["p99"])

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
