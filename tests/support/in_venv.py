"""Runs a test with Python packages from PyPI, in an environment in the build folder.

    in_venv.py FOLDER REQUIREMENTS SCRIPT [ARGUMENT...]

The environment is made once and again when REQUIREMENTS changes. Exit status 77, which CTest shows
as skipped, if it cannot be made.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
INSTALL_SECONDS = 300


def make(folder, *requirements, options=()):
    """True if the environment exists, with the packages of these files. options: options of pip."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
        return make_alone(folder, requirements, options)


def make_alone(folder, requirements, options):
    wanted = hashlib.sha256(sys.version.encode())
    for file in requirements:
        wanted.update(file.read_bytes())
    stamp = folder / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return True
    if folder.exists() and not (folder / "pyvenv.cfg").exists():
        sys.exit(f"{folder} is no environment that this made: it stays as it is")
    shutil.rmtree(folder, ignore_errors=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--retries", "1",
           "--disable-pip-version-check", *options]
    for file in requirements:
        pip += ["-r", file]
    for step in ([sys.executable, "-m", "venv", folder], pip):
        try:
            done = subprocess.run(step, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"skipped: no answer from PyPI within {INSTALL_SECONDS} s")
            return False
        if done.returncode != 0:
            print("skipped: no environment with packages from PyPI:", done.stdout[-500:])
            return False
    stamp.write_text(wanted.hexdigest())
    return True


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    if not make(folder, pathlib.Path(sys.argv[2])):
        sys.exit(SKIPPED)
    python = str(folder / "bin/python")
    os.execv(python, [python, "-B", *sys.argv[3:]])


if __name__ == "__main__":
    main()
