"""What the scenarios share: running a benchmark, and a verdict for every bar."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO_MODEL = ROOT / "model" / "demo"
# Makes all programs that the scripts here run; quickstart.sh makes no benchmarks.
BUILD_COMMAND = "tests/run.sh --build-only"


def parser(description):
    """An argument parser with what every scenario has."""
    result = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    result.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release",
                        help="build folder, with bin/ and benchmarks/")
    result.add_argument("--server", type=pathlib.Path, help="tlm-server; that of the build folder "
                        "if not given")
    result.add_argument("--server_flag", action="append", default=[],
                        help="a further flag for the server; may be repeated")
    result.add_argument("--json", type=pathlib.Path, help="write everything to this file")
    return result


def built(program):
    """This program, which must exist."""
    if not program.is_file():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {program} does not exist: {BUILD_COMMAND} builds it")
    return program


def server_of(arguments):
    """The server's program."""
    return built(arguments.server or arguments.build / "bin" / "tlm-server")


def benchmark_of(arguments, name):
    return built(arguments.build / "benchmarks" / name)


def halves():
    """The processors this process may use, in two lists as taskset takes them: for the server and
    for the client. On a single one both have it."""
    usable = sorted(os.sched_getaffinity(0))
    half = (len(usable) + 1) // 2
    return [",".join(map(str, part)) for part in (usable[:half], usable[half:] or usable)]


def pinned(processors, *command):
    """The command, kept to these processors."""
    return ["taskset", "--cpu-list", processors, *command]


def measure(program, *flags, prefix=()):
    """Runs a benchmark; its output goes on, its JSON comes back."""
    with tempfile.TemporaryDirectory(prefix="tlm-benchmark-") as directory:
        path = pathlib.Path(directory) / "result.json"
        sys.stdout.flush()
        if subprocess.run([*prefix, program, f"--json={path}", *flags],
                          check=False).returncode != 0:
            sys.exit(f"{program.name} failed")
        return json.loads(path.read_text(encoding="utf-8"))


def run(arguments, benchmark, flags, server_flags, processors=None):
    """Measures a benchmark against a server of its own. `processors`: for the server and for the
    client; None = they share what there is."""
    server, program = [server_of(arguments)], benchmark_of(arguments, benchmark)
    prefix = []
    if processors is not None:
        server = pinned(processors[0], *server)
        prefix = pinned(processors[1])
    return measure(program, f"--server={server[0]}", *flags, "--", *server[1:], "--log_level=warn",
                   *server_flags, *arguments.server_flag, prefix=prefix)


def spread(values, form="{:.4g}"):
    """The median, and all values behind it."""
    return (form.format(statistics.median(values)) + "  ("
            + " ".join(form.format(value) for value in values) + ")")


class Verdicts:
    """Bars, each met or not; printed at the end."""

    def __init__(self):
        self._rows = []

    def check(self, what, value, bar, met):
        self._rows.append({"what": what, "value": value, "bar": bar, "met": bool(met)})

    def finish(self, arguments, results):
        """Prints the verdicts, writes the JSON and returns the exit status: 0 if all are met."""
        width = max(len(row["what"]) for row in self._rows)
        print()
        for row in self._rows:
            met = "met" if row["met"] else "NOT MET"
            print(f"{row['what']:<{width}}  {row['value']}  (bar: {row['bar']})  {met}")
        if arguments.json is not None:
            document = {"verdicts": self._rows, "results": results}
            arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return 0 if all(row["met"] for row in self._rows) else 1
