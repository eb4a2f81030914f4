#!/usr/bin/env python3
"""Checks the machine code of every kernel against sass_assertions.txt.

usage: sass.py sizes|check|table|propose [--nvdisasm=PROGRAM] OBJECTS SOURCE...

sizes   fails when a kernel's code is larger than its line allows, when no line or several are about
        its size, when a line is about nothing, and when code is missing; needs no disassembler
check   the same, and every other line; exit status 77, for skipped, without a disassembler
table   prints all kernels, for people: KiB of code, and with a disassembler instructions, those of
        the main loop, and loads of 16 bytes under way at once
propose prints the lines about sizes anew: one for the instantiations that differ by type alone, a
        tenth above the largest

Without --nvdisasm, the disassembler is nvdisasm of the package nvidia-cuda-nvdisasm of this
interpreter, or the one on PATH. OBJECTS is where the object files of model/ops/cuda/kernels are,
each SOURCE a .cu file relative to it.
"""

import dataclasses
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import budgets
import device_code

ASSERTIONS = pathlib.Path(__file__).with_name("sass_assertions.txt")
SKIPPED = 77
KIB = 1024
TENSOR_CORE = "HMMA"  # what the main loop of a table is found by; without it: the longest innermost
EVERY = "*"  # any instruction


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    opcode: str  # with its modifiers: LDG.E.128
    operands: str


@dataclasses.dataclass(frozen=True)
class Function:
    """A kernel's instructions in the order of addresses, and where its labels are."""
    instructions: tuple
    labels: dict


@dataclasses.dataclass(frozen=True)
class Assertion:
    pattern: str
    architecture: str
    measure: str  # code, count, flight, loop or before
    mark: str  # of loop and before: the instruction in brackets
    opcode: str  # "" of code
    relation: str
    value: float

    def __str__(self):
        measure = f"{self.measure}({self.mark})" if self.mark else self.measure
        words = [self.pattern, self.architecture, measure, self.opcode, self.relation,
                 f"{self.value:g}"]
        return " ".join(word for word in words if word)

    def is_about(self, code):
        return (self.architecture in ("*", code.architecture) and
                fnmatch.fnmatchcase(code.kernel, self.pattern))

    def holds(self, measured):
        return {"<=": measured <= self.value, ">=": measured >= self.value,
                "==": measured == self.value}[self.relation]


MEASURE = re.compile(r"(code|count|flight)|(loop|before)\(((?:\d+\*)?[A-Z][\w.]*)\)")


def read_assertions(text):
    """[Assertion]"""
    assertions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        measure = MEASURE.fullmatch(words[2]) if len(words) > 4 else None
        sized = measure is not None and measure[1] == "code"
        if (measure is None or len(words) != (5 if sized else 6) or
                words[1] not in (*device_code.ARCHITECTURES, "*") or
                words[-2] not in ("<=", ">=", "==") or
                not re.fullmatch(r"\d+(\.\d+)?", words[-1])):
            raise ValueError(f"line {number}: not 'kernel architecture measure [instruction] "
                             "<=|>=|== number'")
        assertions.append(Assertion(words[0], words[1], measure[1] or measure[2], measure[3] or "",
                                    "" if sized else words[3], words[-2], float(words[-1])))
    return assertions


SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$]+)")
LABEL = re.compile(r"^(\.\w+):")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")


def parse_sass(text):
    """{mangled kernel: Function} of what nvdisasm prints."""
    functions = {}
    instructions, labels, waiting = [], {}, []
    for line in text.splitlines():
        if found := SECTION.match(line):
            instructions, labels, waiting = [], {}, []
            functions[found[1]] = (instructions, labels)
        elif found := LABEL.match(line):
            waiting.append(found[1])
        elif found := INSTRUCTION.match(line):
            address = int(found[1], 16)
            labels.update((label, address) for label in waiting)
            waiting = []
            instructions.append(Instruction(address, found[2], found[3]))
    return {name: Function(tuple(listed), places) for name, (listed, places) in functions.items()}


def is_of(instruction, opcode):
    """LDG is LDG.E.128, too; LDG.E.12 is not."""
    return opcode == EVERY or (instruction.opcode + ".").startswith(opcode + ".")


def count(instructions, opcode):
    return sum(is_of(instruction, opcode) for instruction in instructions)


def loops(function):
    """Instructions from the target of every branch backwards to the branch."""
    found = []
    for at, instruction in enumerate(function.instructions):
        if not is_of(instruction, "BRA"):
            continue
        target = re.search(r"\((\.\w+)\)", instruction.operands)
        start = function.labels.get(target[1]) if target else None
        # A branch to itself is what follows a kernel's end.
        if start is not None and start < instruction.address:
            found.append(tuple(other for other in function.instructions[:at + 1]
                               if other.address >= start))
    return found


def loop_of(function, mark):
    """The shortest of the loops with the most of an opcode, or, marked 8*HMMA, with at least so
    many; empty if none has it."""
    least, _, opcode = mark.rpartition("*")
    candidates = [loop for loop in loops(function) if count(loop, opcode) >= int(least or 1)]
    return max(candidates, key=lambda loop: (0 if least else count(loop, opcode), -len(loop)),
               default=())


def main_loop(function):
    """With the tensor cores' instructions, or the longest that holds no other."""
    found = loop_of(function, TENSOR_CORE)
    if found:
        return found
    all_loops = loops(function)
    innermost = [loop for loop in all_loops
                 if not any(other is not loop and loop[0].address <= other[0].address and
                            other[-1].address <= loop[-1].address for other in all_loops)]
    return max(innermost, key=len, default=())


REGISTER = re.compile(r"\bR(\d+)\b")


