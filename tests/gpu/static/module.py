#!/usr/bin/env python3
"""Checks what libtlm_cuda.so needs and what it shows.

usage: module.py MODULE PROGRAM...

Neither the module nor a PROGRAM needs a library of CUDA: not the driver's, which only machines with
a GPU have, nor a shared runtime, nor cuBLASLt, which is looked for at run time. The module shows two
functions.
"""

import re
import subprocess
import sys

EXPORTED = ("tlm_cuda_create", "tlm_cuda_module_abi")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
OF_CUDA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|nvrtc|nvJitLink|tlm_cuda)\b")


def libraries(path):
    said = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True)
    return NEEDED.findall(said.stdout)


def symbols(path):
    said = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", path],
                          capture_output=True, text=True, check=True)
    return [line.split()[0] for line in said.stdout.splitlines()]


def complaints_of_libraries(needed):
    return [f"needs {library}" for library in needed if OF_CUDA.match(library)]


def complaints_of_symbols(shown):
    wrong = [f"shows {name}" for name in shown if name not in EXPORTED]
    return wrong + [f"does not show {name}" for name in EXPORTED if name not in shown]


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    module, *programs = arguments
    wrong = [f"{module}: {line}" for line in complaints_of_libraries(libraries(module)) +
             complaints_of_symbols(symbols(module))]
    for program in programs:
        wrong += [f"{program}: {line}" for line in complaints_of_libraries(libraries(program))]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
