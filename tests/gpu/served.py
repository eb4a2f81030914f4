"""A tlm-server on the GPU, for the stages of run.sh that measure a whole server."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "support"))

from server_process import ServerProcess  # noqa: E402


def program(name):
    """The path of one of the programs that were built; without it the stage is skipped."""
    root = pathlib.Path(os.environ["TLM_BIN_DIR"])
    for folder in (root, root / "bin", root / "tests", root / "benchmarks"):
        if (folder / name).exists():
            return folder / name
    print(f"skipped: {name} is not in {root}")
    raise SystemExit(77)


class Server(ServerProcess):
    """Runs as a context manager, which prints the server's log at its end; `ready_seconds` from
    exec to the port file, which is written when the server serves."""

    def __init__(self, *flags, limit=300, ports=()):
        # The grace is for load balancers.
        super().__init__(program("tlm-server"), "--backend=cuda", "--withdrawal_grace=0s", *flags,
                         ports=ports, start_seconds=limit)

    def __exit__(self, *exception):
        self.terminate()
        self.wait()
        print(self.log())
        self.close()
