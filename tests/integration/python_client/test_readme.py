"""Runs every example of client/python/README.md: Python blocks as they are, `tlm-py` lines of shell
blocks; only the addresses are those of the servers here."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from servers import Certificates, SOURCE_DIR, FakeServer, Replica

README = SOURCE_DIR / "client" / "python" / "README.md"
KEY = "tlm_ab12_s3cret"
# How the blocks begin that have types for pydantic.
NEEDS_PYDANTIC = re.compile("from typing import Literal\n")
# What the shell blocks have besides tlm-py; environment.py does the like.
INSTALLING = ("pip install ", "build/env/bin/pip install ", "python3 -m venv ")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"),
                      re.MULTILINE | re.DOTALL)


class ReadmeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.replicas = [Replica() for _ in range(2)]
        cls.drained = Replica()
        for replica in (*cls.replicas, cls.drained):
            cls.addClassCleanup(replica.close)
        encrypted = FakeServer(credentials=Certificates(folder.name).server_credentials(True))
        cls.addClassCleanup(encrypted.__exit__)
        cls.encrypted = encrypted
        cls.addresses = {"127.0.0.1:50051": cls.replicas[0].target,
                         "127.0.0.1:50052": cls.replicas[1].target,
                         "127.0.0.1:50062": cls.drained.admin_target,
                         "model.example.com:50051":
                             encrypted.target.replace("127.0.0.1", "localhost")}

    def setUp(self):
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        os.environ["TLM_API_KEY"] = KEY
        self.addCleanup(os.environ.pop, "TLM_API_KEY")

    def run_block(self, code):
        """What it prints."""
        for address, target in self.addresses.items():
            code = code.replace(address, target)
        output = io.StringIO()
        names = {"__name__": "example"}
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(README), "exec"), names)
        if "client" in names:
            names["client"].close()
        return output.getvalue()

    def test_python_blocks(self):
        outputs = []
        for code in blocks("python"):
            if NEEDS_PYDANTIC.match(code):
                continue
            with self.subTest(code):
                outputs.append(self.run_block(code))
        self.assertEqual(len(outputs), 11)
        (first, concurrent, calls, verified, _, parts, forms, errors, resumes, encrypted,
         admin) = outputs
        self.assertRegex(verified, r"^True\nMismatch\(index=39, .*claimed_token_id=0, ")
        self.assertRegex(parts, r"^clock \{")
        self.assertRegex(forms, r'^(good|bad)\n\{\s*"day": ?"\d{4}-\d\d-\d\d",\s*"guests": ?\d+\s*\} EOS\n$')
        result, _, streamed = first.partition(" 3 60\n")
        self.assertTrue(result and streamed, first)
        self.assertEqual(len(concurrent.splitlines()[0].split("', '")), 3)
        self.assertTrue(calls.startswith("(2, 2048) "))
        self.assertIn("('sampling.top_p', ", errors)
        self.assertRegex(resumes, r"0 127\.0\.0\.1:\d+\n$")
        self.assertEqual(encrypted, "(16,)\n")
        self.assertEqual(self.encrypted.metadata[-1]["authorization"], f"Bearer {KEY}")
        self.assertRegex(admin, r"^0 0 0\.0\n\[\('admin_port', .*\n\('job-17',\) 0\n0\n$")

    def test_python_blocks_with_pydantic(self):
        if importlib.util.find_spec("pydantic") is None:
            self.skipTest("pydantic is not installed")
        agent, chapter = map(self.run_block, filter(NEEDS_PYDANTIC.match, blocks("python")))
        self.assertRegex(agent, r"^weather \{'city': .*\} -> (Moscow|Petersburg): snow, (-7|266) degrees\n")
        self.assertRegex(chapter, r"^[A-Z]\w+ (war|peace) \d+\n$")

    def test_command_lines(self):
        commands = 0
        for line in "".join(blocks("sh")).splitlines():
            if line.startswith("tlm-py "):
                commands += 1
                with self.subTest(line):
                    self.assert_command(line)
            else:
                self.assertTrue(line.startswith(INSTALLING), line)
        self.assertEqual(commands, 5)

    def assert_command(self, line):
        arguments = shlex.split(line)[1:]
        if not any(argument.startswith("--target") for argument in arguments):
            arguments.append("--target=127.0.0.1:50051")
        arguments = [argument.replace("127.0.0.1:50051", self.replicas[0].target)
                     for argument in arguments]
        for program in ([sys.executable, "-m", "tlm_client"], self.console_script()):
            if program is not None:
                done = subprocess.run([*program, *arguments], capture_output=True, text=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.strip())

    @staticmethod
    def console_script():
        """Installed by pip alone."""
        folder = os.environ["TLM_CLIENT_BIN"]
        return [os.path.join(folder, "tlm-py")] if folder else None


if __name__ == "__main__":
    unittest.main()
