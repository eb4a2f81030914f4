#!/usr/bin/env python3
"""What the server keeps beside other busy programs on the same processors.

As many programs as processors compute without pause, so that half of the time of every processor is
the server's fair share. Runs with and without them take turns, each with a server of its own.
"""

import os
import statistics
import subprocess
import sys

import scenario

BAR = 0.8


def measure(arguments, flags):
    result = scenario.run(
        arguments, "serve_bench",
        [f"--concurrency={arguments.concurrency}", "--prompt_tokens=16", "--output_tokens=200",
         f"--duration={arguments.duration}", f"--warmup={arguments.warmup}"],
        [f"--model={arguments.model}", *flags])
    return result["points"][0]["per_second"]["output_tokens"]


def measure_beside(arguments, flags, count):
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                  for _ in range(count)]
    try:
        return measure(arguments, flags)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def main():
    parser = scenario.parser(__doc__)
    parser.add_argument("--model", default=scenario.DEMO_MODEL, help="model directory")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--concurrency", type=int, default=12, help="callers of the closed loop")
    parser.add_argument("--duration", default="6s", help="of each run")
    parser.add_argument("--warmup", default="1s", help="before that")
    arguments = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    verdicts = scenario.Verdicts()
    results = {}
    for name, flags in (("pinned", []), ("not pinned", ["--debug_disable=pinning"])):
        alone, beside = [], []
        for _ in range(arguments.rounds):
            alone.append(measure(arguments, flags))
            beside.append(measure_beside(arguments, flags, processors))
        shares = [2 * with_them / without for with_them, without in zip(beside, alone)]
        results[name] = {"alone": alone, "beside": beside, "shares": shares}
        print(f"\nthreads {name}, output tok/s\n  alone   {scenario.spread(alone)}\n"
              f"  beside {processors} busy programs  {scenario.spread(beside)}\n"
              f"  of the fair share  {scenario.spread(shares, '{:.2f}')}")
        share = statistics.median(shares)
        verdicts.check(f"part of the fair share, threads {name}", f"{share:.2f}", f">= {BAR}",
                       share >= BAR)
    return verdicts.finish(arguments, results)


if __name__ == "__main__":
    sys.exit(main())
