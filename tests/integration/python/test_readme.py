"""Runs the bash blocks of the READMEs that call a server, as pasted into a shell."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
# Pages and sections that are pasted into one shell, with some of what they print.
SECTIONS = [([("README.md", "Serve and call"), ("README.md", "Structured output"),
              ("README.md", "Speculative decoding and verification"),
              ("client/python/README.md", "Without the package")],
             ["SERVING", "perplexity", "preemptions", '"guest":', "verified: "]),
            ([("deploy/README.md", "By hand")], ["SERVING", "tlm_requests_ended_total{"])]
# The blocks name fixed ports: a network of their own, with a loopback device, keeps these free.
ISOLATED = ["unshare", "--net", "--map-root-user"]
LOOPBACK_UP = "ip link set lo up"

if subprocess.run([*ISOLATED, "sh", "-c", LOOPBACK_UP], stderr=subprocess.DEVNULL,
                  check=False).returncode:
    print("skipped: network namespaces (unshare, ip) are needed")
    sys.exit(77)


def blocks(page, section):
    text = (SOURCE_DIR / page).read_text(encoding="utf-8")
    body = re.search(rf"^## {section}\n(.*?)(?=^## )", text, re.M | re.S)[1]
    return re.findall(r"^```bash\n(.*?)^```$", body, re.M | re.S)


def can_run(block):
    """False when its first program is not installed, as grpcurl, which no distribution packages."""
    program = block.split()[0]
    if "/" in program or program == "(" or shutil.which(program):
        return True
    print(f"not run, as {program} is not installed: {block}")
    return False


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "build" / "release").mkdir(parents=True)
        (self.root / "build" / "release" / "bin").symlink_to(BIN_DIR)
        for name in ("model", "proto"):
            (self.root / name).symlink_to(SOURCE_DIR / name)

    def paste(self, lines):
        """The output of a shell that runs these lines and stays in the root of the checkout."""
        script = "\n".join([LOOPBACK_UP, "set -e -o pipefail", *lines,
                            f'test "$PWD" = {self.root}', 'test "$(umask)" = 0022'])
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            shell = subprocess.Popen([*ISOLATED, "bash", "-c", script], cwd=self.root,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     start_new_session=True, umask=0o022)
            try:
                status = shell.wait(200)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # and the servers in its background
                shell.wait()
            output.seek(0)
            text = output.read()
        self.assertEqual(status, 0, text)
        return text

    def test_the_blocks_run_as_pasted(self):
        for sections, parts in SECTIONS:
            with self.subTest(sections):
                lines = [block for section in sections for block in blocks(*section)]
                text = self.paste([block for block in lines if can_run(block)])
                for part in parts:
                    self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
