"""Everything that needs a GPU, in minutes: correctness, then speed as fractions of what the card
can do, then peers in the same run.

Every stage is a process of its own under a time limit and prints its table even when others fail;
when all have run, those that failed are looked into; the last lines are the summary. Every few
seconds all results are packed into one archive, so that a run that is cut off leaves them, too.
Exits with 1 when a stage of correctness failed or ran into its own time limit, with 77 when there
is no GPU. A stage that the end of the whole time cuts off has no verdict.
"""

import argparse
import contextlib
import functools
import glob
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import narrow
import small_model
import stages

HERE = pathlib.Path(__file__).resolve().parent
LEAST_SECONDS = 15  # a stage with less time left is not begun
PACK_SECONDS = 15  # between packs while a stage runs
ASK_SECONDS = 15  # for nvidia-smi's answer
CLOSER_SHARE = 0.25  # of the whole time, for a closer look at what failed
LARGEST_ARCHIVE_BYTES = 15 << 20
PACKED_BYTES = 2 << 20  # of a file's begin and of its end
DEVICE_FILE = pathlib.Path("/dev/nvidia0")
BAD = ("failed", "timeout")


class Run:
    """The stages of one run, their logs and results in `out`."""

    def __init__(self, bin_folder, out, python, budget, scratch, archive=None):
        self.bin, self.out, self.python, self.scratch = bin_folder, out, python, scratch
        self._archive = archive or out / "results.tgz"
        self._budget, self._begin = budget, time.monotonic()
        self._stages = []  # (name, status, seconds, kind)
        self._failed = []  # stages to look into
        self.environment = {**os.environ, "TLM_BIN_DIR": str(bin_folder),
                            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}

    def left(self):
        return self._budget - (time.monotonic() - self._begin)

    def seconds(self):
        return time.monotonic() - self._begin

    def program(self, name):
        """Where a program lies, or None: a bundle has all in one folder, a build has several."""
        for folder in (self.bin, self.bin / "bin", self.bin / "tests", self.bin / "benchmarks"):
            if os.access(folder / name, os.X_OK) and (folder / name).is_file():
                return folder / name
        return None

    def execute(self, command, log, limit):
        """Runs it to its end or until `limit` seconds are over: its exit status; "timeout"
        instead, or "cut" where the whole time is over before."""
        late = "timeout" if limit <= self.left() else "cut"
        end_time = time.monotonic() + max(1, min(limit, self.left()))
        with open(log, "wb") as file:
            process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=subprocess.STDOUT,
                                       env=self.environment, start_new_session=True)
            try:
                while (left := end_time - time.monotonic()) > 0:
                    try:
                        return process.wait(min(left, PACK_SECONDS))
                    except subprocess.TimeoutExpired:
                        if left > PACK_SECONDS:
                            self.pack()
                return late
            except SystemExit:  # SIGTERM; SIGKILL may follow
                self.pack()
                raise
            finally:
                end(process)

    def note(self, name, status, seconds, kind):
        self._stages.append((name, status, round(seconds), kind))
        text = "".join("\t".join(map(str, stage)) + "\n" for stage in self._stages)
        try:
            (self.out / "stages.tsv").write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"not noted: {error}", flush=True)
        self.pack()

    def stage(self, stage):
        """Runs it, shows what is worth showing, notes how it went."""
        print(f"\n=== {stage.name}", flush=True)
        path = self.python if stage.program == "python" else self.program(
            "engine_bench" if stage.program == "switches" else stage.program)
        lacking = missing_packages(path, stage.packages)
        if path is None or lacking or self.left() < min(LEAST_SECONDS, stage.seconds):
            print("skipped: " + (f"{stage.program} is not here" if path is None else
                                 f"{path} has no {lacking}" if lacking else "no time is left"))
            self.note(stage.name, "skipped", 0, stage.kind)
            return
        begin, status = time.monotonic(), "cut"
        try:
            if stage.program == "switches":
                status = self.switches(stage.name, stage.arguments, narrow.SINGLE_SWITCHES
                                       if stage.arguments else narrow.ALL_SWITCHES, stage.seconds)
            else:
                log = self.out / f"{stage.name}.log"
                status = self.status(stage, self.execute([path, *stage.arguments], log,
                                                         stage.seconds))
        except OSError as error:
            print(f"it cannot be run: {error}")
            status = "failed"
        finally:
            seconds = time.monotonic() - begin
            print(f"--- {stage.name}: {status} after {seconds:.0f} s", flush=True)
            self.note(stage.name, status, seconds, stage.kind)
        if status in BAD:
            self._failed.append((stage, path))

    def status(self, stage, code):
        text = narrow.text_of(self.out / f"{stage.name}.log")
        if stage.is_gtest and code != 0:
            print(narrow.first_failure(text))
        else:
            print("\n".join(text.splitlines()[-(5 if stage.is_gtest else 45):]))
        # A GPU that a program does not find is a failure: nvidia-smi found it.
        if narrow.tested_nothing(text):
            print("nothing was tested")
            return "failed"
        return {0: "passed", 77: "skipped", "timeout": "timeout", "cut": "cut"}.get(code, "failed")

    def look_closer(self):
        """At every stage that failed, after all have run: for a share of the time in all, an equal
        one for each."""
        looks = []
        for stage, path in self._failed:
            # Without a GPU that it finds, a program's tests say nothing one by one either.
            if (stage.is_gtest and stage.name != "determinism" and not narrow.tested_nothing(
                    narrow.text_of(self.out / f"{stage.name}.log"))):
                looks.append((stage.name, functools.partial(narrow.tests, self, stage.name, path,
                                                            stage.arguments)))
        if (any(stage.name.startswith(("determinism", "engine-")) for stage, _ in self._failed)
                and not any(name == "switches" for name, *_ in self._stages)):
            looks.append(("switches", functools.partial(self.switches, "switches", [],
                                                        narrow.SINGLE_SWITCHES)))
        until = time.monotonic() + min(self.left(), CLOSER_SHARE * self._budget)
        for i, (name, look) in enumerate(looks):
            begin, status = time.monotonic(), "skipped"
            seconds = (until - begin) / (len(looks) - i)
            print(f"\n=== a closer look at {name}", flush=True)
            if seconds >= narrow.LEAST_SECONDS:
                look(seconds)
                status = "done"
            self.note(f"closer-{name}", status, time.monotonic() - begin, "closer")

    def switches(self, name, flags, combinations, seconds):
        model = small_model.write(self.scratch / "small")
        return narrow.switches(self, name, flags or [""], combinations, model, seconds)

    def pack(self):
        """All results as one file: the old one, or the whole new one. A run goes on without."""
        aside = self._archive.with_name(self._archive.name + ".part")
        try:
            self._archive.parent.mkdir(parents=True, exist_ok=True)
            # What is too large together loses the middle of its files, the longest first.
            for part in (PACKED_BYTES, PACKED_BYTES >> 3, PACKED_BYTES >> 6, PACKED_BYTES >> 9):
                with tarfile.open(aside, "w:gz", compresslevel=6) as tar:
                    for path in sorted(self.out.iterdir()):
                        if path.is_file() and path not in (self._archive, aside):
                            add_ends(tar, path, part)
                if aside.stat().st_size <= LARGEST_ARCHIVE_BYTES:
                    break
            os.replace(aside, self._archive)
        except OSError as error:
            print(f"not packed: {error}", flush=True)

    def good(self):
        return not any(status in BAD and kind == "correctness"
                       for _, status, _, kind in self._stages)


