"""Runs the fenced blocks of every page (*.md) as they stand, as a reader pastes them into one shell;
what cannot run here is in a table, with the reason. Figures and outputs have no language."""

import collections
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from certificates import Authority

HERE = pathlib.Path(__file__).resolve()
SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])

PEERS = "takes packages from PyPI, gigabytes of them, or files that the checkout does not have"
IMAGE = "needs a container engine: tests/deploy/image_test.py builds and runs the image"
CLUSTER = "needs a cluster: tests/deploy/k8s_test.py checks the files"
GPU = "needs a GPU or a CUDA toolkit"
BENCHMARK = "measures for minutes; test_flags_of_programs_exist reads it"
INSTALL = "compiles for minutes: tests/integration/languages/test_install_tree.py and examples.py do it"
FRAGMENT = "needs its language's gRPC: tests/integration/languages runs the examples, which do the same"
# Of a page, how blocks begin that are not run here.
NOT_RUN = {
    "README.md": {
        "./deploy/quickstart.sh     #": "builds: test_quickstart runs it with programs that are built",
        "python3 -m venv build/hf": PEERS},
    "client/README.md": {
        "cmake --install": INSTALL, "find_package(tlm": INSTALL,
        **dict.fromkeys(('#include "tlm/client/client.h"', "const tlm::client::ErrorDetails",
                         "auto client = tlm::client::Client"),
                        "is compiled by tests/integration/languages/test_install_tree.py"),
        **dict.fromkeys(("for _, detail", "for (Any detail", "const [bytes]", "error.to_rpc_status"),
                        FRAGMENT)},
    "client/openai/README.md": {
        "tlm-openai --target=10.0.0.1":
            "needs servers on other machines: tests/integration/python/test_openai_fleet.py has them here"},
    "client/python/README.md": {
        **dict.fromkeys(
            ("from typing import Literal\nfrom tlm_client", "from typing import Literal\nfrom pydantic"),
            "needs pydantic: tests/integration/python_client/test_readme.py has it from PyPI"),
        "pip install './client/python[eval]'":
            "needs lm-eval from PyPI, and tasks from a hub: tests/peers/evaluation has its own"},
    "deploy/README.md": {
        "docker build": IMAGE, "docker create": IMAGE, "kubectl create": CLUSTER,
        "helm install": CLUSTER,
        "(printf '%s\\n' 'apiVersion": CLUSTER,
        "deploy/packages/build.sh": "needs root: tests/deploy/package_test.py does it in a system of its own",
        "cmake --install": "needs root and systemd: tests/deploy/systemd_test.py checks the unit"},
    "deploy/fleet.md": {
        "tlm-server --model=model/demo --facades=vllm":
            "needs SMG from PyPI: tests/integration/fleet/test_smg.py does it",
        "export DYN_": "needs Dynamo from PyPI: tests/integration/fleet/test_dynamo.py does it"},
    "deploy/grafana/README.md": {"deploy/grafana/render.py": "needs a Prometheus under load, and chromium"},
    "deploy/grpc-web.md": {"import { createClient": "needs a browser: tests/deploy/envoy_test.py calls as one does"},
    "deploy/runbook.md": {
        "tlm-server --model=model/demo --otlp":
            "needs collectors: tests/integration/telemetry/test_traces.py has one",
        "[sources.tlm]": "needs Vector, which distributions do not package"},
    "model/demo/README.md": {"pip install": "trains for 22 minutes"},
    "tests/README.md": {"tests/run.sh": "builds, and runs all tests"},
    "tests/benchmarks/README.md": dict.fromkeys((
        "cd build/release/benchmarks", "./speculation_bench", "./weights_loss", "./mask_bench",
        "tests/benchmarks/compare.py", "cd build/release\n", "tests/benchmarks/overload.py",
        "build/release/benchmarks/stream_bench"), BENCHMARK),
    "tests/fuzz/README.md": {"tests/fuzz/pack.sh": "packs what an hour of fuzzing found"},
    "tests/gpu/README.md": dict.fromkeys((
        "cmake --preset", "nvidia-smi", "tests/gpu/dependencies.sh", "# A.", "# B.", "# C.",
        "python3 tests/gpu/summary.py"), GPU),
    "tests/peers/README.md": {"python3 -m venv build/peers": PEERS},
}
# The reader's way: the first block makes the environment in which Python blocks run.
FIRST = ("client/python/README.md", "python3 -m venv")
ORDER = ["README.md", "client/README.md", "client/python/README.md"]
# Runs alone, as it needs another server on a port of its own name.
ENCRYPTED = ("client/python/README.md", "import os\n")
PRINTED = ["SERVING", "perplexity", "preemptions", '"guest":', "verified: ", "snow, -7 degrees",
           "tlm_requests_ended_total{", "('sampling.top_p', ", "('admin_port', '50062')", "tlm.v1.LanguageModel.Detokenize"]
