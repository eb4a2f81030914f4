"""What run.py does with programs that fail, hang and crash, without a GPU: fake ones."""

import contextlib
import fnmatch
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import narrow
import run
import start_time
import summary

HERE = pathlib.Path(__file__).resolve().parent

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


class StageTest(FakePrograms):
    def test_a_stage_passes_fails_is_skipped_or_runs_out_of_time(self):
        for name, text in (("good", "exit 0"), ("bad", "echo why; exit 3"), ("none", "exit 77"),
                           ("slow", "exec sleep 60"),
                           ("blind", "echo 'skipped: there is no GPU'; exit 0")):
            self.fake(name, f"#!/bin/sh\n{text}\n")
        printed = self.stage(*(run.Stage(name, 1, name, [])
                               for name in ("good", "bad", "none", "slow", "blind", "missing")))
        self.assertEqual(self.statuses(), {"good": "passed", "bad": "failed", "none": "skipped",
                                           "slow": "timeout", "blind": "failed",
                                           "missing": "skipped"})
        self.assertIn("why\n--- bad: failed", printed)
        self.assertIn("missing is not here", printed)
        self.assertFalse(self.session.good())

    def test_packages_that_an_interpreter_lacks_are_no_failure(self):
        def stage(name, *packages):
            return run.Stage(name, 1, "python", ["-c", "pass"], packages=packages)
        printed = self.stage(stage("there", "json"), stage("lacking", "json", "no_such", "nor_this"))
        self.assertEqual(self.statuses(), {"there": "passed", "lacking": "skipped"})
        self.assertIn("has no no_such nor_this\n", printed)
        self.assertTrue(self.session.good())

    def test_what_a_stage_has_started_ends_with_it(self):
        self.fake("parent", f"#!/bin/sh\nsleep 60 &\necho $! >{self.folder}/child\nwait\n")
        self.stage(run.Stage("parent", 1, "parent", []))
        child = int((self.folder / "child").read_text(encoding="utf-8"))
        deadline = time.monotonic() + 10
        while alive(child):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_speed_that_fails_is_no_failure_of_the_run(self):
        self.fake("bad", "#!/bin/sh\nexit 1\n")
        self.stage(run.Stage("bad", 1, "bad", [], "speed"))
        self.assertTrue(self.session.good())

    def test_stages_without_time_are_left_out(self):
        self.fake("good", "#!/bin/sh\nexit 0\n")
        self.session = run.Run(self.bin, self.out, sys.executable, 10, self.folder)
        self.stage(run.Stage("short", 5, "good", []), run.Stage("long", 60, "good", []))
        self.assertEqual(self.statuses(), {"short": "passed", "long": "skipped"})

    def test_results_are_packed_after_every_stage(self):
        self.fake("good", "#!/bin/sh\necho said\n")
        self.stage(run.Stage("one", 5, "good", []))
        self.assertEqual(self.packed(), ["one.log", "stages.tsv"])
        self.stage(run.Stage("two", 5, "good", []))
        self.assertEqual(self.packed(), ["one.log", "stages.tsv", "two.log"])
        self.assertFalse((self.out / "results.tgz.part").exists())

    def test_results_are_packed_while_a_stage_runs(self):
        self.patch(run, PACK_SECONDS=0.05)
        archive = self.out / "results.tgz"
        self.fake("waits", f"#!/bin/sh\necho said\nuntil [ -e {archive} ]; do sleep 0.01; done\n")
        self.stage(run.Stage("waits", 20, "waits", []))
        self.assertEqual(self.statuses(), {"waits": "passed"})

    def test_of_a_long_file_both_ends_are_packed(self):
        self.fake("long", "#!/bin/sh\necho first\nhead -c 5000000 /dev/zero\necho last\n")
        self.stage(run.Stage("long", 5, "long", []))
        with tarfile.open(self.out / "results.tgz") as tar:
            packed = tar.extractfile("long.log").read()
        self.assertTrue(packed.startswith(b"first\n") and packed.endswith(b"last\n"))
        self.assertIn(b"... 805", packed)

    def test_what_is_too_large_together_is_packed_in_shorter_ends(self):
        self.patch(run, LARGEST_ARCHIVE_BYTES=1 << 20)
        (self.out / "a.log").write_bytes(b"first" + os.urandom(4 << 20) + b"last")
        (self.out / "b.json").write_bytes(b"{}")
        self.session.pack()
        self.assertLessEqual((self.out / "results.tgz").stat().st_size, 1 << 20)
        with tarfile.open(self.out / "results.tgz") as tar:
            packed = tar.extractfile("a.log").read()
            self.assertEqual(tar.extractfile("b.json").read(), b"{}")
        self.assertTrue(packed.startswith(b"first") and packed.endswith(b"last"))

    def test_the_archives_folder_is_made_and_a_run_goes_on_without(self):
        self.fake("good", "#!/bin/sh\nexit 0\n")
        new = self.folder / "a" / "b" / "all.tgz"
        self.session = run.Run(self.bin, self.out, sys.executable, 60, self.folder, new)
        self.stage(run.Stage("good", 5, "good", []))
        self.assertIn("good.log", self.packed(new))
        (self.folder / "file").write_text("", encoding="utf-8")
        self.session = run.Run(self.bin, self.out, sys.executable, 60, self.folder,
                               self.folder / "file" / "all.tgz")
        printed = self.stage(run.Stage("one", 5, "good", []), run.Stage("two", 5, "good", []))
        self.assertIn("not packed: ", printed)
        self.assertEqual(self.statuses(), {"one": "passed", "two": "passed"})

    def test_a_stage_that_the_end_cuts_off_has_no_verdict(self):
        self.patch(run, LEAST_SECONDS=0.1)
        self.fake("slow", "#!/bin/sh\nexec sleep 60\n")
        self.session = run.Run(self.bin, self.out, sys.executable, 1, self.folder)
        self.stage(run.Stage("slow", 60, "slow", []))
        self.assertEqual(self.statuses(), {"slow": "cut"})
        self.assertTrue(self.session.good())
        self.assertEqual(summary.correctness_verdict(
            [{"stage": "slow", "status": "cut", "kind": "correctness"}]),
            "0 of 1 passed; cut: slow")

    def test_what_a_sanitizer_has_found_when_time_runs_out_is_kept(self):
        self.fake("compute-sanitizer", "#!/bin/sh\necho '========= Invalid write'\nexec sleep 60\n",
                  self.path)
        self.fake("engine_bench", "#!/bin/sh\n")
        self.stage(run.Stage("memcheck", 2, "python", [str(HERE / "sanitize.py"), "memcheck"]))
        self.assertEqual(self.statuses(), {"memcheck": "timeout"})
        self.assertIn("Invalid write", narrow.text_of(self.out / "memcheck.log"))


