"""A tlm-server on the GPU, for the stages of run.sh that measure a whole server."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time


def program(name):
    """The path of one of the programs that were built."""
    root = pathlib.Path(os.environ["TLM_BIN_DIR"])
    for folder in (root, root / "bin", root / "tests", root / "benchmarks"):
        if (folder / name).exists():
            return folder / name
    raise SystemExit(f"{name} is not in {root}")


class Server:
    """Runs as a context manager; `ready_seconds` from exec to the port file, which is written when
    the server serves."""

    def __init__(self, *flags, limit=300):
        self._flags, self._limit = flags, limit

    def __enter__(self):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="tlm-gpu-"))
        port_file = self._folder / "port"
        self._log = open(self._folder / "log", "w+", encoding="utf-8")
        begin = time.monotonic()
        self._process = subprocess.Popen(
            [program("tlm-server"), "--backend=cuda", "--port=0", f"--port_file={port_file}",
             *self._flags], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        while not (port_file.exists() and port_file.read_text().strip()):
            if self._process.poll() is not None or time.monotonic() > begin + self._limit:
                self._process.kill()
                self._log.seek(0)
                raise SystemExit(f"tlm-server did not start:\n{self._log.read()}")
            time.sleep(0.001)
        self.ready_seconds = time.monotonic() - begin
        self.target = "127.0.0.1:" + port_file.read_text().strip()
        return self

    def __exit__(self, *exception):
        self._process.terminate()
        self._process.wait(60)
        self._log.seek(0)
        print(self._log.read())
        self._log.close()
        shutil.rmtree(self._folder)
