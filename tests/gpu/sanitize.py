"""A small model's prompts, decoding and requests under compute-sanitizer.

  sanitize.py memcheck|racecheck|initcheck|synccheck

Exits with 77 where the tool is missing or refuses the device.
"""

import pathlib
import shutil
import subprocess
import sys

import served


def main():
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        print("skipped: compute-sanitizer is not here")
        return 77
    # A small model and short contexts: the tool slows kernels down a hundredfold.
    run = subprocess.run(
        [tool, f"--tool={sys.argv[1]}", "--error-exitcode=9", served.program("engine_bench"),
         "--backend=cuda", f"--model={pathlib.Path(__file__).parents[2] / 'model' / 'demo'}",
         "--prompts=100", "--decode=4", "--sequences=1,9", "--depths=70", "--requests=5",
         "--request_prompt=70", "--request_output=4", "--repetitions=1",
         "--long_depth=0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(run.stdout)
    if "Device not supported" in run.stdout or "Unable to find" in run.stdout:
        print("skipped: compute-sanitizer refuses this device")
        return 77
    return 0 if run.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