def in_flight(function, opcode):
    """The most instructions `opcode`, in the order of addresses, of which none has its result used
    before the last of them begins."""
    most = 0
    pending = {}  # register: number of the load
    begun = 0
    for instruction in function.instructions:
        named = [int(number) for number in REGISTER.findall(instruction.operands)]
        waited = [pending[register] for register in named if register in pending]
        if waited:  # for this load, hence for those before it
            pending = {register: load for register, load in pending.items()
                       if load > max(waited)}
        if not is_of(instruction, opcode) or not named:
            continue
        begun += 1
        words = {"128": 4, "64": 2}.get(instruction.opcode.rsplit(".", 1)[-1], 1)
        pending.update((named[0] + word, begun) for word in range(words))
        most = max(most, len(set(pending.values())))
    return most


def before(function, mark, opcode):
    """How often `opcode` stands before the first `mark`; all, if there is none."""
    instructions = function.instructions
    end = next((at for at, instruction in enumerate(instructions) if is_of(instruction, mark)),
               len(instructions))
    return count(instructions[:end], opcode)


def measured(assertion, code, function):
    """What the line is about: KiB or a number of instructions."""
    if assertion.measure == "code":
        return code.code_bytes / KIB
    if assertion.measure == "count":
        return count(function.instructions, assertion.opcode)
    if assertion.measure == "flight":
        return in_flight(function, assertion.opcode)
    if assertion.measure == "before":
        return before(function, assertion.mark, assertion.opcode)
    return count(loop_of(function, assertion.mark), assertion.opcode)


def complaints(codes, functions, assertions):
    """What is wrong, a line each. functions: {(file, mangled): Function}; None: sizes alone."""
    wrong = []
    used = set()
    for code in codes:
        where = f"{code.kernel} ({code.source}) for {code.architecture}"
        lines = [assertion for assertion in assertions if assertion.is_about(code)]
        used.update(lines)
        sizes = [line for line in lines if line.measure == "code"]
        if len(sizes) != 1:
            patterns = ", ".join(line.pattern for line in sizes)
            wrong.append(f"{where}: " + (f"several lines about its size: {patterns}" if sizes
                                         else "no line about its size"))
        function = (functions or {}).get((code.file, code.mangled))
        if functions is not None and (function is None or not function.instructions):
            wrong.append(f"{where}: not disassembled")
            continue
        for line in lines:
            if line.measure != "code" and functions is None:
                continue
            value = measured(line, code, function)
            if not line.holds(value):
                wrong.append(f"{where}: {value:.4g}, not {line}")
    wrong += [f"{assertion}: about no kernel"
              for assertion in assertions if assertion not in used]
    return wrong


def find_disassembler():
    """A path, or None."""
    packages = pathlib.Path(sysconfig.get_path("purelib"))
    for program in sorted(packages.glob("nvidia/**/bin/nvdisasm")):
        if os.access(program, os.X_OK):
            return str(program)
    return shutil.which("nvdisasm")


def disassemble(codes, program):
    """{(file, mangled): Function}"""
    functions = {}
    for file in sorted({code.file for code in codes}):
        said = subprocess.run([program, "--print-code", file], capture_output=True, text=True,
                              check=False)
        if said.returncode != 0:
            raise device_code.Missing(f"{program} {file}: {said.stderr.strip()[-500:]}")
        functions.update(((file, name), function)
                         for name, function in parse_sass(said.stdout).items())
    return functions


def table(codes, functions):
    width = max(len(code.kernel) for code in codes)
    lines = [f"{'kernel':{width}}  target  KiB code  instructions  main loop  tensor cores  loads"]
    for code in sorted(codes, key=lambda c: (c.source, c.kernel, c.architecture)):
        line = f"{code.kernel:{width}}  {code.architecture:6} {code.code_bytes / KIB:9.1f}"
        if functions:
            function = functions[code.file, code.mangled]
            loop = main_loop(function)
            line += (f" {len(function.instructions):13} {len(loop):10}"
                     f" {count(loop, TENSOR_CORE):13} {in_flight(function, 'LDG.E.128'):6}")
        lines.append(line)
    return "\n".join(lines)


def propose(codes):
    largest = {}
    for code in sorted(codes, key=lambda c: (c.source, c.kernel, c.architecture)):
        key = (budgets.pattern_of(code.kernel), code.architecture)
        largest[key] = max(largest.get(key, 0), code.code_bytes)
    width = max(len(pattern) for pattern, _ in largest)
    return "\n".join(f"{pattern:{width}}  {architecture:6}  code <= {-(-code_bytes * 11 // 10240)}"
                     for (pattern, architecture), code_bytes in largest.items())


def main(arguments):
    programs = [word.partition("=")[2] for word in arguments if word.startswith("--nvdisasm=")]
    arguments = [word for word in arguments if not word.startswith("--")]
    if len(arguments) < 2 or arguments[0] not in ("sizes", "check", "table",
                                                       "propose"):
        print(__doc__, file=sys.stderr)
        return 2
    what, objects, *sources = arguments
    program = programs[0] if programs else find_disassembler()
    if what == "check" and not program:
        print("skipped: no nvdisasm; its wheel is nvidia-cuda-nvdisasm, a path is TLM_NVDISASM")
        return SKIPPED
    try:
        codes = device_code.read_code(objects, sources)
        functions = (disassemble(codes, program) if program and what in ("check", "table")
                     else None)
        if what in ("table", "propose"):
            print(table(codes, functions) if what == "table" else propose(codes))
            return 0
        wrong = complaints(codes, functions, read_assertions(ASSERTIONS.read_text()))
    except (device_code.Missing, ValueError, OSError) as error:
        wrong, codes = [str(error)], []
    for line in wrong:
        print(line)
    print(f"{len(codes)} kernels, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
