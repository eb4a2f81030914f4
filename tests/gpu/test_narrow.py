"""How a run looks into a stage that failed: test by test, and with optimisations off."""

import sys
import time
import unittest

import narrow
import run
import stages
from fake_programs import FakePrograms


class NarrowTest(FakePrograms):
    STAGE = stages.gtest("kernels-gemm", 2, "cuda_kernels_test", "Gemm*")

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
        tests = [stages.gtest(name, 1, "cuda_kernels_test", "Gemm*") for name in ("one", "two")]
        printed = self.stage(*tests, stages.Stage("engine-8b", 1, "engine_bench", [], "speed"))
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
    ENGINE = stages.Stage("engine-0.6b", 5, "engine_bench", ["--json=/dev/null", "--cuda_graphs=true"],
                       "speed")
    QUICK = stages.Stage("switches", 60, "switches", [])

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
        stage = stages.Stage("switches-blocks", 60, "switches", ["--weights=int8",
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


if __name__ == "__main__":
    unittest.main()
