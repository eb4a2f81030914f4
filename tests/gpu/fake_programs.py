"""Programs that pass, fail, hang and crash, in place of a GPU's, and a run over them."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest

import narrow
import run

# Plays a gtest program: behaviours.json beside it names its tests and how each ends.
GTEST = """#!{python} -SE
import fnmatch, json, os, pathlib, signal, sys, time
tests = json.loads((pathlib.Path(__file__).parent / "behaviours.json").read_text())
filters = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--gtest_filter=")][-1].split(":")
tests = {{name: how for name, how in tests.items()
         if any(fnmatch.fnmatchcase(name, f) for f in filters)}}
if "--gtest_list_tests" in sys.argv:
    print("Running main() from gmock_main.cc")
    suite = None
    for name in tests:
        if name.split(".")[0] != suite:
            suite = name.split(".")[0]
            print(suite + ".")
        print("  " + name.split(".")[1] + "  # GetParam() = 4-byte object")
    sys.exit()
failed = []
for name, how in tests.items():
    print("[ RUN      ] " + name, flush=True)
    if how == "crash":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        signal.pause()
    if how == "fail":
        print("a_test.cc:1: Failure")
        print("what is wrong with " + name)
        failed.append(name)
    print(("[  FAILED  ] " if how == "fail" else "[       OK ] ") + name + " (1 ms)")
print(f"[  PASSED  ] {{len(tests) - len(failed)}} tests.")
for name in failed:
    print("[  FAILED  ] " + name)
sys.exit(1 if failed else 0)
"""

# Plays engine_bench: behaviours.json beside it says how it ends and what its tokens are with which
# optimisation off; "on" when all are on.
ENGINE = """#!{python} -SE
import json, pathlib, sys
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
plays = json.loads((pathlib.Path(__file__).parent / "engine.json").read_text())
off = [name for name in ("overlap", "graphs", "library") if flags.get(f"cuda_{{name}}") == "false"]
code, digest = next((plays[name] for name in [flags.get("weights")] + off if name in plays),
                    plays["on"])
print("engine with " + (", ".join(off) or "nothing") + " off")
if code == 0:
    pathlib.Path(flags["json"]).write_text(json.dumps({{"tests": [{{"token_digest": digest}}]}}))
sys.exit(code)
"""

SANITIZER = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
echo "========= Invalid __global__ write of size 4 bytes, $*"
exit 9
"""


class FakePrograms(unittest.TestCase):
    """A folder of fake programs, and a run over them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tlm-gpu-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin, self.out = self.folder / "bin", self.folder / "out"
        self.path = self.folder / "path"  # what stands before the system's PATH
        for made in (self.bin, self.out, self.path):
            made.mkdir()
        self.fake("nvidia-smi", "#!/bin/sh\necho 'GPU 0: fake'\n"
                  f"case $* in *-lms*) echo $$ >{self.folder}/clocks; exec sleep 60; esac\n",
                  self.path)
        self.fake("compute-sanitizer", SANITIZER, self.path)
        self.addCleanup(os.environ.__setitem__, "PATH", os.environ["PATH"])
        os.environ["PATH"] = f"{self.path}:{os.environ['PATH']}"
        self.patch(narrow, TEST_SECONDS=1, FIRST_SECONDS=1, LEAST_SECONDS=0.2)
        self.session = run.Run(self.bin, self.out, sys.executable, 60, self.folder / "scratch")

    def fake(self, name, text, folder=None):
        path = (folder or self.bin) / name
        path.write_text(text.replace("{python}", sys.executable).replace("{{", "{").replace(
            "}}", "}"), encoding="utf-8")
        path.chmod(0o755)

    def fake_tests(self, **behaviours):
        self.fake("cuda_kernels_test", GTEST)
        (self.bin / "behaviours.json").write_text(json.dumps(
            {f"{suite}.{name}": how for suite, tests in behaviours.items()
             for name, how in tests.items()}), encoding="utf-8")

    def fake_engine(self, **plays):
        self.fake("engine_bench", ENGINE)
        (self.bin / "engine.json").write_text(json.dumps({"on": (0, "aa"), **plays}),
                                              encoding="utf-8")

    def stage(self, *stages):
        """What is printed meanwhile."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for stage in stages:
                self.session.stage(stage)
            self.session.look_closer()
        return printed.getvalue()

    def patch(self, module, **values):
        for name, value in values.items():
            self.addCleanup(setattr, module, name, getattr(module, name))
            setattr(module, name, value)

    def statuses(self):
        lines = (self.out / "stages.tsv").read_text(encoding="utf-8").splitlines()
        return dict(line.split("\t")[:2] for line in lines)

    def packed(self, archive=None):
        with tarfile.open(archive or self.out / "results.tgz") as tar:
            return tar.getnames()

    def report(self, name):
        return json.loads((self.out / name).read_text(encoding="utf-8"))


def alive(pid):
    """Whether it runs; what has ended and waits for nobody is dead."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
