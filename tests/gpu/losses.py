"""That fewer bits cost on the GPU what they cost on the CPU: bits per byte of a text by the demo
model, with weights in 16, 8 and 4 bits and keys and values in fp8.

  losses.py [--text FILE] [--json FILE]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import served

DEMO = served.HERE.parents[1] / "model" / "demo"
# The CPU rounds activations to 8 bits where weights have 8 or 4, which is less than a thousandth.
MOST = 0.003


def losses(backend, text, folder):
    """Bits per byte, by weights and keys and values."""
    path = pathlib.Path(folder) / backend
    subprocess.run([served.program("weights_loss"), f"--backend={backend}", f"--model={DEMO}",
                    "--weights=int8,int4", "--kv_cache_dtype=bfloat16,fp8", f"--text={text}",
                    "--window=512", f"--json={path}"], check=True)
    return {(row["weights"], row["kv"]): row["bits_per_byte"]
            for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", default=str(served.HERE / "README.md"))
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlm-gpu-") as folder:
        cuda, cpu = (losses(backend, arguments.text, folder) for backend in ("cuda", "cpu"))
    bad = 0
    for key, expected in cpu.items():
        away = cuda[key] / expected - 1 if key in cuda else float("inf")
        bad += not abs(away) <= MOST
        print(f"weights {key[0]}, keys and values {key[1]}: {cuda.get(key)} bits per byte, on the "
              f"CPU {expected}{'' if abs(away) <= MOST else '  TOO FAR'}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            [{"weights": key[0], "kv": key[1], "bits_per_byte": cuda.get(key), "cpu": expected}
             for key, expected in cpu.items()]), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
