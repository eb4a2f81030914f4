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
import time
import unittest

import narrow
import run
import stages
import start_time
import summary
from fake_programs import GTEST, FakePrograms, alive

HERE = pathlib.Path(__file__).resolve().parent


class StageTest(FakePrograms):
    def test_a_stage_passes_fails_is_skipped_or_runs_out_of_time(self):
        for name, text in (("good", "exit 0"), ("bad", "echo why; exit 3"), ("none", "exit 77"),
                           ("slow", "exec sleep 60"),
                           ("blind", "echo 'skipped: there is no GPU'; exit 0")):
            self.fake(name, f"#!/bin/sh\n{text}\n")
        printed = self.stage(*(stages.Stage(name, 1, name, [])
                               for name in ("good", "bad", "none", "slow", "blind", "missing")))
        self.assertEqual(self.statuses(), {"good": "passed", "bad": "failed", "none": "skipped",
                                           "slow": "timeout", "blind": "failed",
                                           "missing": "skipped"})
        self.assertIn("why\n--- bad: failed", printed)
        self.assertIn("missing is not here", printed)
        self.assertFalse(self.session.good())

    def test_packages_that_an_interpreter_lacks_are_no_failure(self):
        def stage(name, *packages):
            return stages.Stage(name, 1, "python", ["-c", "pass"], packages=packages)
        printed = self.stage(stage("there", "json"), stage("lacking", "json", "no_such", "nor_this"))
        self.assertEqual(self.statuses(), {"there": "passed", "lacking": "skipped"})
        self.assertIn("has no no_such nor_this\n", printed)
        self.assertTrue(self.session.good())

    def test_what_a_stage_has_started_ends_with_it(self):
        self.fake("parent", f"#!/bin/sh\nsleep 60 &\necho $! >{self.folder}/child\nwait\n")
        self.stage(stages.Stage("parent", 1, "parent", []))
        child = int((self.folder / "child").read_text(encoding="utf-8"))
        deadline = time.monotonic() + 10
        while alive(child):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_speed_that_fails_is_no_failure_of_the_run(self):
        self.fake("bad", "#!/bin/sh\nexit 1\n")
        self.stage(stages.Stage("bad", 1, "bad", [], "speed"))
        self.assertTrue(self.session.good())

    def test_stages_without_time_are_left_out(self):
        self.fake("good", "#!/bin/sh\nexit 0\n")
        self.session = run.Run(self.bin, self.out, sys.executable, 10, self.folder)
        self.stage(stages.Stage("short", 5, "good", []), stages.Stage("long", 60, "good", []))
        self.assertEqual(self.statuses(), {"short": "passed", "long": "skipped"})

    def test_results_are_packed_after_every_stage(self):
        self.fake("good", "#!/bin/sh\necho said\n")
        self.stage(stages.Stage("one", 5, "good", []))
        self.assertEqual(self.packed(), ["one.log", "stages.tsv"])
        self.stage(stages.Stage("two", 5, "good", []))
        self.assertEqual(self.packed(), ["one.log", "stages.tsv", "two.log"])
        self.assertFalse((self.out / "results.tgz.part").exists())

    def test_results_are_packed_while_a_stage_runs(self):
        self.patch(run, PACK_SECONDS=0.05)
        archive = self.out / "results.tgz"
        self.fake("waits", f"#!/bin/sh\necho said\nuntil [ -e {archive} ]; do sleep 0.01; done\n")
        self.stage(stages.Stage("waits", 20, "waits", []))
        self.assertEqual(self.statuses(), {"waits": "passed"})

    def test_of_a_long_file_both_ends_are_packed(self):
        self.fake("long", "#!/bin/sh\necho first\nhead -c 5000000 /dev/zero\necho last\n")
        self.stage(stages.Stage("long", 5, "long", []))
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
        self.stage(stages.Stage("good", 5, "good", []))
        self.assertIn("good.log", self.packed(new))
        (self.folder / "file").write_text("", encoding="utf-8")
        self.session = run.Run(self.bin, self.out, sys.executable, 60, self.folder,
                               self.folder / "file" / "all.tgz")
        printed = self.stage(stages.Stage("one", 5, "good", []), stages.Stage("two", 5, "good", []))
        self.assertIn("not packed: ", printed)
        self.assertEqual(self.statuses(), {"one": "passed", "two": "passed"})

    def test_a_stage_that_the_end_cuts_off_has_no_verdict(self):
        self.patch(run, LEAST_SECONDS=0.1)
        self.fake("slow", "#!/bin/sh\nexec sleep 60\n")
        self.session = run.Run(self.bin, self.out, sys.executable, 1, self.folder)
        self.stage(stages.Stage("slow", 60, "slow", []))
        self.assertEqual(self.statuses(), {"slow": "cut"})
        self.assertTrue(self.session.good())
        self.assertEqual(summary.correctness_verdict(
            [{"stage": "slow", "status": "cut", "kind": "correctness"}]),
            "0 of 1 passed; cut: slow")

    def test_what_a_sanitizer_has_found_when_time_runs_out_is_kept(self):
        self.fake("compute-sanitizer", "#!/bin/sh\necho '========= Invalid write'\nexec sleep 60\n",
                  self.path)
        self.fake("engine_bench", "#!/bin/sh\n")
        self.stage(stages.Stage("memcheck", 2, "python", [str(HERE / "sanitize.py"), "memcheck"]))
        self.assertEqual(self.statuses(), {"memcheck": "timeout"})
        self.assertIn("Invalid write", narrow.text_of(self.out / "memcheck.log"))


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
        quick = {stage.arguments[0].split("=", 1)[1] for stage in stages.quick(self.out)
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
        known = {name for stage in stages.everything(out, out) for name in (stage.name, stage.kind)}
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
            printed = self.stage(stages.Stage("server", 20, "python", [str(HERE / "server_check.py")]))
            self.assertEqual(self.statuses()["server"], status, printed)
            self.assertIn("by another UUID: as it should be", printed)
        self.assertIn("by its UUID: WRONG: tlm_gpu_up is 0.0", printed)
        (self.bin / "tlm-server").unlink()  # as in a build without gRPC
        self.stage(stages.Stage("server", 20, "python", [str(HERE / "server_check.py")]))
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
        printed = self.stage(stages.Stage("serve-8b", 20, "python", [
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
            printed = self.stage(stages.Stage("losses", 20, "python", [str(HERE / "losses.py")]))
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
        for stage in stages.quick(out) + stages.everything(out, out):
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
        patterns = [pattern for stage in stages.everything(out, out)
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
        quick = stages.quick(pathlib.Path("out"))
        self.assertLessEqual(sum(stage.seconds for stage in quick), 2 * 90)
        self.assertEqual(len({stage.name for stage in quick}), len(quick))

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