def add_ends(tar, path, part):
    """A file as it is now, of a long one `part` bytes of its begin and of its end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= 2 * part:
            data = file.read(2 * part)
        else:
            data = file.read(part) + f"\n... {size - 2 * part} bytes ...\n".encode()
            file.seek(size - part)
            data += file.read(part)
    entry = tarfile.TarInfo(path.name)
    entry.size, entry.mtime = len(data), int(time.time())
    tar.addfile(entry, io.BytesIO(data))


def end(process):
    """Ends a process and what it has started, by force after five seconds."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 30)):  # a driver may hold it
        if process.poll() is not None and number == signal.SIGTERM:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass


def ask(command):
    """Exit status and output; None and "" where it cannot be run or does not end: what a driver
    holds is not even waited for."""
    try:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
        text, _ = process.communicate(timeout=ASK_SECONDS)
        return process.returncode, text
    except OSError:
        return None, ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return None, ""


def missing_packages(python, packages):
    """Those that an interpreter cannot import, joined; they are not imported."""
    if not packages:
        return ""
    find = ("import importlib.util as u, sys; "
            "print(*(name for name in sys.argv[1:] if u.find_spec(name) is None))")
    status, text = ask([python, "-c", find, *packages])
    return text.strip() if status == 0 else "python"


