"""Runs one test module with gateways from PyPI: run.py FOLDER MODULE REQUIREMENTS...

The requirements, complete lists, are installed in the virtual environment FOLDER, once and again
when they change. Exits with 77 where they, or gRPC for Python, cannot be had."""

import os
import pathlib
import sys
import unittest

import in_venv

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as error:
    print(f"skipped: {error} (python3-grpcio and python3-protobuf are needed)")
    sys.exit(in_venv.SKIPPED)

folder, module = pathlib.Path(sys.argv[1]), sys.argv[2]
if not in_venv.make(folder, *map(pathlib.Path, sys.argv[3:]), options=["--no-deps"]):
    print(f"[  SKIPPED ] integration/fleet/{module} (no packages from PyPI)")
    sys.exit(in_venv.SKIPPED)
os.environ["TLM_FLEET_PROGRAMS"] = str(folder / "bin")
unittest.main(module=module, argv=[module], verbosity=2)
