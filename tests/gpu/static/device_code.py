"""What the compiler kept of each kernel: the assembler's report, the PTX and the machine code.

.cmake/keep_device_code.sh leaves all in a folder X.cu.device for every X.cu of
model/ops/cuda/sources.cmake.
"""

import dataclasses
import pathlib
import re
import struct
import subprocess

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")  # of the reports
VIRTUAL_ARCHITECTURES = ("compute_80", "compute_90a", "compute_100")  # of the PTX
OVERLAPPING = ("compute_90a", "compute_100")  # those with programmatic dependent launch


class Missing(Exception):
    """Nothing was kept, or not all of it."""


@dataclasses.dataclass(frozen=True)
class Report:
    """One kernel on one architecture, as `ptxas -v` tells it."""
    kernel: str
    source: str
    architecture: str
    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@dataclasses.dataclass(frozen=True)
class Ptx:
    """One kernel's PTX, a list of statements and labels."""
    kernel: str
    source: str
    architecture: str
    statements: tuple


@dataclasses.dataclass(frozen=True)
class Code:
    """One kernel's machine code; `kernel` as the file has it, mangled, and short."""
    mangled: str
    kernel: str
    source: str
    architecture: str
    file: pathlib.Path
    code_bytes: int


def short_name(demangled):
    """"void tlm::(anonymous namespace)::Embed<tlm::simt::F16, 8>(Args)" -> "Embed<F16,8>"."""
    name = demangled.replace("(anonymous namespace)::", "").replace("tlm::simt::", "")
    name = name.replace("tlm::", "").removeprefix("void ")
    name = re.sub(r"\((?:bool|int|unsigned int|long)\)", "", name)  # (int)8
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:at]
            break
    return name.replace(" ", "")


def short_names(mangled):
    """{mangled: short}"""
    mangled = sorted(set(mangled))
    if not mangled:
        return {}
    said = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True,
                          check=True).stdout.splitlines()
    return dict(zip(mangled, map(short_name, said)))


def kept_folders(objects, sources):
    """{source: folder}; `sources` relative to the folder `objects`."""
    folders = {source: pathlib.Path(objects) / (source + ".device") for source in sources}
    for source, folder in folders.items():
        if not (folder / "ptxas.txt").is_file():
            raise Missing(f"{source}: no report in {folder}; build tlm_cuda")
    if not folders:
        raise Missing("no kernel is listed")
    return folders


ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def parse_report(text, source):
    """[Report] with mangled names."""
    reports = []
    entry = stack = None
    for line in text.splitlines():
        if found := ENTRY.search(line):
            entry, stack = found.groups(), None
        elif entry and (found := STACK.search(line)):
            stack = [int(value) for value in found.groups()]
        elif entry and (found := USED.search(line)):
            if stack is None:
                raise Missing(f"{source}: no stack size of {entry[0]}")
            shared = SHARED.search(line)
            reports.append(Report(entry[0], source, entry[1], int(found[1]), stack[0],
                                  stack[1] + stack[2], int(shared[1]) if shared else 0))
            entry = None
    if entry:
        raise Missing(f"{source}: no registers of {entry[0]}")
    return reports


def read_reports(objects, sources):
    """[Report] of all kernels on all architectures."""
    reports = []
    for source, folder in kept_folders(objects, sources).items():
        found = parse_report((folder / "ptxas.txt").read_text(), source)
        for architecture in ARCHITECTURES:
            if not any(report.architecture == architecture for report in found):
                raise Missing(f"{source}: no report for {architecture}")
        reports += found
    names = short_names(report.kernel for report in reports)
    return [dataclasses.replace(report, kernel=names[report.kernel]) for report in reports]


PTX_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)\s*\(", re.MULTILINE)


def statements_of(body):
    """Statements and labels of a function's body, without comments and line numbers."""
    body = re.sub(r"//[^\n]*", "", body)
    body = re.sub(r"^\s*\.loc\b[^\n]*$", "", body, flags=re.MULTILINE)
    body = re.sub(r"^\s*[{}]\s*$", "", body, flags=re.MULTILINE)
    body = re.sub(r"^(\s*[\w$]+:)(?!:)", r"\1;", body, flags=re.MULTILINE)
    return tuple(" ".join(part.split()) for part in body.split(";") if part.strip())


def matching_brace(text, opening):
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    raise Missing("a kernel in the PTX does not end")


def parse_ptx(text, source, architecture):
    """[Ptx] with mangled names."""
    kernels = []
    for entry in PTX_ENTRY.finditer(text):
        opening = text.index("{", entry.end())
        body = text[opening + 1:matching_brace(text, opening)]
        kernels.append(Ptx(entry[1], source, architecture, statements_of(body)))
    return kernels


def read_ptx(objects, sources):
    """[Ptx] of all kernels for all virtual architectures."""
    kernels = []
    for source, folder in kept_folders(objects, sources).items():
        for architecture in VIRTUAL_ARCHITECTURES:
            files = list(folder.glob(f"*.{architecture}.ptx"))
            if len(files) != 1:
                raise Missing(f"{source}: no PTX for {architecture} in {folder}")
            found = parse_ptx(files[0].read_text(), source, architecture)
            if not found:
                raise Missing(f"{source}: no kernel in the PTX for {architecture}")
            kernels += found
    names = short_names(kernel.kernel for kernel in kernels)
    return [dataclasses.replace(kernel, kernel=names[kernel.kernel]) for kernel in kernels]


TEXT = ".text."


def text_sections(elf):
    """{mangled kernel: bytes of code} of a cubin, which is an ELF file of 64 bits."""
    try:
        if elf[:6] != b"\x7fELF\x02\x01":
            raise Missing("not an ELF file of 64 bits")
        table, = struct.unpack_from("<Q", elf, 40)
        entry_bytes, entries, names_at = struct.unpack_from("<3H", elf, 58)
        sections = [struct.unpack_from("<2I4Q", elf, table + i * entry_bytes)
                    for i in range(entries)]
        _, _, _, _, names, names_bytes = sections[names_at]
        found = {}
        for name_at, _, _, _, _, code_bytes in sections:
            if name_at >= names_bytes:
                raise Missing("a section's name lies outside the table of names")
            name = elf[names + name_at:elf.index(b"\0", names + name_at)].decode()
            if name.startswith(TEXT):
                found[name.removeprefix(TEXT)] = code_bytes
        return found
    except (struct.error, IndexError, ValueError) as error:
        raise Missing(f"not a whole ELF file: {error}") from error


def read_code(objects, sources):
    """[Code] of all kernels on all architectures."""
    found = []
    for source, folder in kept_folders(objects, sources).items():
        for architecture in ARCHITECTURES:
            number = architecture.removeprefix("sm_")
            files = [file for file in folder.glob("*.cubin")
                     if re.search(rf"\.(sm|compute)_{number}\.cubin$", file.name)]
            if len(files) != 1:
                raise Missing(f"{source}: no machine code for {architecture} in {folder}; "
                              "build tlm_cuda anew")
            try:
                sections = text_sections(files[0].read_bytes())
            except Missing as missing:
                raise Missing(f"{files[0]}: {missing}") from missing
            if not sections:
                raise Missing(f"{source}: no kernel in the machine code for {architecture}")
            found += [Code(name, name, source, architecture, files[0], code_bytes)
                      for name, code_bytes in sections.items()]
    names = short_names(code.mangled for code in found)
    return [dataclasses.replace(code, kernel=names[code.mangled]) for code in found]