class Both:
    """A stream of text that is a file's, too. One that nobody reads any more is no error."""

    def __init__(self, stream, file):
        self._streams = [stream, file]

    def write(self, text):
        for stream in list(self._streams):
            try:
                stream.write(text)
                stream.flush()
            except OSError:
                self._streams.remove(stream)
        return len(text)

    def flush(self):
        pass


@contextlib.contextmanager
def clocks_written(path):
    """While it lasts, twice a second: a card that is throttled would read as a slow kernel."""
    query = ("timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,"
             "clocks_event_reasons.active")
    process = None
    with open(path, "wb") as file, contextlib.suppress(OSError):
        process = subprocess.Popen(["nvidia-smi", f"--query-gpu={query}", "--format=csv", "-lms",
                                    "500"], stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield
    finally:
        if process is not None:
            end(process)


def link_cublaslt(bin_folder, python):
    """Where the system's linker knows no cuBLASLt, which toolkits and Python packages keep in
    places of their own: links to it in the folder where the built programs look, and nobody
    else."""
    known = ask(["ldconfig", "-p"])[1]
    sites = ask([python, "-c", "import site; print(*site.getsitepackages(), sep='\\n')"])[1]
    folders = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
               *(f"{site}/nvidia/*/lib" for site in sites.splitlines())]
    libraries = (bin_folder if (bin_folder / "bin").is_dir() else bin_folder.parent) / "lib"
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        found = [path for folder in folders for path in sorted(glob.glob(f"{folder}/{name}"))]
        if name in known or not found:
            continue
        try:
            libraries.mkdir(exist_ok=True)
            (libraries / name).unlink(missing_ok=True)
            (libraries / name).symlink_to(os.path.realpath(found[0]))
            print(f"cuBLASLt: {found[0]}")
        except OSError as error:
            print(f"cuBLASLt of {found[0]} cannot be linked to: {error}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path,
                        help="what was built: a bundle's folder (tests/gpu/bundle.sh makes one), or "
                        "a build folder; default: the bundle this lies in, else build/gpu is built "
                        "from source, without gRPC where its packages are missing")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-results"),
                        help="logs, JSON, the summary; default gpu-results")
    parser.add_argument("--archive", type=pathlib.Path,
                        help="all of it packed; default results.tgz in OUT")
    parser.add_argument("--python", default="python3",
                        help="with torch and transformers, for the peers and parity")
    parser.add_argument("--only", default="",
                        help="STAGE[,STAGE...]; correctness or speed: all stages of that kind; "
                        "-STAGE: not that one")
    parser.add_argument("--quick", action="store_true",
                        help="does it run at all: ceilings, single instructions, a test of each "
                        "kind of kernel, a small model with optimisations on and off, in 90 s")
    parser.add_argument("--seconds", type=float,
                        help="all stages together, the build apart; those that would begin later "
                        "are left out, which are the peers' first; default 480, quick 90")
    parser.add_argument("--scratch", type=pathlib.Path,
                        help="keeps models here, 16 GB; default a temporary folder, removed")
    return parser.parse_args()


