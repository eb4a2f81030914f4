"""What the tests of the benchmarks share: programs that run, and the JSON that they write."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
SCRIPTS_DIR = SOURCE_DIR / "tests" / "benchmarks"
DEMO_MODEL = SOURCE_DIR / "model" / "demo"


class ProgramCase(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="tlm-benchmark-test-")))

    def run_program(self, *command):
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False)

    def program(self, name, text):
        """A program of this text, in the test's folder."""
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def report(self, name="result.json"):
        return json.loads((self.directory / name).read_text(encoding="utf-8"))