def alive(pid):
    """Whether it runs; what has ended and waits for nobody is dead."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


class LibraryTest(FakePrograms):
    def test_cublaslt_is_linked_where_only_our_programs_look(self):
        site = self.folder / "site"
        library = site / "nvidia" / "cu12" / "lib" / "libcublasLt.so.12"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"")
        self.fake("python", f"#!/bin/sh\necho {site}\n", self.path)
        link = self.folder / "lib" / "libcublasLt.so.12"
        for known in (True, False):
            self.fake("ldconfig", f"#!/bin/sh\necho {library.name if known else ''}\n", self.path)
            for _ in range(2):  # the second time over the first one's link
                with contextlib.redirect_stdout(io.StringIO()):
                    run.link_cublaslt(self.bin, str(self.path / "python"))
            self.assertEqual(link.exists(), not known)
        self.assertNotIn("LD_LIBRARY_PATH", self.session.environment.keys() - os.environ.keys())

    def test_an_interpreter_that_is_not_there_is_no_obstacle(self):
        with contextlib.redirect_stdout(io.StringIO()):
            run.link_cublaslt(self.bin, str(self.folder / "nowhere"))


class NarrowTest(FakePrograms):
    STAGE = run.gtest("kernels-gemm", 2, "cuda_kernels_test", "Gemm*")

    def test_the_first_failure_is_shown_and_every_test_asked(self):
        self.fake_tests(GemmTest={"A": "ok", "B": "fail", "C": "fail", "D": "ok"},
                        OtherTest={"E": "fail"})
        printed = self.stage(self.STAGE)
        before = printed.split("--- kernels-gemm: failed")[0]
        self.assertIn("what is wrong with GemmTest.B", before)
        self.assertNotIn("GemmTest.C", before)
        self.assertIn("GemmTest.B under memcheck: exit 9", printed)
        self.assertRegex(printed, r"Invalid __global__ write .*--gtest_filter=GemmTest\.B\n")
        result = self.report("kernels-gemm.tests.json")
        self.assertEqual(result["first"], "GemmTest.B")
        self.assertEqual({test["test"]: test["outcome"] for test in result["tests"]},
                         {"GemmTest.A": "passed", "GemmTest.B": "failed",
                          "GemmTest.C": "failed", "GemmTest.D": "passed"})
        self.assertIn("2 passed, 2 failed", printed)
        self.assertIn("wrong with GemmTest.C", narrow.text_of(self.out / "kernels-gemm.tests.log"))
        self.assertIn("kernels-gemm.tests.json", self.packed())

    def test_a_crash_names_its_test_and_hides_no_other(self):
        self.fake_tests(GemmTest={"A": "ok", "B": "crash", "C": "ok"})
        printed = self.stage(self.STAGE)
        self.assertIn("the program ended in GemmTest.B", printed)
        self.assertEqual([test["outcome"] for test in self.report("kernels-gemm.tests.json")["tests"]],
                         ["passed", "signal 11", "passed"])

    def test_a_hang_costs_its_own_time_only(self):
        self.fake_tests(GemmTest={"A": "hang", "B": "ok"})
        begin = time.monotonic()
        self.stage(self.STAGE)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(self.statuses(), {"kernels-gemm": "timeout", "closer-kernels-gemm": "done"})
        result = self.report("kernels-gemm.tests.json")
        self.assertEqual((result["first"], [test["outcome"] for test in result["tests"]]),
                         ("GemmTest.A", ["timeout", "passed"]))

    def test_all_closer_looks_together_are_bounded_and_come_last(self):
        self.fake("engine_bench", "#!/bin/sh\nexec sleep 60\n")
        self.fake_tests(GemmTest=dict.fromkeys("ABCDEF", "hang"))
        self.session = run.Run(self.bin, self.out, sys.executable, 12, self.folder)  # 3 s of them
        begin = time.monotonic()
        stages = [run.gtest(name, 1, "cuda_kernels_test", "Gemm*") for name in ("one", "two")]
        printed = self.stage(*stages, run.Stage("engine-8b", 1, "engine_bench", [], "speed"))
        self.assertLess(time.monotonic() - begin, 15)
        self.assertIn("not run", printed)
        self.assertEqual(list(self.statuses()),
                         ["one", "two", "engine-8b", "closer-one", "closer-two", "closer-switches"])

    def test_without_the_sanitizer_the_rest_is_done(self):
        (self.path / "compute-sanitizer").unlink()
        self.patch(narrow, sanitizer=lambda: None)
        self.fake_tests(GemmTest={"A": "fail"})
        self.assertIn("kernels-gemm: 1 failed", self.stage(self.STAGE))

    def test_a_stage_that_passes_is_not_looked_into(self):
        self.fake_tests(GemmTest={"A": "ok"})
        self.assertNotIn("test by test", self.stage(self.STAGE))
        self.assertTrue(self.session.good())

    def test_a_filter_that_finds_no_test_is_a_failure(self):
        self.fake_tests(OtherTest={"A": "ok"})
        self.assertIn("nothing was tested", self.stage(self.STAGE))
        self.assertFalse(self.session.good())

    def test_names_of_parameters_and_types_are_read(self):
        self.assertEqual(narrow.names_of("Running main() from gmock_main.cc\n"
                                         "Sizes/SampleTest.\n  Matches/0  # GetParam() = 1.5\n"
                                         "Typed/0.  # TypeParam = float\n  B\n"),
                         ["Sizes/SampleTest.Matches/0", "Typed/0.B"])


class SwitchesTest(FakePrograms):
    ENGINE = run.Stage("engine-0.6b", 5, "engine_bench", ["--json=/dev/null", "--cuda_graphs=true"],
                       "speed")
    QUICK = run.Stage("switches", 60, "switches", [])

    def test_the_same_tokens_with_all_combinations(self):
        self.fake_engine()
        printed = self.stage(self.QUICK)
        self.assertIn("the same tokens with all that ran: yes", printed)
        self.assertEqual(self.statuses(), {"switches": "passed"})
        rows = self.report("switches.json")["rows"]
        self.assertEqual(len({tuple(row["off"]) for row in rows}), 8)

    def test_other_tokens_and_crashes_fail(self):
        for graphs in ((0, "bb"), (1, "")):
            self.fake_engine(graphs=graphs)
            self.assertIn("all that ran: no", self.stage(self.QUICK))
            self.assertEqual(self.statuses()["switches"], "failed")
            outcomes = {tuple(row["off"]): (row["outcome"], row["token_digest"])
                        for row in self.report("switches.json")["rows"]}
            self.assertEqual(outcomes[("overlap",)], ("passed", "aa"))
            self.assertEqual(outcomes[("graphs",)],
                             ("passed", "bb") if graphs[0] == 0 else ("failed", None))

    def test_an_engine_that_fails_is_tried_with_each_off_once(self):
        self.fake_engine(on=(5, ""), graphs=(0, "cc"))
        printed = self.stage(self.ENGINE, self.ENGINE)
        self.assertEqual(printed.count("a small model,"), 1)
        rows = {tuple(row["off"]): row["outcome"] for row in self.report("switches.json")["rows"]}
        self.assertEqual(rows, {(): "exit 5", ("overlap",): "exit 5", ("graphs",): "passed",
                                ("library",): "exit 5", ("overlap", "graphs", "library"): "passed"})

    def test_a_model_that_does_not_fit_is_no_failure(self):
        self.fake_engine(on=(77, ""))
        self.assertNotIn("a small model,", self.stage(self.ENGINE))
        self.assertEqual(self.statuses(), {"engine-0.6b": "skipped"})

    def test_with_fewer_bits_each_kind_of_bits_is_judged_alone(self):
        self.fake_engine(int8=(0, "bb"))
        stage = run.Stage("switches-blocks", 60, "switches", ["--weights=int8",
                                                              "--kv_cache_dtype=fp8"])
        self.assertIn("the same tokens with all that ran: yes", self.stage(stage))
        rows = self.report("switches-blocks.json")["rows"]
        self.assertEqual([(row["flag"], row["token_digest"]) for row in rows],
                         [("--weights=int8", "bb")] * 5 + [("--kv_cache_dtype=fp8", "aa")] * 5)

    def test_only_what_ran_is_judged(self):
        row = {"flag": "", "outcome": "passed", "token_digest": "aa"}
        late = {"flag": "", "outcome": "not run", "token_digest": None}
        hung = {"flag": "", "outcome": "timeout", "token_digest": None}
        for rows, same, status in (([row, row, late], "yes", "passed"),
                                   ([row, row, hung, late], "yes", "timeout"),
                                   ([row, row | {"token_digest": "bb"}, late], "no", "failed"),
                                   ([row, row, row | {"flag": "x", "token_digest": "bb"}], "yes",
                                    "passed"),
                                   ([row, row | {"outcome": "signal 11"}], "no", "failed"),
                                   ([row, late | {"outcome": "cut"}], "unknown", "cut"),
                                   ([late], "unknown", "cut")):
            self.assertEqual(narrow.verdict(rows), {"same_tokens": same, "status": status})


class WholeTest(FakePrograms):
    """By run.sh."""

    def command(self, *flags):
        return [HERE / "run.sh", f"--bin={self.bin}", f"--out={self.out}",
                f"--scratch={self.folder / 'scratch'}", *flags]

    def test_without_a_gpu_it_is_skipped(self):
        self.fake("nvidia-smi", "#!/bin/sh\nexit 9\n", self.path)
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 77)

    def test_quick_says_whether_it_runs(self):
        quick = {stage.arguments[0].split("=", 1)[1] for stage in run.quick_stages(self.out)
                 if stage.is_gtest}
        names = [name.replace("*", "x") for filters in quick for name in filters.split(":")]
        for how, code in (("ok", 0), ("fail", 1)):
            self.fake_engine()
            self.fake("ceilings", "#!/bin/sh\nexit 0\n")
            self.fake("mma_canon", "#!/bin/sh\nexit 0\n")
            self.fake("cuda_kernels_test", GTEST)
            (self.bin / "behaviours.json").write_text(json.dumps(
                {name: how if name.startswith("Gemm") else "ok" for name in names}),
                encoding="utf-8")
            done = subprocess.run(self.command("--quick"), capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn("library on and off: yes, 8 of 8 ran", done.stdout)
            self.assertIn("correctness: 10 of 10 passed" if code == 0 else
                          "correctness: 9 of 10 passed; NOT PASSED: quick-gemm failed", done.stdout)
            self.assertIn("summary.json", self.packed())

    def test_a_python_that_cannot_run_it_is_named(self):
        self.fake("python3", "#!/bin/sh\n[ $1 = --version ] && echo Python 3.8\nexit 1\n", self.path)
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (127, ""))
        self.assertRegex(done.stderr, "^run.sh: python3 is needed, 3.9 or later.* Python 3.8\n$")

    def test_a_stage_that_is_not_there_is_refused(self):
        done = subprocess.run(self.command("--only=engine-9b"), capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no stage engine-9b", done.stderr)

    def test_what_is_asked_for_and_what_is_left_out(self):
        for name in ("ceilings", "mma_canon", "microbench"):
            self.fake(name, "#!/bin/sh\nexit 0\n")
        only = ("ceilings,correctness,-canon-own,-kernels-rows,-memcheck,-racecheck,-parity,"
                "-server,-losses")
        subprocess.run(self.command(f"--only={only}"), stdout=subprocess.DEVNULL, timeout=60,
                       check=True)
        ran = self.statuses()
        self.assertIn("GPU 0: fake", narrow.text_of(self.out / "clocks.csv"))
        self.assertFalse(alive(int(narrow.text_of(self.folder / "clocks"))))
        self.assertIn("MemTotal", narrow.text_of(self.out / "run.log"))
        self.assertLessEqual({"ceilings", "canon-mma", "kernels-gemm"}, set(ran))
        self.assertFalse({"canon-own", "kernels-rows", "microbench", "parity"} & set(ran))

    def test_the_commands_of_the_plan_name_stages_that_are_there(self):
        text = (HERE / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
        out = pathlib.Path("out")
        known = {name for stage in run.all_stages(out, out) for name in (stage.name, stage.kind)}
        plans = re.findall(r"--seconds (\d+)\s+--only=(\S+) --out", text)
        self.assertEqual(len(plans), 3)
        for seconds, names in plans:
            self.assertLessEqual({name.lstrip("-") for name in names.split(",")}, known)
            self.assertLess(int(seconds), 600)

    def test_a_run_that_is_cut_off_leaves_its_results_and_no_process(self):
        self.fake("ceilings", "#!/bin/sh\necho measured\n")
        self.fake("microbench", f"#!/bin/sh\necho $$ >{self.folder}/pid\nexec sleep 60\n")
        archive = self.folder / "all.tgz"
        process = subprocess.Popen(
            self.command("--only=ceilings,microbench", f"--archive={archive}"),
            stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not (self.folder / "pid").exists() or not (self.folder / "pid").read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 143)
        self.assertFalse(alive(int((self.folder / "pid").read_text())))
        self.assertLessEqual({"ceilings.log", "microbench.log", "run.log", "summary.txt",
                              "stages.tsv"}, set(self.packed(archive)))
        self.assertEqual(self.statuses(), {"ceilings": "passed", "microbench": "cut"})
        self.assertIn("=== microbench", narrow.text_of(self.out / "run.log"))

    def test_an_nvidia_smi_that_hangs_is_no_obstacle_where_a_device_is(self):
        self.fake("nvidia-smi", "#!/bin/sh\nexec sleep 60\n", self.path)
        self.patch(run, ASK_SECONDS=0.1)
        for device, found in ((self.folder, True), (self.folder / "none", False)):
            self.patch(run, DEVICE_FILE=device)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(run.has_gpu(), found)


# Plays tlm-server: serves /metrics, refuses devices other than the fake one and large caches.
SERVER = """#!{python} -SE
import http.server, sys, threading, time
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
assert flags["withdrawal_grace"] == "0s", flags
uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
if not uuid.startswith(flags.get("gpu_device", uuid)):
    sys.exit("CUDA device asked for, visible are " + uuid)
