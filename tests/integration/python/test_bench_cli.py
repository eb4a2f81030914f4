"""`tlm bench` against the real server."""

import json
import os
import pty
import signal
import subprocess
import time
import unittest

from support import ServerTest
from test_admin import AdminServer
from test_chat_cli import read_until
from tlm_server import BIN_DIR


class BenchCliTest(ServerTest):
    SERVER = AdminServer

    def wait_for_load(self):
        """Returns once the server has finished some requests of the load it is under."""
        before = self.server.load().finished_requests
        deadline = time.monotonic() + 60
        while self.server.load().finished_requests < before + 2:
            self.assertLess(time.monotonic(), deadline, "no load came")

    def bench(self, *flags, status=0, target=None):
        """What `tlm bench --json` measured; it must end with `status`."""
        result = subprocess.run(
            [BIN_DIR / "tlm", "bench", "--json", f"--target={target or self.server.target}",
             *flags], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return json.loads(result.stdout)

    def test_tokens_are_counted_exactly(self):
        measured = self.bench("--requests=12", "--concurrency=4", "--prompt_tokens=20",
                              "--max_new_tokens=6", "--seed=3")
        self.assertEqual(measured["requests"]["ok"], 12)
        self.assertEqual(measured["failures"], [])
        self.assertEqual(measured["tokens"]["prompt"], 12 * 20)
        self.assertEqual(measured["tokens"]["output"], 12 * 6)
        self.assertAlmostEqual(measured["tokens"]["output_per_second"],
                               12 * 6 / measured["seconds"])
        latency = measured["latency_seconds"]
        self.assertEqual(latency["time_to_first_token"]["count"], 12)
        self.assertEqual(latency["queue"]["count"], 12)
        for times in latency.values():
            self.assertLessEqual(times["min"], times["p50"])
            self.assertLessEqual(times["p50"], times["p90"])
            self.assertLessEqual(times["p90"], times["p99"])
            self.assertLessEqual(times["p99"], times["max"])
        self.assertLess(latency["queue"]["mean"], latency["time_to_first_token"]["mean"])
        self.assertLess(latency["time_to_first_token"]["mean"], latency["end_to_end"]["mean"])

    def test_interrupt_ends_it_with_what_was_measured(self):
        process = subprocess.Popen(
            [BIN_DIR / "tlm", "bench", "--json", "--duration=inf", "--max_new_tokens=50",
             f"--target={self.server.target}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        try:
            self.wait_for_load()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, 130, err.decode())
        measured = json.loads(out)
        self.assertTrue(measured["interrupted"])
        requests = measured["requests"]
        self.assertEqual(requests["sent"], requests["ok"] + requests["cut_off"])
        self.assertEqual(requests["failed"], 0)

    def test_progress_is_shown_on_a_terminal(self):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [BIN_DIR / "tlm", "bench", "--duration=1", f"--target={self.server.target}"],
            stdin=slave, stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        try:
            shown = read_until(master, r"\[#+-*\] +\d+ %  \d+ ok, 0 failed, \d+ in flight")
            out, _ = process.communicate(timeout=60)
            shown = read_until(master, r"\r\x1b\[K$")
        finally:
            process.kill()
            process.wait()
            os.close(master)
        self.assertEqual(process.returncode, 0, shown)
        self.assertIn(b"requests/s", out)
        self.assertNotIn(b"\x1b", out)


if __name__ == "__main__":
    unittest.main()
