"""How long a server takes from exec to ready with a model of 16 GB in the page cache, in parts.

  start_time.py --directory FOLDER [--json FILE]

Writes a checkpoint of Qwen3-8B's shape with random weights first (16 GB): in memory where there is
room, into FOLDER otherwise. The parts:

  context  a process's first call to the driver, by ceilings.json beside --json
  module   what a server with a tiny model takes besides: programs, libraries, kernels, probes
  upload   the weights' bytes at the measured rate of the bus
  rest     what the model of 16 GB takes beyond these: packing, probes of large products, memory

Only the last two grow with the model.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile

import served
import small_model
from small_model import random_checkpoint

STARTS = 2
MEMORY = pathlib.Path("/dev/shm")
MEMORY_BYTES = 20 << 30  # that must be free there


def place_of(directory):
    """The folder for the models, as a context. In memory they are removed at its end."""
    if (not (directory / "large").exists() and MEMORY.exists()
            and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES):
        return tempfile.TemporaryDirectory(prefix="tlm-gpu-", dir=MEMORY)
    return contextlib.nullcontext(directory)


def ready_seconds(model):
    """Of each start."""
    seconds = []
    for _ in range(STARTS):
        with served.Server(f"--model={model}") as server:
            seconds.append(server.ready_seconds)
    return seconds


def parts(tiny, large, weight_bytes, ceilings):
    """Seconds of each part; context and upload only where they were measured."""
    context = ceilings.get("context_seconds")
    rate = ceilings.get("upload_bytes_per_second")
    upload = weight_bytes / rate if rate else None
    return {"context": context, "module": tiny - (context or 0), "upload": upload,
            "rest": large - tiny - (upload or 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing of it stays in memory
    with place_of(arguments.directory) as place:
        folder = pathlib.Path(place)
        tiny = ready_seconds(small_model.write(folder / "small"))
        weight_bytes = random_checkpoint.write_model(folder / "large", "qwen3-8b", None)
        large = ready_seconds(folder / "large")
    ceilings = {}
    if arguments.json and (arguments.json.parent / "ceilings.json").exists():
        ceilings = json.loads((arguments.json.parent / "ceilings.json").read_text(encoding="utf-8"))
    result = {"weight_bytes": weight_bytes, "ready_seconds": statistics.median(large),
              "tiny_seconds": statistics.median(tiny), "all_seconds": large,
              "all_tiny_seconds": tiny}
    result["parts"] = parts(result["tiny_seconds"], result["ready_seconds"], weight_bytes, ceilings)
    print(f"{weight_bytes / 1e9:.2f} GB ready after {result['ready_seconds']:.2f} s "
          f"({', '.join(f'{s:.2f}' for s in large)}); a tiny model after "
          f"{result['tiny_seconds']:.2f} s")
    for name, seconds in result["parts"].items():
        print(f"  {name:<8} " + ("not measured" if seconds is None else f"{seconds:.2f} s"))
    if arguments.json:
        arguments.json.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
