"""The systemd unit: understood by systemd, hardened, and at one with the server's flags."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import server_flags
from skips import skip

SYSTEMD = pathlib.Path(os.environ["TLM_SOURCE_DIR"], "deploy/systemd")
UNIT = SYSTEMD / "tlm-server.service"
# In tenths, as systemd-analyze counts exposure: 10.0 is a service without any bounds.
MAX_EXPOSURE = 15


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60)


def directive(name):
    return re.search(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE).group(1)


def flags_file():
    """Those that are set, and those that are suggested in comments."""
    lines = (SYSTEMD / "server.flags").read_text().splitlines()
    return [line.removeprefix("#") for line in lines if line.startswith(("--", "#--"))]


class SystemdAnalyzeTest(unittest.TestCase):
    def setUp(self):
        if shutil.which("systemd-analyze") is None:
            skip("systemd", "no systemd-analyze")

    def verify(self, text):
        """What systemd says of the unit, with a program in it that is there."""
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, UNIT.name)
            text = text.replace("/usr/local/bin/tlm-server", shutil.which("true"))
            unit.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))
            return analyze("verify", "--man=no", str(unit))

    def test_unit_is_understood_without_a_word(self):
        verified = self.verify(UNIT.read_text())
        self.assertEqual((verified.returncode, verified.stdout), (0, ""))

    def test_a_misspelt_directive_is_noticed(self):
        verified = self.verify(UNIT.read_text().replace("ProtectHome=", "ProtectHomes="))
        self.assertIn("ProtectHomes", verified.stdout)

    def test_exposure_is_low(self):
        version = int(re.search(r"systemd (\d+)", analyze("--version").stdout).group(1))
        if version < 250:
            skip("systemd/exposure", f"systemd {version} does not judge a file")
        judged = analyze(
            "security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE}", str(UNIT))
        print(judged.stdout.strip().splitlines()[-1])
        self.assertEqual(judged.returncode, 0, judged.stdout)


class UnitTest(unittest.TestCase):
    def test_readiness_comes_from_the_server(self):
        self.assertEqual(directive("Type"), "notify")
        self.assertGreater(server_flags.seconds(directive("WatchdogSec")), 0)

    def test_environment_file_sets_what_the_command_reads(self):
        self.assertIn("$TLM_SERVER_FLAGS", directive("ExecStart"))
        self.assertIn("\nTLM_SERVER_FLAGS=", (SYSTEMD / "tlm-server.env").read_text())

    def test_user_is_made_by_sysusers(self):
        self.assertIn(f"\nu {directive('User')} ", (SYSTEMD / "tlm-sysusers.conf").read_text())

    # PCRE2 compiles patterns to machine code.
    def test_machine_code_may_be_written(self):
        self.assertNotRegex(UNIT.read_text(), r"(?m)^MemoryDenyWriteExecute")

    def test_server_has_every_flag(self):
        if server_flags.defaults() is None:
            skip("systemd/flags", "no built tlm-server")
        self.assertEqual(server_flags.unknown([*flags_file(), "--flagfile=x"]), ["flagfile"])

    def test_stop_timeout_covers_withdrawal_and_drain(self):
        if server_flags.defaults() is None:
            skip("systemd/flags", "no built tlm-server")
        self.assertGreaterEqual(server_flags.seconds(directive("TimeoutStopSec")),
                                server_flags.stop_seconds(flags_file()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