# The blocks name fixed ports: a network of their own, with a loopback device, keeps these free.
ISOLATED = ["unshare", "--net", "--mount", "--map-root-user"]
LOOPBACK_UP = "ip link set lo up"
SECONDS = 600  # for all blocks; they take half a minute of processor time
LANGUAGES = {"bash", "sh", "python", "console", "json", "yaml"}
# What tests/run.sh does not install, and a command that tells whether it is there.
OPTIONAL = {"ruby": "ruby -e \"require 'grpc'\" && command -v grpc_ruby_plugin",
            "kubectl": "kubectl kustomize --help"}

Block = collections.namedtuple("Block", "page line language text")


def pages():
    for folder, folders, files in os.walk(SOURCE_DIR):
        folders[:] = sorted(name for name in folders
                            if not name.startswith(".") and name not in ("build", "dependencies"))
        for name in sorted(files):
            if name.endswith(".md"):
                yield (pathlib.Path(folder) / name).relative_to(SOURCE_DIR).as_posix()


def blocks():
    """Those with a language, in the reader's order."""
    found = []
    for page in sorted(pages(), key=lambda page: (ORDER + [page]).index(page)):
        text = (SOURCE_DIR / page).read_text(encoding="utf-8")
        for fence in re.finditer(r"^( *)```(\S*)\n(.*?)^\1```$", text, re.M | re.S):
            if fence[2]:
                found.append(Block(page, text.count("\n", 0, fence.start()) + 2, fence[2],
                                   textwrap.dedent(fence[3])))
    return sorted(found, key=lambda block: not begins(block, FIRST))


def begins(block, place):
    return block.page == place[0] and block.text.startswith(place[1])


def reason_of(block):
    """Why it is not run; None for one that is."""
    return next((reason for start, reason in NOT_RUN.get(block.page, {}).items()
                 if block.text.startswith(start)), None)


def shell_lines(block):
    """What a shell runs for a block."""
    end = "END_OF_BLOCK"
    if block.language in ("bash", "sh"):
        return block.text
    if block.language == "json":  # a model's configuration
        return f"mkdir -p build/model && cat >build/model/config.json <<'{end}'\n{block.text}{end}\ntlm info build/model\n"
    if block.language == "yaml":  # a kustomization for a folder of overlays
        folder = "deploy/k8s/overlays/page"
        return (f"mkdir -p {folder} && cat >{folder}/kustomization.yaml <<'{end}'\n{block.text}{end}\n"
                f"kubectl kustomize {folder} >build/rendered.yaml\n")
    program = {"python": "python3 -",
               "console": f"PYTHONPATH={SOURCE_DIR}/tests/support /usr/bin/python3 -B {HERE}"}[block.language]
    return f"{program} <<'{end}'\n{block.text}{end}\n"


def missing_program(lines):
    """One that these lines need and that is not installed."""
    return next((program for program, probe in OPTIONAL.items()
                 if re.search(rf"\b{program}\b", lines) and
                 subprocess.run(["sh", "-c", probe], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, check=False).returncode), None)


def console(text):
    """Runs the commands after `$`. What they print has the lines of the block, by their first words:
    figures differ from machine to machine."""
    def names(output):
        return [re.sub(r"\d[\d.,]*", "0", re.split(r"\s{2,}", line.strip())[0])
                for line in output.splitlines()]

    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        printed = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True,
                                 check=False).stdout
        if names(printed) != names(shown):
            sys.exit(f"{command}\nprints\n{printed}\nwhere the page has\n{shown}")


def make_checkout(root):
    """What the blocks need of a checkout that is built; they may write everywhere in it."""
    (root / "build" / "release").mkdir(parents=True)
    (root / "build" / "release" / "bin").symlink_to(BIN_DIR)
    for name in ("model", "proto", "tests", "LICENSE"):
        (root / name).symlink_to(SOURCE_DIR / name)
    for name in ("client", "deploy"):
        shutil.copytree(SOURCE_DIR / name, root / name,
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    # Where grpcurl is not installed, a program that sends the same requests.
    stand_in = root / "stand_in" / "grpcurl"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\nexport PYTHONPATH='{os.environ['PYTHONPATH']}'\n"
                        f'exec /usr/bin/python3 -B {HERE.with_name("grpcurl.py")} "$@"\n')
    stand_in.chmod(0o755)


class ReadmeTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def paste(self, lines):
        """The output of a shell that runs these lines and stays in the root of the checkout."""
        probe = subprocess.run([*ISOLATED, "sh", "-c", LOOPBACK_UP], stderr=subprocess.DEVNULL,
                               check=False)
        if probe.returncode:
            self.skipTest("network namespaces (unshare, ip) are needed")
        make_checkout(self.root)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "HOME": str(self.root), "TLM_BIN_DIR": str(BIN_DIR), "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PATH": f"{self.root}/build/env/bin:{BIN_DIR}:/usr/bin:{os.environ['PATH']}:{self.root}/stand_in"}
        script = "\n".join([LOOPBACK_UP, "set -e -o pipefail", *lines,
                            f'test "$PWD" = {self.root}', 'test "$(umask)" = 0022'])
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            shell = subprocess.Popen([*ISOLATED, "bash", "-c", script], cwd=self.root,
                                     env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=output, start_new_session=True, umask=0o022)
            try:
                status = shell.wait(SECONDS)
            except subprocess.TimeoutExpired:
                status = f"not within {SECONDS} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # and the servers in its background
                shell.wait()
            output.seek(0)
            text = output.read()
        self.assertEqual(status, 0, "the last block failed:\n" + text[-6000:])
        return text

    def test_every_block_runs_or_has_a_reason(self):
        found = blocks()
        for block in found:
            if reason_of(block) is None:
                self.assertIn(block.language, LANGUAGES, f"{block.page}:{block.line} needs a program "
                              "that runs it, or a reason in NOT_RUN")
        for page, starts in NOT_RUN.items():
            for start, reason in starts.items():
                self.assertEqual(sum(begins(block, (page, start)) for block in found), 1,
                                 f"{page}: blocks that begin with {start!r}")
                for file in re.findall(r"\btests/[\w/.]*\w", reason):
                    self.assertTrue((SOURCE_DIR / file).exists(), reason)
        for place in (FIRST, ENCRYPTED):
            self.assertEqual(sum(begins(block, place) for block in found), 1, place)

    def test_blocks_run_as_pasted(self):
        lines = []
        for block in blocks():
            if reason_of(block) is not None or begins(block, ENCRYPTED):
                continue
            text, place = shell_lines(block), f"{block.page}:{block.line}"
            if missing := missing_program(text):
                print(f"\n[  SKIPPED ] {place} ({missing} is not installed)")
                continue
            lines += [f"echo '== {place}'", text]
        text = self.paste(lines)
        for part in PRINTED:
            self.assertIn(part, text)

    def test_the_block_with_tls_and_a_key(self):
        authority = Authority(self.root / "authority")
        server = authority.issue("/CN=model", "DNS:model.example.com")
        client = authority.issue("/CN=client", "DNS:client.example.com")
        for name, content in (("ca.pem", authority.pem), ("client.pem", client.pem),
                              ("client.key", client.key_pem),
                              ("hosts", b"127.0.0.1 localhost model.example.com\n")):
            (self.root / name).write_bytes(content)
        block, = [block for block in blocks() if begins(block, ENCRYPTED)]
        install, = [block for block in blocks() if begins(block, FIRST)]
        self.assertRegex(self.paste([
            "mount --bind hosts /etc/hosts", "export GRPC_DNS_RESOLVER=native", install.text,
            "export TLM_API_KEY=$(tlm-keys add --file=keys.json --tenant=search)",
            f"tlm-server --model=model/demo --api_keys=keys.json {shlex.join(server.serve_flags())} "
            "--tls_client_ca=ca.pem --tls_client_auth=require &",
            "tlm health --wait=10s --ca_file=ca.pem --server_name=model.example.com "
            "--client_cert=client.pem --client_key=client.key", shell_lines(block)]), r"(?m)^\(\d+, ")

    def test_quickstart(self):
        text = self.paste(["deploy/quickstart.sh"])
        self.assertIn("Anna Pavlovna", text)
        self.assertIn("hf download", text)


class BenchmarksTest(unittest.TestCase):
    PAGE = "tests/benchmarks/README.md"

    def test_flags_of_programs_exist(self):
        """Of the blocks that measure for minutes."""
        if not (BIN_DIR.parent / "benchmarks").is_dir():
            self.skipTest("the build has no benchmarks")
        used = collections.defaultdict(set)
        for block in blocks():
            if block.page != self.PAGE or reason_of(block) != BENCHMARK:
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if not words or words[0] == "cd":
                    continue
                own = words[1:words.index("--")] if "--" in words else words[1:]
                used[pathlib.Path(words[0]).name] |= {
                    word.partition("=")[0] for word in own if word.startswith("--")}
        self.assertGreater(len(used), 10)
        for name, flags in used.items():
            with self.subTest(name):
                script = SOURCE_DIR / "tests/benchmarks" / name
                if script.exists():  # with what its --help may not be able to import
                    text = script.read_text() + script.with_name("scenario.py").read_text()
                else:
                    text = subprocess.run([BIN_DIR.parent / "benchmarks" / name, "--helpfull"], text=True,
                                          stdout=subprocess.PIPE, check=False).stdout
                self.assertEqual(flags - set(re.findall(r"--[a-z_]+", text)), set())


if __name__ == "__main__":
    console(sys.stdin.read())
