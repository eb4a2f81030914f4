"""Small models' prompts, decoding and requests under compute-sanitizer, with heads of 64 and of 128,
and with weights in blocks and keys and values in 8 bits. By the own kernels alone, started one by
one: the tool slows a library's kernels down and their memory is not ours, and in a replayed graph
it names no launch.

  sanitize.py memcheck|racecheck|initcheck|synccheck [--scratch FOLDER]

Exits with 77 where the tool is missing or refuses the device.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import narrow
import served
import small_model

DEMO = pathlib.Path(__file__).resolve().parents[2] / "model" / "demo"
# Short contexts: the tool slows kernels down a hundredfold.
WORK = [  # of a model; None: the small one
    (DEMO, ["--prompts=100", "--decode=4", "--sequences=1,9", "--depths=70", "--requests=5",
            "--request_prompt=70", "--request_output=4"]),
    (None, ["--prompts=100", "--decode=3", "--sequences=1,3", "--depths=150"]),
    # Products of blocks, and of what they are dequantised to for many rows.
    (None, ["--weights=int4", "--kv_cache_dtype=fp8", "--prompts=100", "--decode=3",
            "--sequences=1,33", "--depths=0"])]


def run_aloud(command):
    """Its exit status and output, which is printed as it comes: what the tool has found so far is
    there when time runs out."""
    said = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            said += line
    return process.returncode, said


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("--scratch", type=pathlib.Path, help="keeps the second model here")
    arguments = parser.parse_args()
    tool = narrow.sanitizer()
    if tool is None:
        print("skipped: compute-sanitizer is not here")
        return 77
    bad = False
    with tempfile.TemporaryDirectory(prefix="tlm-gpu-") as temporary:
        small = small_model.write((arguments.scratch or pathlib.Path(temporary)) / "small")
        for model, work in WORK:
            code, said = run_aloud(
                [tool, f"--tool={arguments.tool}", "--error-exitcode=9",
                 served.program("engine_bench"), "--backend=cuda", f"--model={model or small}",
                 "--cuda_library=false", "--cuda_graphs=false", "--repetitions=1", "--long_depth=0",
                 *work])
            if "Device not supported" in said or "Unable to find" in said:
                print("skipped: compute-sanitizer refuses this device")
                return 77
            bad |= code != 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
