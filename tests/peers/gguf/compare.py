"""Compares what tlm makes of GGUF files with the packages `gguf` and `llama-cpp-python`.

    compare.py [--seed S] blocks DEQUANTISE_DRIVER [--blocks N]
    compare.py [--seed S] tokens TOKENIZE_DRIVER [--texts N]
    compare.py [--seed S] logits [ARCHITECTURE | TYPE | POSITIONS]...

blocks: random blocks of every type are dequantised by both: the floats must be equal bit for bit.
tokens: see tokens.py. logits: see logits.py.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parent))

import blocks  # noqa: E402

SKIPPED = 77


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("blocks")
    mode.add_argument("driver")
    mode.add_argument("--blocks", type=int, default=20_000)
    mode = modes.add_parser("tokens")
    mode.add_argument("driver")
    mode.add_argument("--texts", type=int, default=20_000)
    modes.add_parser("logits").add_argument("wanted", nargs="*")
    return parser.parse_args()


def compare(arguments):
    """The number of failures."""
    if arguments.mode == "blocks":
        return blocks.compare(arguments.driver, np.random.default_rng(arguments.seed),
                              arguments.blocks)
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        print("skipped: the interpreter of TLM_PEERS_PYTHON has no package 'llama-cpp-python'")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="tlm-gguf-") as folder:
        if arguments.mode == "logits":
            import logits
            return logits.compare_all(arguments.seed, pathlib.Path(folder), arguments.wanted)
        import tokens
        return tokens.compare_all(arguments.driver, arguments.seed, pathlib.Path(folder),
                                  arguments.texts)


def main():
    failures = compare(parse_arguments())
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