if flags.get("kv_cache_bytes") == "1TiB":
    sys.exit("the model needs 2 bytes of the GPU's memory")
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("# HELP\\ntlm_gpu_info{{uuid=\\"%s\\"}} 1\\ntlm_gpu_up UP\\n"
                          "tlm_gpu_memory_used_bytes 2e9\\ntlm_gpu_memory_total_bytes 8e10\\n"
                          "tlm_gpu_sm_clock_hertz 1.9e9\\n" % uuid).encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
if "metrics_port" in flags:
    open(flags["port_file"] + ".metrics", "w").write(str(server.server_port))
open(flags["port_file"], "w").write("1")
server.serve_forever()
"""


class ScriptTest(FakePrograms):
    def test_a_server_is_asked_for_by_uuid_and_tells_of_the_gpu(self):
        self.fake("nvidia-smi", "#!/bin/sh\necho 'GPU 0: fake (UUID: "
                  "GPU-01234567-89ab-cdef-0123-456789abcdef)'\n", self.path)
        for up, status in ((1, "passed"), (0, "failed")):
            self.fake("tlm-server", SERVER.replace("UP", str(up)))
            printed = self.stage(run.Stage("server", 20, "python", [str(HERE / "server_check.py")]))
            self.assertEqual(self.statuses()["server"], status, printed)
            self.assertIn("by another UUID: as it should be", printed)
        self.assertIn("by its UUID: WRONG: tlm_gpu_up is 0.0", printed)
        (self.bin / "tlm-server").unlink()  # as in a build without gRPC
        self.stage(run.Stage("server", 20, "python", [str(HERE / "server_check.py")]))
        self.assertEqual(self.statuses()["server"], "skipped")

    def test_what_a_served_models_users_see_is_written(self):
        self.fake("tlm-server", SERVER.replace("UP", "1"))
        self.fake("serve_bench", """#!{python} -SE
