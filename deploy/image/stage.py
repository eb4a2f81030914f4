#!/usr/bin/env python3
"""Lays out what the container image adds to its base.

    stage.py BUILD_FOLDER ROOT

Copies the programs of a build, stripped, to ROOT/usr/local/bin and every shared library they need,
but for those that any base has to bring (glibc; for the CUDA backend the toolkit's and the
driver's), to ROOT/usr/local/lib/tlm, where the programs look first: they are linked with
DT_RPATH $ORIGIN/../lib/tlm. So the image needs no package manager and no shell, and the base may
be of another distribution as long as its glibc is not older than that of the build.

The licences of what is copied go to ROOT/usr/share/doc, the list of it to
ROOT/usr/share/tlm/sbom.spdx.json. Times of files are SOURCE_DATE_EPOCH, if that is set.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import sbom

PROGRAMS = ("tlm-server", "tlm", "tlm-keys", "tlm-openai")
CUDA_MODULE = "libtlm_cuda.so"
# glibc is the base's: its parts must be of one version, the loader among them.
GLIBC_PACKAGES = {"libc6"}
FROM_CUDA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|nv[A-Za-z-]*)\.so")
# Compiled into the programs: in no shared library.
COMPILED_IN = ("nlohmann-json3-dev", "cppzmq-dev")
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def libraries_of(program):
    """Paths of the shared libraries that `program` is loaded with, by the names it asks for."""
    found = {}
    for line in run("ldd", str(program)).splitlines():
        match = re.match(r"\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", line)
        if not match or FROM_CUDA.match(match.group(1)):
            continue
        if match.group(2) == "not found":
            sys.exit(f"stage: {program} needs {match.group(1)}, which is nowhere")
        found[match.group(1)] = pathlib.Path(match.group(2)).resolve()
    return found


def package_of(library):
    """The distribution's package that owns a file, which it may know by its path before /usr."""
    for path in (str(library), str(library).removeprefix("/usr")):
        asked = subprocess.run(
            ["dpkg-query", "-S", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if asked.returncode == 0:
            return asked.stdout.split(":")[0]
    sys.exit(f"stage: {library} is of no package, so nothing is known of its licence")


def toolkit_version(build):
    """The version of the CUDA toolkit whose runtime is compiled into the module; none without."""
    found = re.search(
        r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE
    )
    return re.search(r"V([\d.]+)", run(found.group(1), "--version")).group(1) if found else None


def copy(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def stage_programs(bin_folder, root):
    """Returns the staged files that are the project's own."""
    own = []
    for name in PROGRAMS:
        own.append(root / "usr/local/bin" / name)
        copy(bin_folder / name, own[-1], 0o755)
    if (bin_folder / CUDA_MODULE).exists():
        own.append(root / "usr/local/lib/tlm" / CUDA_MODULE)
        copy(bin_folder / CUDA_MODULE, own[-1], 0o644)
    for file in own:
        run("strip", "--strip-unneeded", str(file))
    return own


def stage_libraries(programs, root):
    """Copies what `programs` load; returns the staged files by package."""
    needed = {}
    for program in programs:
        needed.update(libraries_of(program))
    by_package = {}
    for name, path in sorted(needed.items()):
        package = package_of(path)
        if package in GLIBC_PACKAGES:
            continue
        target = root / "usr/local/lib/tlm" / name
        copy(path, target, 0o644)
        by_package.setdefault(package, []).append(target)
    return by_package


def stage_licences(packages, root):
    for package in packages:
        copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
        if not copyright_file.exists():
            sys.exit(f"stage: {package} has no {copyright_file}")
        copy(copyright_file, root / copyright_file.relative_to("/"), 0o644)
    copy(SOURCE / "LICENSE", root / "usr/share/doc/tlm/LICENSE", 0o644)


def stage_model(root):
    """The bundled model: so that an image can be tried, and tested, with nothing mounted."""
    for file in sorted((SOURCE / "model/demo").iterdir()):
        if file.suffix in (".json", ".safetensors"):
            copy(file, root / "usr/share/tlm/demo" / file.name, 0o644)


def set_times(root):
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch:
        for path in [root, *root.rglob("*")]:
            os.utime(path, (int(epoch), int(epoch)), follow_symlinks=False)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    os.umask(0o022)
    own = stage_programs(build / "bin", root)
    by_package = stage_libraries([build / "bin" / file.name for file in own], root)
    for package in COMPILED_IN:
        by_package.setdefault(package, [])
    stage_licences(sorted(by_package), root)
    stage_model(root)
    version = re.search(
        r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE
    ).group(1)
    sbom.write(root, version, own, by_package, toolkit_version(build))
    set_times(root)


if __name__ == "__main__":
    main()
