"""The command line `tlm` against the real server."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from server_process import STOP_SECONDS, ServerProcess
from support import PROMPT, ServerTest, request
from tlm_server import BIN_DIR, DEMO_MODEL, TlmServer

# The default port is free in a network of its own, with a loopback device.
ISOLATED = ["unshare", "--net", "--map-root-user", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]


class CliTest(ServerTest):

    def tlm(self, *args, status=0, **options):
        """Standard output of `tlm args`, which must end with `status`."""
        result = subprocess.run([BIN_DIR / "tlm", *args, f"--target={self.server.target}"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                                check=False, **options)
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return result.stdout.decode() if status == 0 else result.stderr.decode()

    def test_health(self):
        self.assertEqual(self.tlm("health", "--wait=10"), "SERVING\n")

    def test_generate_prints_the_text(self):
        expected = self.generate(request(seed=3, max_new_tokens=24)).text
        flags = ("--seed=3", "--max_new_tokens=24", "--ignore_eos")
        self.assertEqual(self.tlm("generate", PROMPT, *flags).rstrip("\n"), expected.rstrip("\n"))
        self.assertEqual(self.tlm("generate", "-", *flags, input=PROMPT.encode()).rstrip("\n"),
                         expected.rstrip("\n"))

    def test_tokenize_and_detokenize_are_inverse(self):
        text = "naïve café, 日本語\n"
        ids = self.tlm("tokenize", text).strip()
        self.assertEqual([int(i) for i in ids.split(",")], self.tokenize(text))
        self.assertEqual(self.tlm("detokenize", ids), text)

    def test_forward_prints_the_greedy_token_first(self):
        greedy = self.generate(request(temperature=0, max_new_tokens=1)).ids[0]
        lines = self.tlm("forward", PROMPT, "--top=3").splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(int(lines[1].split()[3]), greedy)

    def test_forward_writes_npy(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "rows.npy"
            self.tlm("forward", "--ids=1,2,3", "--positions=all", f"--npy={path}")
            data = path.read_bytes()
        self.assertTrue(data.startswith(b"\x93NUMPY\x01\x00"))
        self.assertIn(b"'shape': (3, ", data)

    def test_generate_names_a_replica_that_cannot_continue(self):
        with TlmServer("--kv_cache_dtype=fp8") as other, TlmServer() as lost:
            # More than an unread pipe and connection buffer: the kill comes before the end.
            command = [BIN_DIR / "tlm", "generate", PROMPT, "--json", "--max_new_tokens=800",
                       "--ignore_eos", "--top_logprobs=20",
                       f"--target={lost.target},{other.target}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as run:
                # A stream without a token would begin anew, and the client would refuse the replica.
                events = iter(run.stdout.readline, "")
                self.assertTrue(any("\"tokens\"" in event for event in events))
                lost.kill()
                _, error = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(
            error, r"^tlm: generate: FAILED_PRECONDITION: the stream broke \(UNAVAILABLE: .*\), and "
            rf"{other.target} runs another build, model or configuration and cannot continue the "
            r"stream byte for byte: .*this server's fingerprint is '[0-9a-f]{8}\.\.\.', .*; targets "
            r"that differ: 1, that cannot be reached: 1 \(STALE_FINGERPRINT\)\n$")


class ServeTest(unittest.TestCase):
    """`tlm serve`, and the server without flags."""

    def test_tlm_serve_becomes_the_server(self):
        with ServerProcess("serve", DEMO_MODEL, "--withdrawal_grace=0s",
                           prefix=[BIN_DIR / "tlm"]) as server:
            self.assertEqual(os.readlink(f"/proc/{server.pid}/exe"), str(BIN_DIR / "tlm-server"))
            health = subprocess.run([BIN_DIR / "tlm", "health", f"--target={server.target}"],
                                    capture_output=True, text=True, timeout=60, check=True)
            self.assertEqual(health.stdout, "SERVING\n")
            server.terminate()
            self.assertEqual(server.wait(), 0)

    def test_tlm_serve_passes_flags_on_and_finds_the_server_on_path(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(BIN_DIR / "tlm", folder)
            for path, status, text in ((str(BIN_DIR), 0, "tlm-server "),
                                       (folder, 1, "neither beside tlm nor on PATH")):
                result = subprocess.run([alone, "serve", "--version"], capture_output=True, text=True,
                                        timeout=60, check=False, env={"PATH": path})
                self.assertEqual(result.returncode, status)
                self.assertIn(text, result.stdout + result.stderr)
        wrong = subprocess.run([BIN_DIR / "tlm", "serve", DEMO_MODEL, "--prot=1"],
                               capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("tlm-server: no flag '--prot': did you mean --port?", wrong.stderr)

    @unittest.skipUnless(subprocess.run([*ISOLATED, "true"], capture_output=True,
                                        check=False).returncode == 0, "no network of its own")
    def test_without_arguments_the_bundled_model_is_served(self):
        command = [*ISOLATED, str(BIN_DIR / "tlm-server")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            log = []
            for line in server.stderr:
                log.append(line)
                if "no model was named" in line:
                    break
            server.terminate()
            server.stderr.read()
            self.assertEqual(server.wait(STOP_SECONDS), 0, log)
        self.assertIn(" on 127.0.0.1:50051 ", log[-2])
        self.assertIn(f"this is the bundled one, {DEMO_MODEL}. Call it by `{BIN_DIR / 'tlm'} generate ",
                      log[-1])


if __name__ == "__main__":
    unittest.main()
