#!/usr/bin/env python3
"""Checks what every kernel takes of a multiprocessor against ptxas_budgets.txt.

usage: budgets.py check|table|propose OBJECTS SOURCE...

check    fails when a kernel exceeds its budget, spills, has a stack or static shared memory, when
         no line or more than one is about it, when a line is about nothing, and when reports are
         missing
table    prints all kernels, for people
propose  prints the lines of ptxas_budgets.txt anew: one for the instantiations that differ by type
         alone, with what the largest takes, rounded up to what is really set aside for it

OBJECTS is where the object files of model/ops/cuda/kernels are, each SOURCE a .cu file relative to
it.
"""

import fnmatch
import pathlib
import re
import sys

import device_code

BUDGETS = pathlib.Path(__file__).with_name("ptxas_budgets.txt")
MOST_REGISTERS = 255
UNIT = 8  # registers are given to a thread by so many


def read_budgets(text):
    """[(pattern, architecture, registers)]"""
    budgets = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].split()
        if not line:
            continue
        if len(line) != 3 or line[1] not in device_code.ARCHITECTURES or not line[2].isdigit():
            raise ValueError(f"line {number}: not 'kernel architecture registers'")
        budgets.append((line[0], line[1], int(line[2])))
    return budgets


def matches(pattern, report):
    return fnmatch.fnmatchcase(report.kernel, pattern.replace("[", "[[]"))


def complaints(reports, budgets):
    """What is wrong, a line each."""
    wrong = []
    used = set()
    for report in reports:
        where = f"{report.kernel} ({report.source}) for {report.architecture}"
        for what, taken in (("spilled", report.spill_bytes), ("of stack", report.stack_bytes),
                            ("of static shared memory", report.shared_bytes)):
            if taken:
                wrong.append(f"{where}: {taken} bytes {what}, none are allowed")
        lines = [budget for budget in budgets
                 if budget[1] == report.architecture and matches(budget[0], report)]
        used.update(lines)
        if len(lines) != 1:
            patterns = ", ".join(line[0] for line in lines)
            wrong.append(f"{where}: " + (f"several budgets: {patterns}" if lines else "no budget"))
        for _, _, registers in lines:
            if report.registers > registers:
                wrong.append(f"{where}: {report.registers} registers, the budget is {registers}")
    wrong += [f"budget {pattern} for {architecture} is about no kernel"
              for pattern, architecture, registers in budgets
              if (pattern, architecture, registers) not in used]
    return wrong


def in_order(report):
    return (report.source, report.kernel,
            device_code.ARCHITECTURES.index(report.architecture))


def table(reports):
    width = max(len(report.kernel) for report in reports)
    lines = [f"{'kernel':{width}}  target   registers  stack  spills  static shared"]
    for report in sorted(reports, key=in_order):
        lines.append(f"{report.kernel:{width}}  {report.architecture:7} {report.registers:10} "
                     f"{report.stack_bytes:6} {report.spill_bytes:7} {report.shared_bytes:14}")
    return "\n".join(lines)


def pattern_of(kernel):
    """The kernel's name with * for types: what differs by type alone has one budget."""
    name, template, arguments = kernel.rstrip(">").partition("<")
    if not template:
        return name
    words = ("*" if re.fullmatch("[A-Za-z_]\\w*", word) and word not in ("true", "false") else word
             for word in arguments.split(","))
    return f"{name}<{','.join(words)}>"


def propose(reports):
    largest = {}
    for report in sorted(reports, key=in_order):
        key = (pattern_of(report.kernel), report.architecture)
        largest[key] = max(largest.get(key, 0), report.registers)
    width = max(len(pattern) for pattern, _ in largest)
    return "\n".join(
        f"{pattern:{width}}  {architecture:6}  {min(-(-registers // UNIT) * UNIT, MOST_REGISTERS)}"
        for (pattern, architecture), registers in largest.items())


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("check", "table", "propose"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        reports = device_code.read_reports(arguments[1], arguments[2:])
        if arguments[0] != "check":
            print({"table": table, "propose": propose}[arguments[0]](reports))
            return 0
        wrong = complaints(reports, read_budgets(BUDGETS.read_text()))
    except (device_code.Missing, ValueError) as error:
        wrong, reports = [str(error)], []
    for line in wrong:
        print(line)
    print(f"{len(reports)} kernels, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
