"""deploy/quickstart.sh --openai, with programs that are built."""

import os
import signal
import subprocess
import tempfile
import unittest

import gateways
import openai_http
from tlm_server import BIN_DIR, SOURCE_DIR

READY = "until Ctrl-C"


def run(*arguments, **environment):
    programs = {"TLM_BIN_DIR": str(BIN_DIR), "TLM_SMG_DIR": str(gateways.PROGRAMS.parent)}
    return subprocess.Popen(
        [SOURCE_DIR / "deploy" / "quickstart.sh", "--openai", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | programs | environment)


class QuickstartTest(unittest.TestCase):

    def setUp(self):
        self.port, _ = gateways.free_ports(2)

    def assert_fails(self, text, *arguments, **environment):
        process = run(*arguments, **environment)
        output, _ = process.communicate(timeout=openai_http.SECONDS)
        self.assertEqual(process.returncode, 1, output)
        self.assertEqual([line for line in output.splitlines() if line.startswith("quickstart: ")],
                         [output.splitlines()[-1]])
        self.assertIn(text, output.splitlines()[-1])

    def test_it_serves_until_a_signal_and_leaves_nothing(self):
        process = run(f"--port={self.port}")
        self.addCleanup(process.stdout.close)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if READY in line:
                break
        text = "".join(lines)
        self.assertIn('"chat.completion"', text)
        self.assertIn(f"http://127.0.0.1:{self.port}/v1", text)
        api = openai_http.Api(self.port)
        answer = api.ask("/v1/chat/completions", {
            "model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual((answer.status, answer.completion_tokens), (200, 5))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.stdout.read()
        self.assertEqual(process.wait(openai_http.SECONDS), 130)
        with self.assertRaises(OSError):
            api.get("/readiness")
        with self.assertRaises(ProcessLookupError):
            os.killpg(process.pid, 0)

    def test_a_port_in_use_is_named_at_once(self):
        with gateways.socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port))
            taken.listen()
            self.assert_fails(f"port {self.port} is in use", f"--port={self.port}")

    def test_a_package_index_out_of_reach_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_fails("pip could not install", f"--port={self.port}",
                              TLM_SMG_DIR=f"{folder}/smg", PIP_NO_INDEX="1", PIP_FIND_LINKS="")

    def test_what_is_no_model_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_fails("config.json", f"--model={folder}")
