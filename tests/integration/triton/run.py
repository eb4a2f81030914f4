"""Runs test_triton.py in a virtual environment with tritonclient from PyPI: run.py FOLDER.

Exits with 77 where the packages cannot be had."""

import os
import pathlib
import subprocess
import sys

from server_process import ServerProcess

FOLDER = pathlib.Path(sys.argv[1])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])


def environment():
    """The interpreter of the virtual environment, which is made once."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "stamp"
    if not stamp.exists():
        for command in ([sys.executable, "-m", "venv", "--clear", FOLDER],
                        [python, "-m", "pip", "install", "--quiet", "tritonclient[grpc]"]):
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                print(f"skipped: no tritonclient: {made.stdout[-500:]}{made.stderr[-500:]}")
                sys.exit(77)
        stamp.touch()
    return python


def main():
    """The exit status of the tests."""
    python = environment()
    with ServerProcess(BIN_DIR / "tlm-server", f"--model={SOURCE_DIR}/model/demo", "--facades=oip",
                       "--withdrawal_grace=0s") as server:
        return subprocess.run(
            [python, "-B", pathlib.Path(__file__).with_name("test_triton.py"), server.target],
            timeout=120, check=False).returncode


sys.exit(main())