def has_gpu():
    """By nvidia-smi, or by the driver's device: then `ceilings` says more."""
    code, _ = ask(["nvidia-smi", "-L"])
    if code != 0 and DEVICE_FILE.exists():
        print(f"nvidia-smi does not answer, but {DEVICE_FILE} is there")
        return True
    return code == 0


def bin_folder_of(arguments, out):
    if arguments.bin is not None:
        return arguments.bin.resolve()
    bundle = HERE.parents[1] / "bin"
    if (bundle / "ceilings").exists():
        return bundle
    build = HERE.parents[1] / "build" / "gpu"
    with open(out / "build.log", "wb") as log:
        built = subprocess.run([HERE / "build_from_source.sh", build], stdout=log,
                               stderr=subprocess.STDOUT, check=False)
    if built.returncode != 0:
        print("\n".join(narrow.text_of(out / "build.log").splitlines()[-40:]))
        sys.exit("run.sh: the build failed")
    return build


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open(arguments.out / "run.log", "w", encoding="utf-8") as log:
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (Both(stream, log) for stream in streams)
        try:
            return measure(arguments)
        finally:
            sys.stdout, sys.stderr = streams


def measure(arguments):
    if not has_gpu():
        print("run.sh: skipped, nvidia-smi finds no GPU")
        return 77
    signal.signal(signal.SIGTERM, ended)
    out = arguments.out.resolve()
    bin_folder = bin_folder_of(arguments, out)
    link_cublaslt(bin_folder, arguments.python)
    card = ask(["nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,"
                "clocks.sm,clocks.mem,memory.total"])[1]
    # What is free may start small on a virtual machine.
    print(card + "".join(narrow.text_of(pathlib.Path("/proc/meminfo")).splitlines(True)[:3]), end="")
    (out / "gpu.txt").write_text(card, encoding="utf-8")
    temporary = None
    if arguments.scratch is None:
        temporary = tempfile.mkdtemp(prefix="tlm-gpu-")
    scratch = pathlib.Path(temporary or arguments.scratch.resolve())
    budget = arguments.seconds or (90 if arguments.quick else 480)
    archive = arguments.archive and arguments.archive.resolve()
    run = Run(bin_folder, out, arguments.python, budget, scratch, archive)
    planned = stages.quick(out) if arguments.quick else stages.everything(out, scratch)
    named = set(filter(None, arguments.only.split(",")))
    without = {name[1:] for name in named if name.startswith("-")}
    only = {name for name in named if not name.startswith("-")}
    if unknown := (only | without) - {name for stage in planned
                                      for name in (stage.name, stage.kind)}:
        sys.exit(f"run.sh: --only: there is no stage {', '.join(sorted(unknown))}; there are "
                 + ", ".join(stage.name for stage in planned))
    try:
        with clocks_written(out / "clocks.csv") if card else contextlib.nullcontext():
            for stage in planned:
                asked = {stage.name, stage.kind}
                if (not only or only & asked) and not without & asked:
                    run.stage(stage)
            run.look_closer()
    finally:
        summarize(run, arguments.quick)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return 0 if run.good() else 1


def ended(*_):
    """SIGTERM: once, since what is left to do is packing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def summarize(run, quick):
    print(f"\n=== summary after {run.seconds():.0f} s", flush=True)
    text = ask([sys.executable, "-B", HERE / "summary.py", run.out,
                *(["--quick"] if quick else [])])[1]
    print(text, end="", flush=True)
    try:
        (run.out / "summary.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"not written: {error}")
    run.pack()


if __name__ == "__main__":
    sys.exit(main())
