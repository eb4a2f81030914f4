#!/usr/bin/env python3
"""The checks must find what they are there to find."""

import dataclasses
import pathlib
import struct
import tempfile
import unittest

import budgets
import device_code
import module
import ptx
import sass

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
SASS = """\
\t.target\tsm_90a
//--------------------- .text._ZN3tlm5EmbedENS_4ArgsE --------------------------
\t.section\t.text._ZN3tlm5EmbedENS_4ArgsE,"ax",@progbits
\t.align\t128
.text._ZN3tlm5EmbedENS_4ArgsE:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDGSTS.E.BYPASS.128 [R3+0x10], desc[UR4][R4.64] ;
        /*0020*/              @!P1 LDG.E.128 R8, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E.128 R12, desc[UR4][R2.64+0x10] ;
        /*0040*/                   DEPBAR.LE SB0, 0x2 ;
.L_x_1:
        /*0050*/                   IADD3 R9, R9, 0x1, RZ ;
.L_x_2:
        /*0060*/                   LDG.E.128 R16, desc[UR4][R2.64] ;
        /*0070*/                   HMMA.16816.F32.BF16 R20, R16, R12, R20 ;
        /*0080*/              @P0  BRA `(.L_x_2) ;
        /*0090*/                   HMMA.16816.F32.BF16 R20, R16, R12, R20 ;
        /*00a0*/              @P1  BRA `(.L_x_1) ;
        /*00b0*/                   EXIT ;
.L_x_3:
        /*00c0*/                   BRA `(.L_x_3);
        /*00d0*/                   NOP;
"""


def cubin(sections):
    """An ELF file of 64 bits with such sections: {name: bytes}."""
    table = b"\0.names\0" + b"".join(name.encode() + b"\0" for name in sections)
    headers = [(0, 0, 0, 0), (1, 3, 64, len(table))]
    headers += [(table.index(name.encode() + b"\0"), 1, 64, size)
                for name, size in sections.items()]
    begin = 64 + len(table)
    elf = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", begin) + bytes(10)
    elf += struct.pack("<3H", 64, len(headers), 1) + table
    return elf + b"".join(struct.pack("<2I4Q", name, kind, 0, 0, at, size) + bytes(24)
                          for name, kind, at, size in headers)


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
            of_each = REPORT + REPORT[REPORT.index("ptxas info    : Comp"):].replace(
                "sm_80", "sm_100").replace("sm_90a", "sm_120")
            (folder / "ptxas.txt").write_text(of_each)
            self.assertEqual(len(device_code.read_reports(directory, ["embed.cu"])), 4)
            self.assertEqual(device_code.read_reports(directory, ["embed.cu"])[0].kernel, "Embed")
            with self.assertRaises(device_code.Missing):
                device_code.read_ptx(directory, ["embed.cu"])
            for architecture in device_code.ARCHITECTURES:
                others = of_each.replace(f"'{architecture}'", "'sm_75'")
                (folder / "ptxas.txt").write_text(others)
                with self.assertRaisesRegex(device_code.Missing, f"for {architecture}$"):
                    device_code.read_reports(directory, ["embed.cu"])


