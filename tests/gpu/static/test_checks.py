#!/usr/bin/env python3
"""The checks must find what they are there to find."""

import pathlib
import tempfile
import unittest

import budgets
import device_code
import module
import ptx

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN3tlm5EmbedENS_4ArgsE' for 'sm_80'
ptxas info    : Function properties for _ZN3tlm5EmbedENS_4ArgsE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 39 registers, used 1 barriers, 368 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN3tlm5EmbedENS_4ArgsE' for 'sm_90a'
ptxas info    : Function properties for _ZN3tlm5EmbedENS_4ArgsE
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 64 bytes smem
"""
PTX = """\
.version 9.0
.target sm_90a
.visible .entry _ZN3tlm5EmbedENS_4ArgsE(
\t.param .align 8 .b8 _ZN3tlm5EmbedENS_4ArgsE_param_0[112]
)
{
\t.reg .pred \t%p<2>;
\tld.param.v2.u32 \t{%r1, %r2}, [_ZN3tlm5EmbedENS_4ArgsE_param_0+104];
\t.loc\t1 34 5
\t// begin inline asm
\tgriddepcontrol.wait;
\t// end inline asm
\t@%p1 bra \t$L__BB0_2;
\t{ // callseq
\tst.global.u32 \t[%rd1], %r1;
\t}
$L__BB0_2:
\tret;

}
"""


class BudgetsTest(unittest.TestCase):

    def report(self, **changes):
        values = dict(kernel="Embed", source="embed.cu", architecture="sm_80", registers=40,
                      stack_bytes=0, spill_bytes=0, shared_bytes=0)
        return device_code.Report(**(values | changes))

    def complaints(self, lines, **changes):
        return budgets.complaints([self.report(**changes)], budgets.read_budgets(lines))

    def test_reads_the_report(self):
        first, second = device_code.parse_report(REPORT, "embed.cu")
        self.assertEqual((first.architecture, first.registers, first.stack_bytes,
                          first.spill_bytes, first.shared_bytes), ("sm_80", 39, 0, 0, 0))
        self.assertEqual((second.architecture, second.registers, second.stack_bytes,
                          second.spill_bytes, second.shared_bytes), ("sm_90a", 40, 16, 12, 64))

    def test_a_report_cut_short_is_missing(self):
        for end in ("Function properties", "ptxas info    : Used 40"):
            with self.assertRaises(device_code.Missing):
                device_code.parse_report(REPORT[:REPORT.rindex(end)], "embed.cu")

    def test_names_are_short(self):
        for long, short in (
                ("void tlm::(anonymous namespace)::Norm<tlm::simt::F16, 8>(tlm::Args)",
                 "Norm<F16,8>"),
                ("tlm::(anonymous namespace)::Embed(tlm::(anonymous namespace)::Args)", "Embed"),
                ("void tlm::Skinny<tlm::simt::Bf16, (int)32, (bool)1>(tlm::Args)",
                 "Skinny<Bf16,32,1>")):
            self.assertEqual(device_code.short_name(long), short)

    def test_within_the_budget_is_silent(self):
        self.assertEqual(self.complaints("Embed sm_80 40  # as it is"), [])

    def test_more_registers_are_found(self):
        self.assertIn("40 registers", self.complaints("Embed sm_80 39")[0])

    def test_spills_stack_and_static_shared_memory_are_found(self):
        for field in ("spill_bytes", "stack_bytes", "shared_bytes"):
            self.assertEqual(len(self.complaints("Embed sm_80 40", **{field: 4})), 1, field)

    def test_a_kernel_without_a_line_is_found(self):
        self.assertIn("no budget", self.complaints("")[0])
        self.assertIn("no budget", self.complaints("Embed sm_90a 40")[0])

    def test_a_kernel_with_two_lines_is_found(self):
        self.assertIn("several", self.complaints("Embed sm_80 40\nEm* sm_80 50")[0])

    def test_a_line_about_nothing_is_found(self):
        self.assertIn("about no kernel",
                      self.complaints("Embed sm_80 40\nNorm<*> sm_80 40")[0])

    def test_lines_that_are_none_are_refused(self):
        for line in ("Embed", "Embed sm_75 40", "Embed sm_80 many", "Embed sm_80 40 0"):
            with self.assertRaises(ValueError):
                budgets.read_budgets(line)

    def test_missing_reports_are_found(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaises(device_code.Missing):
                device_code.read_reports(directory, [])
            with self.assertRaises(device_code.Missing):
                device_code.read_reports(directory, ["embed.cu"])
            folder = pathlib.Path(directory) / "embed.cu.device"
            folder.mkdir()
            (folder / "ptxas.txt").write_text(REPORT)
            self.assertEqual(len(device_code.read_reports(directory, ["embed.cu"])), 2)
            self.assertEqual(device_code.read_reports(directory, ["embed.cu"])[0].kernel, "Embed")
            with self.assertRaises(device_code.Missing):
                device_code.read_ptx(directory, ["embed.cu"])
            only_one = REPORT[:REPORT.index("Compiling entry function '_ZN3tlm5EmbedENS_4ArgsE' "
                                            "for 'sm_90a'")]
            (folder / "ptxas.txt").write_text(only_one)
            with self.assertRaises(device_code.Missing):
                device_code.read_reports(directory, ["embed.cu"])


class PtxTest(unittest.TestCase):

    def complaints(self, text, assertions=""):
        kernels = device_code.parse_ptx(text, "embed.cu", "compute_90a")
        self.assertEqual(len(kernels), 1)
        return ptx.complaints(kernels, ptx.read_assertions(assertions))

    def insert(self, before, line):
        return PTX.replace(before, f"{line};\n\t{before}", 1)

    def test_reads_statements(self):
        kernel, = device_code.parse_ptx(PTX, "embed.cu", "compute_90a")
        self.assertEqual(kernel.statements[1:],
                         ("ld.param.v2.u32 {%r1, %r2}, [_ZN3tlm5EmbedENS_4ArgsE_param_0+104]",
                          "griddepcontrol.wait", "@%p1 bra $L__BB0_2",
                          "st.global.u32 [%rd1], %r1", "$L__BB0_2:", "ret"))

    def test_what_is_right_is_silent(self):
        self.assertEqual(self.complaints(PTX), [])

    def test_forbidden_instructions_are_found(self):
        for line in ("atom.global.add.f32 %f1, [%rd1], %f2", "red.global.add.f32 [%rd1], %f2",
                     "red.global.add.noftz.f16x2 [%rd1], %r2", "@%p1 red.shared.add.f64 [%r1], %fd",
                     "atom.add.noftz.bf16x2 %r1, [%rd1], %r2",
                     "ex2.approx.f32 %f1, %f2", "ex2.approx.ftz.f32 %f1, %f2",
                     "div.full.f32 %f1, %f2, %f3", "add.ftz.f32 %f1, %f2, %f3",
                     "rsqrt.approx.f32 %f1, %f2", "call.uni (retval0), f, (param0)",
                     "ld.global.u8 %r1, [%rd1]", "@%p1 ld.b8 %rs1, [%rd1+3]"):
            self.assertTrue(self.complaints(self.insert("ret;", line)), line)

    def test_what_resembles_them_is_allowed(self):
        for line in ("atom.global.add.u32 %r1, [%rd1], %r2", "red.shared.add.u64 [%r1], %rd2",
                     "div.rn.f32 %f1, %f2, %f3", "sqrt.rn.f32 %f1, %f2",
                     "fma.rn.f32 %f1, %f2, %f3, %f4", "ld.param.u8 %rs1, [Embed_param_0+32]",
                     "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]",
                     "ld.shared.u8 %rs1, [%r1]"):
            self.assertEqual(self.complaints(self.insert("ret;", line)), [], line)

    def test_a_way_to_the_end_without_waiting_is_found(self):
        for text in (PTX.replace("griddepcontrol.wait;", ""),
                     self.insert("griddepcontrol.wait;", "@%p1 bra $L__BB0_2"),
                     self.insert("griddepcontrol.wait;", "@!%p1 ret"),
                     PTX.replace("griddepcontrol.wait;", "@%p1 griddepcontrol.wait;")):
            self.assertIn("does not wait", "".join(self.complaints(text)))

    def test_a_store_before_waiting_is_found(self):
        for line in ("st.global.u32 [%rd1], %r1", "st.volatile.global.u32 [%rd1], %r1",
                     "st.u32 [%rd1], %r1", "@%p1 atom.global.add.u32 %r1, [%rd1], %r2",
                     "red.add.u32 [%rd1], %r2"):
            text = self.insert("griddepcontrol.wait;", line)
            self.assertIn("before the wait", "".join(self.complaints(text)), line)

    def test_what_others_do_not_see_may_be_stored_before_waiting(self):
        for line in ("st.shared.u32 [%r1], %r2", "ld.global.nc.u32 %r1, [%rd1]",
                     "cp.async.cg.shared.global [%r1], [%rd1], 16",
                     "atom.shared.add.u32 %r1, [%r2], 1"):
            text = self.insert("griddepcontrol.wait;", line)
            self.assertEqual(self.complaints(text), [], line)

    def test_assertions_hold_by_kernel_and_architecture(self):
        self.assertEqual(self.complaints(PTX, "_ZN3tlm5Embed* * st.global"), [])
        self.assertEqual(self.complaints(PTX, "_ZN3tlm5Embed* compute_90a st.global"), [])
        self.assertIn("no mma.sync", self.complaints(PTX, "_ZN3tlm5Embed* * mma.sync")[0])
        self.assertIn("about no kernel", self.complaints(PTX, "_ZN* compute_80 st.global")[0])

    def test_lines_that_are_none_are_refused(self):
        for line in ("Embed mma.sync", "Embed sm_80 mma.sync"):
            with self.assertRaises(ValueError):
                ptx.read_assertions(line)


class ModuleTest(unittest.TestCase):

    def test_the_drivers_library_and_the_runtimes_are_found(self):
        for library in ("libcuda.so.1", "libcudart.so.13", "libcublas.so.13"):
            self.assertTrue(module.complaints_of_libraries(["libcublasLt.so.13", library]), library)
        self.assertTrue(module.complaints_of_libraries(["libc.so.6"]))
        self.assertEqual(module.complaints_of_libraries(["libcublasLt.so.13", "libc.so.6"]), [])

    def test_further_symbols_are_found(self):
        names = list(module.EXPORTED)
        self.assertEqual(module.complaints_of_symbols(names), [])
        self.assertTrue(module.complaints_of_symbols(names + ["_ZN3tlm5ErrorE"]))
        self.assertTrue(module.complaints_of_symbols(names[:1]))


if __name__ == "__main__":
    unittest.main()
