"""Makes an environment with client/python in it: python3 environment.py pypi|distribution FOLDER.

pypi: a fresh virtual environment with the package installed by pip from a copy of the checkout, and
what PyPI has of its dependencies today. distribution: the wheel that the distribution's setuptools
and protoc make of it, unpacked, for the interpreter with the distribution's gRPC and Protobuf.

Writes FOLDER/environment.json, or exits with 77 where something that is needed is out of reach. An
environment that was made of the same sources is kept.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
SKIPPED = 77
BUILT = {"build", "dist", "tlm_client.egg-info", "__pycache__"}
# What the tests need besides.
CHECKERS = ["mypy", "types-protobuf", "types-grpcio", "jsonschema"]


def main(kind, folder):
    description = folder / "environment.json"
    digest = digest_of_sources()
    if description.exists():
        if json.loads(description.read_text(encoding="utf-8")).get("digest") == digest:
            print("kept: nothing has changed")
            return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checkout = copy_checkout(folder / "checkout")
    environment = {"pypi": make_pypi, "distribution": make_distribution}[kind](folder, checkout)
    description.write_text(json.dumps(environment | {"digest": digest}), encoding="utf-8")


def digest_of_sources():
    """Of all files that an environment is made of."""
    digest = hashlib.sha256()
    digest.update(pathlib.Path(__file__).read_bytes())
    for folder in (SOURCE_DIR / "proto", SOURCE_DIR / "client" / "python"):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not BUILT.intersection(name.parts):
                digest.update(str(name).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def copy_checkout(folder):
    """What a clone has of the client: nothing that a build left behind."""
    shutil.copytree(SOURCE_DIR / "proto", folder / "proto")
    shutil.copyfile(SOURCE_DIR / "LICENSE", folder / "LICENSE")
    shutil.copytree(SOURCE_DIR / "client" / "python", folder / "client" / "python",
                    ignore=shutil.ignore_patterns(*BUILT, "*.pyi", "schema.binpb", "options.json",
                                                  "answers.py"))
    return folder


def make_pypi(folder, checkout):
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries=1",
           "--timeout=20"]
    probe = subprocess.run([*pip, "download", "--no-deps", f"--dest={folder}", "types-protobuf"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if probe.returncode != 0:
        skip(f"pip reaches no package index:\n{probe.stdout}")
    subprocess.run([*pip, "install", "./client/python[cli,tools]"], cwd=checkout, check=True)
    installed = subprocess.run([python, "-m", "pip", "list", "--format=json"], text=True,
                               stdout=subprocess.PIPE, check=True).stdout
    subprocess.run([*pip, "install", *CHECKERS], check=True)
    versions = {package["name"]: package["version"] for package in json.loads(installed)}
    print(json.dumps(versions, indent=1))
    return {"python": str(python), "path": "", "bin": str(folder / "venv" / "bin")}


def make_distribution(folder, checkout):
    missing = [name for name in ("grpc", "google.protobuf", "numpy", "setuptools", "wheel")
               if not can_import(name)]
    if missing or shutil.which("protoc") is None:
        skip(f"the distribution's packages of {', '.join(missing) or 'protoc'} are missing")
    build = ("import sys; sys.path.insert(0, 'tools'); import tlm_build; "
             f"tlm_build.build_wheel({str(folder)!r})")
    subprocess.run([sys.executable, "-c", build], cwd=checkout / "client" / "python", check=True,
                   stdout=subprocess.DEVNULL)
    wheel, = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return {"python": sys.executable, "path": str(folder / "site"), "bin": ""}


def can_import(name):
    return subprocess.run([sys.executable, "-c", f"import {name}"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
