"""A tlm-server process of these tests. The stubs are those of tests/integration/python."""

import os
import pathlib
import re
import urllib.request

from server_process import ServerProcess

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])


class Replica(ServerProcess):
    """Use as a context manager: it serves the bundled model inside."""

    def __init__(self, *flags):
        super().__init__(BIN_DIR / "tlm-server", f"--model={SOURCE_DIR}/model/demo", "--threads=1",
                         "--withdrawal_grace=0s", *flags, ports=("metrics",))

    def sum(self, metric, **labels):
        """The sum of the samples of this metric that have these labels."""
        url = f"http://{self.target_of('metrics')}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pattern = re.compile(rf"{re.escape(metric)}(?:\{{(.*)\}})? (\S+)")
        samples = [match.groups() for match in map(pattern.fullmatch, lines) if match]
        return sum(float(value) for found, value in samples
                   if all(f'{name}="{label}"' in (found or "") for name, label in labels.items()))