import json, sys
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
latency = {{"p50": 0.01, "p99": 0.03 if flags["requests"] == "256" else 0.02}}
json.dump({{"points": [{{"per_second": {{"output_tokens": 9000}}, "latency_s": {{
    "ttft": latency, "inter_token": latency}}}}]}}, open(flags["json"], "w"))
""")
        printed = self.stage(run.Stage("serve-8b", 20, "python", [
            str(HERE / "serve_load.py"), f"--json={self.out}/serve-8b.json"], "speed"))
        self.assertIn("tlm_gpu_sm_clock_hertz 1.9e+09", printed)
        report = self.report("serve-8b.json")
        self.assertEqual((report["cold"]["ttft"]["p99"], report["warm"]["ttft"]["p99"]), (0.03, 0.02))

    def test_losses_are_held_against_the_processors(self):
        for on_cuda, status in ((1.002, "passed"), (1.004, "failed")):
            self.fake("weights_loss", f"""#!{{python}} -SE
import json, sys
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
bits = {on_cuda} if flags["backend"] == "cuda" else 1.0
json.dump({{{{"rows": [{{{{"weights": "int8", "kv": "BF16", "bits_per_byte": bits}}}}]}}}},
          open(flags["json"], "w"))
""")
            printed = self.stage(run.Stage("losses", 20, "python", [str(HERE / "losses.py")]))
            self.assertEqual(self.statuses()["losses"], status, printed)

    def test_archives_of_several_runs_are_one_summary(self):
        archives = []
        for number, (rate, name, report) in enumerate((
                (4e12, "engine-8b", {"tests": [{"test": "tg64 @ d1024", "seconds": 4e-3,
                                                "bytes": 8e9}]}),
                (5e12, "peer-graph", {"rows": [{"peer": "torch", "batch": 1, "step_ms": 6.0}]}))):
            session = run.Run(self.bin, self.folder / f"out{number}", sys.executable, 60,
                              self.folder, self.folder / f"{number}.tgz")
            session.out.mkdir()
            for file, content in (("ceilings", {"device": "fake", "read_bytes_per_second": rate}),
                                  (name, report)):
                (session.out / f"{file}.json").write_text(json.dumps(content), encoding="utf-8")
            session.note(name, "passed", 1, "speed")
            archives.append(self.folder / f"{number}.tgz")
        text = subprocess.run([sys.executable, "-B", HERE / "summary.py", self.folder / "all",
                               "--merge", *archives], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        self.assertIn("torch, batch 1: 6.00 ms a step; tlm is 1.50x as fast", text)
        self.assertIn("NOT ALIKE: read_bytes_per_second is 5000000000000.0", text)
        self.assertIn("engine-8b passed, peer-graph passed", text)


class StartTest(FakePrograms):
    def test_the_large_model_is_written_to_memory_where_there_is_room(self):
        for room, place in ((0, self.path), (1 << 60, self.folder)):
            self.patch(start_time, MEMORY=self.path, MEMORY_BYTES=room)
            with start_time.place_of(self.folder / "given") as folder:
                self.assertEqual(pathlib.Path(folder).parent, place)
        self.assertFalse(list(self.path.glob("tlm-gpu-*")))


class TableTest(unittest.TestCase):
    def test_filters_name_tests_that_are_there(self):
        folder = HERE.parents[1] / "tests" / "unit" / "model" / "ops"
        if not folder.exists():
            self.skipTest("a bundle has no sources")
        sources = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*_test.cc"))
        names = [f"{suite}.{name}" for suite, name in
                 re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", sources, re.MULTILINE)]
        out = pathlib.Path("out")
        for stage in run.quick_stages(out) + run.all_stages(out, out):
            if not stage.is_gtest or stage.name == "determinism" or stage.name.startswith("ops-"):
                continue
            for pattern in stage.arguments[0].split("=", 1)[1].split(":"):
                pattern = pattern.split("/")[-1]
                self.assertTrue(fnmatch.filter(names, pattern), pattern)

    def test_every_suite_of_the_kernels_is_in_a_stage(self):
        list_file = HERE / "kernels" / "CMakeLists.txt"
        folder = HERE.parents[1] / "tests" / "unit" / "model" / "ops" / "cuda"
        if not folder.exists():
            self.skipTest("a bundle has no sources")
        out = pathlib.Path("out")
        patterns = [pattern for stage in run.all_stages(out, out)
                    if stage.program == "cuda_kernels_test"
                    for pattern in stage.arguments[0].split("=", 1)[1].split(":")]
        suites = 0
        for name in re.findall(r"\$\{tests\}/(\w+_test\.cc)", list_file.read_text(encoding="utf-8")):
            source = (folder / name).read_text(encoding="utf-8")
            for kind, suite in set(re.findall(r"^(TEST(?:_[FP])?)\((\w+),", source, re.MULTILINE)):
                full = ("Any/" if kind == "TEST_P" else "") + suite + ".Name"
                self.assertTrue(any(fnmatch.fnmatchcase(full, p) for p in patterns), full)
                suites += 1
        self.assertGreater(suites, 10)

    def test_quick_is_quick(self):
        stages = run.quick_stages(pathlib.Path("out"))
        self.assertLessEqual(sum(stage.seconds for stage in stages), 2 * 90)
        self.assertEqual(len({stage.name for stage in stages}), len(stages))

    def test_canon_is_read_part_by_part(self):
        mma = {"passed": False, "mma": [{"differences": 0}],
               "zero_products": {"bf16": "holds", "f16": "fails"}}
        own = {"passed": True, "products": [{"different_runs": 0, "model_differences": 0,
                                             "library_asked": False, "library": False}]}
        blocks = {"passed": True, "blocks": [{"different_runs": 0}]}
        products, zeros = summary.canon_verdict({"mma": mma, "own": own, "library": None,
                                                 "blocks": blocks})
        self.assertIn("RESULTS DIFFER (as far as known: library missing)", products)
        self.assertIn("0 of 1 matrices in blocks differ", products)
        self.assertIn("no cuBLASLt", products)
        self.assertIn("bf16 holds, f16 FAILS: prefill and decode may differ", zeros)
        self.assertEqual(summary.canon_verdict(dict.fromkeys(("mma", "own", "library"))),
                         ["missing"])


class SummaryTest(FakePrograms):
    def summary(self, *flags):
        """Its standard output, and the rows by what they are of."""
        text = subprocess.run([sys.executable, "-B", HERE / "summary.py", self.out, *flags],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        return text, {row["what"]: row for row in self.report("summary.json")["figures"]}

    def write(self, **reports):
        for name, report in reports.items():
            (self.out / f"{name.replace('_', '-')}.json").write_text(json.dumps(report),
                                                                    encoding="utf-8")

    def test_what_was_measured_of_a_stage_that_was_cut_counts(self):
        self.write(ceilings={"device": "fake", "read_bytes_per_second": 4e12},
                   **{"engine_0.6b": {"tests": [{"test": "tg64 @ d1024", "seconds": 1e-3,
                                                 "bytes": 2e9}]}})
        text, rows = self.summary()
        self.assertIn("fake: reads 4000 GB/s\n", text)
        self.assertEqual(rows["Qwen3-0.6B: tg64 @ d1024, of the read bandwidth"]["value"], 50)
        self.assertIsNone(rows["Qwen3-8B: pp8192, times the floor of its products"]["value"])

    def test_fewer_bits_are_held_against_bfloat16_of_the_same_run(self):
        def engine(**seconds):
            return {"tests": [{"test": test, "seconds": time} for test, time in seconds.items()]}

        def kernels(*rows):
            return {"operations": [{"operation": name, "seconds": time} for name, time in rows]}
        self.write(**{"engine-8b": engine(**{"tg64 @ d1024": 4e-3}),
                      "engine-8b-int8": engine(**{"tg64 @ d1024": 3e-3, "tg64 x 16": 5e-3}),
                      "engine-8b-fp8-requests": engine(**{summary.REQUESTS: 25.0}),
                      "kernels": kernels(("qkv 1x1 m=1", 1.0), ("down 1x1 m=1", 3.0)),
                      "kernels-int8": kernels(("qkv 1x1 m=1", 1.0), ("down 1x1 m=1", 2.0),
                                              ("qkv 1x1 m=32", 2.0), ("qkv 1x1 m=33", 5.0))})
        _, rows = self.summary()
        for what, value in (
                ("8B, int8 weights: tg64 @ d1024, 3 ms, of bfloat16's time", 0.75),
                ("8B, int8 weights: tg64 x 16, 5 ms, of bfloat16's time", None),
                ("8B, 4-bit weights, of bfloat16's time", None),
                ("Qwen3-8B, fp8 keys and values: 256 requests of 1,024 in, 1,024 out", 25),
                ("products of a layer, m=1, int8, of bfloat16's time", 0.75),
                ("products of a layer, int8, m=33, of the time of m=32", 2.5)):
            self.assertEqual(rows[what]["value"], value, what)
        self.assertTrue(rows["Qwen3-8B, fp8 keys and values: 256 requests of 1,024 in, 1,024 out"]
                        ["met"])


if __name__ == "__main__":
    unittest.main()
