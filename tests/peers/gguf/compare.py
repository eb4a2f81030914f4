"""Compares what tlm makes of GGUF files with the `gguf` package.

    compare.py DEQUANTISE_DRIVER [--blocks N] [--seed S]

Random blocks of every type are dequantised by both: the floats must be equal bit for bit.
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parent))

import blocks  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failures = blocks.compare(arguments.driver, np.random.default_rng(arguments.seed),
                              arguments.blocks)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
