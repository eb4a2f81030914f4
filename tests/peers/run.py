"""Runs a comparison with the interpreter that TLM_PEERS_PYTHON names: run.py SCRIPT [ARGUMENT...].
Exits with 77, which CTest takes for skipped, where there is none."""

import os
import sys

interpreter = os.environ.get("TLM_PEERS_PYTHON")
if not interpreter:
    print("skipped: TLM_PEERS_PYTHON is not set; tests/peers/README.md says what it should have")
    sys.exit(77)
try:
    os.execv(interpreter, [interpreter, "-B", *sys.argv[1:]])
except OSError as error:
    sys.exit(f"TLM_PEERS_PYTHON is {interpreter}: {error.strerror}")