class PtxTest(unittest.TestCase):

    def complaints(self, text, assertions="", architecture="compute_90a"):
        kernels = device_code.parse_ptx(text, "embed.cu", architecture)
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
                     "rsqrt.approx.f32 %f1, %f2", "rcp.approx.f32 %f1, %f2",
                     "ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]", "ldu.global.u32 %r1, [%rd1]",
                     "call.uni (retval0), f, (param0)",
                     "ld.global.u8 %r1, [%rd1]", "@%p1 ld.b8 %rs1, [%rd1+3]"):
            self.assertTrue(self.complaints(self.insert("ret;", line)), line)

    def test_what_resembles_them_is_allowed(self):
        for line in ("atom.global.add.u32 %r1, [%rd1], %r2", "red.shared.add.u64 [%r1], %rd2",
                     "div.rn.f32 %f1, %f2, %f3", "sqrt.rn.f32 %f1, %f2",
                     "rcp.approx.ftz.f32 %f1, %f2", "ld.volatile.global.u32 %r1, [%rd1]",
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
            for architecture in device_code.VIRTUAL_ARCHITECTURES:
                self.assertEqual(self.complaints(text, architecture=architecture) != [],
                                 architecture != "compute_80", architecture)

    def test_blocks_of_attention_without_work_may_end_at_once(self):
        def complaints(text, kernel="AttendMma<Bf16,64>"):
            parsed, = device_code.parse_ptx(text, "embed.cu", "compute_90a")
            return "".join(ptx.complaints([dataclasses.replace(parsed, kernel=kernel)], []))
        leaving = self.insert("griddepcontrol.wait;", "@!%p1 ret")
        self.assertEqual(complaints(leaving), "")
        self.assertIn("does not wait", complaints(leaving, "Embed"))
        self.assertIn("does not wait", complaints(leaving.replace("griddepcontrol.wait;", "")))
        self.assertIn("before the wait", complaints(
            self.insert("griddepcontrol.wait;", "st.global.u32 [%rd1], %r1")))

    def test_a_store_before_waiting_is_found(self):
        for line in ("st.global.u32 [%rd1], %r1", "st.volatile.global.u32 [%rd1], %r1",
                     "st.u32 [%rd1], %r1", "@%p1 atom.global.add.u32 %r1, [%rd1], %r2",
                     "red.add.u32 [%rd1], %r2"):
            text = self.insert("griddepcontrol.wait;", line)
            self.assertIn("before the wait", "".join(self.complaints(text)), line)

    def test_what_others_do_not_see_may_be_stored_before_waiting(self):
        for line in ("st.shared.u32 [%r1], %r2", "ld.global.u32 %r1, [%rd1]",
                     "cp.async.cg.shared.global [%r1], [%rd1], 16",
                     "atom.shared.add.u32 %r1, [%r2], 1"):
            text = self.insert("griddepcontrol.wait;", line)
            self.assertEqual(self.complaints(text), [], line)

    def test_assertions_hold_by_kernel_and_architecture(self):
        self.assertEqual(self.complaints(PTX, "_ZN3tlm5Embed* * st.global"), [])
        self.assertEqual(self.complaints(PTX, "_ZN3tlm5Embed* compute_90a st.global"), [])
        self.assertIn("no mma.sync", self.complaints(PTX, "_ZN3tlm5Embed* * mma.sync")[0])
        self.assertIn("about no kernel", self.complaints(PTX, "_ZN* compute_80 st.global")[0])

    def test_assertions_hold_by_order_and_absence(self):
        for right, wrong in (("not mma.sync", "not st.global"),
                             ("griddepcontrol.wait before st.global",
                              "st.global before griddepcontrol.wait"),
                             ("ld.param before ret", "mma.sync before ret")):
            self.assertEqual(self.complaints(PTX, f"_ZN3tlm5Embed* * {right}"), [], right)
            self.assertEqual(len(self.complaints(PTX, f"_ZN3tlm5Embed* * {wrong}")), 1, wrong)

    def test_lines_that_are_none_are_refused(self):
        for line in ("Embed", "Embed mma.sync", "Embed sm_80 mma.sync", "Embed * no mma.sync",
                     "Embed * mma.sync before", "Embed * mma.sync after ret"):
            with self.assertRaises(ValueError):
                ptx.read_assertions(line)


class SassTest(unittest.TestCase):
    NAME = "_ZN3tlm5EmbedENS_4ArgsE"

    def complaints(self, lines, sass_text=SASS, code_bytes=3 * 1024, **changes):
        file = pathlib.Path("embed.sm_90a.cubin")
        values = dict(mangled=self.NAME, kernel="Embed<8>", source="embed.cu",
                      architecture="sm_90a", file=file, code_bytes=code_bytes)
        functions = None
        if sass_text is not None:
            functions = {(file, name): function
                         for name, function in sass.parse_sass(sass_text).items()}
        return sass.complaints([device_code.Code(**(values | changes))], functions,
                               sass.read_assertions(lines))

    def holds(self, line, **arguments):
        return self.complaints("* * code <= 3\n" + line, **arguments)

    def test_reads_sizes_of_code(self):
        elf = cubin({".text.A": 384, ".text.B": 128, ".nv.info.A": 7})
        self.assertEqual(device_code.text_sections(elf), {"A": 384, "B": 128})

    def test_files_cut_short_or_of_another_kind_are_refused(self):
        elf = cubin({".text.A": 384})
        for wrong in (b"", elf[:50], elf[:62], elf[:-65], b"\x7fELF\x01\x01" + elf[6:]):
            with self.assertRaises(device_code.Missing):
                device_code.text_sections(wrong)

    def test_missing_machine_code_is_found(self):
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory) / "embed.cu.device"
            folder.mkdir()
            (folder / "ptxas.txt").write_text(
                REPORT + REPORT.replace("sm_80", "sm_100").replace("sm_90a", "sm_120"))
            elf = cubin({".text." + self.NAME: 384})
            for name in ("compute_80.sm_80", "compute_100.sm_100", "compute_100.sm_120"):
                (folder / f"embed.{name}.cubin").write_bytes(elf)
            with self.assertRaises(device_code.Missing):
                device_code.read_code(directory, ["embed.cu"])
            (folder / "embed.compute_90a.cubin").write_bytes(cubin({}))
            with self.assertRaises(device_code.Missing):
                device_code.read_code(directory, ["embed.cu"])
            (folder / "embed.compute_90a.cubin").write_bytes(elf)
            self.assertEqual([(code.kernel, code.architecture, code.code_bytes)
                              for code in device_code.read_code(directory, ["embed.cu"])],
                             [("Embed", architecture, 384)
                              for architecture in device_code.ARCHITECTURES])

    def test_larger_code_is_found(self):
        self.assertEqual(self.complaints("Embed<*> sm_90a code <= 3", sass_text=None), [])
        self.assertIn("3.001, not", self.complaints("Embed<*> sm_90a code <= 3", sass_text=None,
                                                    code_bytes=3 * 1024 + 1)[0])

    def test_a_kernel_without_a_line_or_with_two_is_found(self):
        self.assertIn("no line", self.complaints("", sass_text=None)[0])
        self.assertIn("no line", self.complaints("Embed<*> sm_80 code <= 3", sass_text=None)[0])
        self.assertIn("several", self.complaints("Embed<*> sm_90a code <= 3\nEmbed<8> * code <= 4",
                                                 sass_text=None)[0])

    def test_a_line_about_nothing_is_found(self):
        for text in (SASS, None):
            wrong = self.holds("Norm sm_90a count LDG <= 9", sass_text=text)
            self.assertIn("about no kernel", wrong[0])

    def test_reads_instructions_and_labels(self):
        function = sass.parse_sass(SASS)[self.NAME]
        self.assertEqual(len(function.instructions), 14)
        self.assertEqual(function.instructions[2].opcode, "LDG.E.128")
        self.assertEqual(function.labels, {".L_x_1": 0x50, ".L_x_2": 0x60, ".L_x_3": 0xc0})

    def test_instructions_are_counted(self):
        for right, wrong in (("count HMMA == 2", "count HMMA == 1"),
                             ("count LDG.E.128 <= 3", "count LDG.E <= 2"),
                             ("count LDG.E.12 == 0", "count * <= 13"),
                             ("loop(HMMA) HMMA == 2", "loop(HMMA) HMMA == 1"),
                             ("loop(LDG) * == 3", "loop(LDG) HMMA == 2"),
                             ("loop(DEPBAR) * == 0", "loop(HMMA) LDG >= 2"),
                             ("loop(2*HMMA) HMMA == 2", "loop(3*HMMA) * >= 1"),
                             ("loop(1*LDG) * == 3", "loop(1*LDG) HMMA == 2"),
                             ("before(DEPBAR.LE) LDGSTS.E == 1", "before(HMMA) LDG <= 2"),
                             ("before(ACQBULK) HMMA == 2", "before(LDGSTS) LDC == 0"),
                             ("flight LDG.E.128 == 2", "flight LDG >= 3")):
            self.assertEqual(self.holds("* * " + right), [], right)
            self.assertEqual(len(self.holds("* * " + wrong)), 1, wrong)

    def test_a_load_is_no_longer_under_way_once_part_of_it_is_used(self):
        used = SASS.replace("DEPBAR.LE SB0, 0x2", "IADD3 R1, R15, 0x1, RZ")
        self.assertEqual(self.holds("* * flight LDG == 2", sass_text=used), [])
        used = used.replace("LDG.E.128 R12", "IADD3 R1, R11, 0x1, RZ ;\n"
                            "        /*0028*/                   LDG.E.128 R12")
        self.assertEqual(self.holds("* * flight LDG == 1", sass_text=used), [])

    def test_a_kernel_that_was_not_disassembled_is_found(self):
        self.assertIn("not disassembled", self.holds("", sass_text="")[0])
        self.assertIn("not disassembled", self.holds("", mangled="other")[0])

    def test_without_a_disassembler_sizes_are_all_there_is(self):
        self.assertEqual(self.holds("* * count HMMA == 1", sass_text=None), [])

    def test_lines_that_are_none_are_refused(self):
        for line in ("Embed * code 3", "Embed * code HMMA <= 3", "Embed sm_75 code <= 3",
                     "Embed * loop HMMA <= 3", "Embed * loop() HMMA <= 3", "Embed * count <= 3",
                     "Embed * count HMMA < 3", "Embed * count HMMA <= many",
                     "Embed * count HMMA <= 3 4"):
            with self.assertRaises(ValueError):
                sass.read_assertions(line)

    def test_proposes_a_tenth_more_than_the_largest(self):
        file = pathlib.Path("norm.sm_80.cubin")
        codes = [device_code.Code("m", f"Norm<{kind},8>", "norm.cu", "sm_80", file, size)
                 for kind, size in (("F16", 10000), ("Bf16", 10240))]
        self.assertEqual(sass.propose(codes), "Norm<*,8>  sm_80   code <= 11")


class ModuleTest(unittest.TestCase):

    def test_libraries_of_cuda_are_found(self):
        for library in ("libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13"):
            self.assertTrue(module.complaints_of_libraries(["libc.so.6", library]), library)
        self.assertEqual(module.complaints_of_libraries(["libc.so.6", "libdl.so.2"]), [])

    def test_further_symbols_are_found(self):
        names = list(module.EXPORTED)
        self.assertEqual(module.complaints_of_symbols(names), [])
        self.assertTrue(module.complaints_of_symbols(names + ["_ZN3tlm5ErrorE"]))
        self.assertTrue(module.complaints_of_symbols(names[:1]))


if __name__ == "__main__":
    unittest.main()
