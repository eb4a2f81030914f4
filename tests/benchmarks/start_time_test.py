"""start_time.py runs, and what it reports adds up. Not a measurement: the model is tiny."""

import os
import pathlib
import sys
import unittest

from program_case import SCRIPTS_DIR, SOURCE_DIR, ProgramCase

BUILD_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"]).parent

sys.path.append(str(SOURCE_DIR / "tests" / "support"))

import gguf_writer  # noqa: E402

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as error:
    print(f"skipped: {error} (python3-grpcio and python3-protobuf are needed)")
    sys.exit(77)


class StartTimeTest(ProgramCase):
    def run_script(self, *flags):
        return self.run_program(sys.executable, "-B", SCRIPTS_DIR / "start_time.py",
                                f"--build={BUILD_DIR}", *flags)

    def start(self, *flags):
        """Runs it to a good end; its JSON and its standard output."""
        result = self.run_script("--starts=2", f"--json={self.directory / 'result.json'}", *flags,
                                 "--", "--threads=1", "--kv_cache_bytes=1MiB", "--max_context=128")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return self.report(), result.stdout

    def check(self, starts):
        self.assertEqual(len(starts), 2)
        for start in starts:
            self.assertLess(0, start["serving_s"])
            self.assertLess(start["serving_s"], start["first_token_s"])
            self.assertLessEqual(start["resident_bytes"], start["peak_bytes"])
            self.assertLessEqual(start["peak_bytes"], start["settled"]["peak_bytes"])
            self.assertGreater(start["weight_bytes"], 0)
            self.assertLessEqual(start["kv_bytes"], 1 << 20)

    def test_a_checkpoint_is_written_once_and_started_from(self):
        cache = f"--cache={self.directory}"
        result, output = self.start("--shape=tiny", cache)
        self.check(result["starts"])
        self.assertIn("exec to first token, s", output)
        weights = self.directory / "tiny" / "model.safetensors"
        written = weights.stat().st_mtime_ns
        self.start("--shape=tiny", cache)
        self.assertEqual(weights.stat().st_mtime_ns, written)

    def test_a_gguf_file_is_started_from(self):
        model = self.directory / "demo.gguf"
        model.write_bytes(gguf_writer.demo_model().bytes())
        result, _ = self.start(f"--model={model}")
        self.check(result["starts"])
        self.assertIn(f"--model={model}", result["server_flags"])

    def test_a_bad_model_ends_it_with_the_servers_words(self):
        result = self.run_script(f"--model={self.directory}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("config.json", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
