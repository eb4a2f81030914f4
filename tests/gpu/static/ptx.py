#!/usr/bin/env python3
"""Checks the instructions of every kernel against ptx_assertions.txt and what no kernel may do.

usage: ptx.py OBJECTS SOURCE...

Of every kernel:
- no floating-point atomics, no approximate functions, nothing flushed to zero: results would depend
  on the order or on the device; but for Reciprocal (kernels/simt.h), whose errors are made up for
- no loads that other blocks' stores may not reach (ld.global.nc)
- no calls: all is inlined, so that what is read here is all there is
- no single bytes read from global memory: it is what becomes of a wide access whose alignment the
  compiler has lost sight of
- from compute_90a on, programmatic dependent launch: griddepcontrol.wait stands on every way to the
  kernel's end, and before every store or atomic to memory that other kernels see. Attention's blocks
  without work end at once, all but the first, which tests on the emulated GPU check

Of some, by ptx_assertions.txt: instructions that must be there.

OBJECTS is where the object files of model/ops/cuda/kernels are, each SOURCE a .cu file relative to
it.
"""

import fnmatch
import pathlib
import re
import sys

import device_code

ASSERTIONS = pathlib.Path(__file__).with_name("ptx_assertions.txt")
FORBIDDEN = {
    "a floating-point atomic": re.compile(r"^(atom|red)\.\S*\.(f|bf)\d"),
    "an approximate function": re.compile(r"^(?!rcp\.approx\.ftz\.f32\b)\S*\.(approx|full)\b"),
    "results flushed to zero": re.compile(r"^(?!rcp\.approx\.ftz\.f32\b)\S*\.ftz\b"),
    "a load past other blocks' stores": re.compile(r"^ld(u\b|\S*\.nc\b)"),
    "a call": re.compile(r"^call\b"),
    "memory read byte by byte": re.compile(r"^ld(?!\.param)(?!\S*\.(shared|local))\S*\.[bsu]8\s"),
}
WAIT = "griddepcontrol.wait"
MAY_END_AT_ONCE = "Attend*"
# To global memory, and to an address that does not say where it is.
SEEN_BY_OTHERS = re.compile(r"^(st|atom|red)(\.\w+)*?\.global|^st\.(?!shared|local|param)|"
                            r"^(atom|red)\.(?!\S*shared)|^cp\.\S*\.global\.shared")
LABEL = re.compile(r"^([\w$]+):$")
GUARD = re.compile(r"^@!?%?\w+ ")


def operation(statement):
    """The statement without its guard."""
    return GUARD.sub("", statement)


def complaints_of_wait(statements, may_end):
    """What can be reached from the kernel's start without passing a wait; may_end: its end may, if
    there is a wait at all."""
    labels = {found[1]: at for at, statement in enumerate(statements)
              if (found := LABEL.match(statement))}
    end = "a way to its end that does not wait"
    wrong = set() if WAIT in statements else {end}
    reached = set()
    pending = [0]
    while pending:
        at = pending.pop()
        if at in reached:
            continue
        reached.add(at)
        if at >= len(statements):
            wrong.add(end)
            continue
        statement = statements[at]
        what = operation(statement)
        guarded = what != statement
        if what == WAIT and not guarded:
            continue
        if SEEN_BY_OTHERS.match(what):
            wrong.add(f"before the wait: {what}")
        name = what.split()[0] if what else ""
        if name in ("ret", "exit") and not may_end:
            wrong.add(end)
        if name.startswith("brx"):
            table = statements[labels[what.rsplit(",", 1)[1].strip()] + 1]
            pending += [labels[target] for target in re.findall(r"\$[\w$]+", table)]
            continue
        elif name.startswith("bra"):
            pending.append(labels[what.split()[-1]])
        elif name == "trap":
            continue
        if guarded or not name.startswith(("bra", "ret", "exit")):
            pending.append(at + 1)
    return sorted(wrong)[:3]  # the rest is more of the same


def read_assertions(text):
    """[(kernel pattern, virtual architecture or "*", beginning of an instruction, and behind it
    nothing, or "before" and the beginning of another; "not" in front: there is none)]"""
    assertions = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].split()
        if not line:
            continue
        if (line[1:2] == [] or line[1] not in (*device_code.VIRTUAL_ARCHITECTURES, "*") or
                not (len(line) == 3 or len(line) == 4 and line[2] == "not" or
                     len(line) == 5 and line[3] == "before")):
            raise ValueError(f"line {number}: not 'kernel architecture [not] instruction "
                             "[before instruction]'")
        assertions.append(tuple(line))
    return assertions


def complaint_of(words, operations):
    """What is wrong with the instructions, or ""; words: of an assertion."""
    if words[0] == "not":
        return f"has {words[1]}" if any(line.startswith(words[1]) for line in operations) else ""
    first = [next((at for at, line in enumerate(operations) if line.startswith(word)), None)
             for word in words[::2]]
    if None in first:
        return f"no {words[2 * first.index(None)]}"
    return "" if first == sorted(first) else f"no {' '.join(words)}"


def complaints(kernels, assertions):
    """What is wrong, a line each."""
    wrong = []
    used = set()
    for kernel in kernels:
        where = f"{kernel.kernel} ({kernel.source}) for {kernel.architecture}"
        operations = [operation(statement) for statement in kernel.statements]
        for what, pattern in FORBIDDEN.items():
            found = next((line for line in operations if pattern.match(line)), None)
            if found:
                wrong.append(f"{where}: {what}: {found}")
        if kernel.architecture in device_code.OVERLAPPING:
            may_end = fnmatch.fnmatchcase(kernel.kernel, MAY_END_AT_ONCE)
            wrong += [f"{where}: {line}"
                      for line in complaints_of_wait(kernel.statements, may_end)]
        for assertion in assertions:
            pattern, architecture, *words = assertion
            if (architecture not in ("*", kernel.architecture) or
                    not fnmatch.fnmatchcase(kernel.kernel, pattern)):
                continue
            used.add(assertion)
            if complaint := complaint_of(words, operations):
                wrong.append(f"{where}: {complaint}")
    wrong += [f"{' '.join(assertion)}: about no kernel"
              for assertion in assertions if assertion not in used]
    return wrong


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        kernels = device_code.read_ptx(arguments[0], arguments[1:])
        wrong = complaints(kernels, read_assertions(ASSERTIONS.read_text()))
    except (device_code.Missing, ValueError) as error:
        wrong, kernels = [str(error)], []
    for line in wrong:
        print(line)
    print(f"{len(kernels)} kernels, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
