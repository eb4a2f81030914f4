"""Runs test_triton.py in a virtual environment with tritonclient from PyPI: run.py FOLDER.

Exits with 77 where the packages cannot be had."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(sys.argv[1])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
START_SECONDS = 60


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


def wait_for(port_file, server):
    """The port that the server has written."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        if port_file.exists() and (text := port_file.read_text().strip()):
            return text
        time.sleep(0.02)
    raise RuntimeError("tlm-server named no port")


def main():
    """The exit status of the tests."""
    python = environment()
    with tempfile.TemporaryDirectory(prefix="tlm-test-") as folder:
        port_file = pathlib.Path(folder) / "port"
        server = subprocess.Popen(
            [BIN_DIR / "tlm-server", f"--model={SOURCE_DIR}/model/demo", "--port=0", "--oip",
             f"--port_file={port_file}", "--withdrawal_grace=0s"], stdin=subprocess.DEVNULL)
        try:
            port = wait_for(port_file, server)
            return subprocess.run(
                [python, "-B", pathlib.Path(__file__).with_name("test_triton.py"),
                 f"127.0.0.1:{port}"], timeout=120, check=False).returncode
        finally:
            server.terminate()
            server.wait(60)


sys.exit(main())
