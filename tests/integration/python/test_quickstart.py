"""deploy/quickstart.sh --openai, with programs that are built."""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest

from server_process import free_port
from tlm_server import BIN_DIR, SOURCE_DIR

READY = "until Ctrl-C"
SECONDS = 120


def run(*arguments):
    return subprocess.Popen(
        [SOURCE_DIR / "deploy" / "quickstart.sh", "--openai", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
        # Tests in the background of a script inherit that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env=os.environ | {"TLM_BIN_DIR": str(BIN_DIR)})


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        self.port = free_port()

    def assert_fails(self, text, *arguments):
        process = run(*arguments)
        output, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 1, output)
        self.assertEqual([line for line in output.splitlines() if line.startswith("quickstart: ")],
                         [output.splitlines()[-1]])
        self.assertIn(text, output.splitlines()[-1])

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "model": "demo", "max_tokens": 5, "temperature": 0,
            "messages": [{"role": "user", "content": "Hi"}]}),
            {"content-type": "application/json"})
        return json.loads(connection.getresponse().read())

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
        self.assertEqual(self.ask()["usage"]["completion_tokens"], 5)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        rest = process.stdout.read()
        self.assertEqual(process.wait(SECONDS), 130, rest)
        with self.assertRaises(OSError):
            self.ask()
        with self.assertRaises(ProcessLookupError):
            os.killpg(process.pid, 0)

    def test_a_port_in_use_is_named_at_once(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port))
            taken.listen()
            self.assert_fails(f"port {self.port} is in use", f"--port={self.port}")

    def test_what_is_no_model_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_fails("config.json", f"--model={folder}")


if __name__ == "__main__":
    unittest.main()
