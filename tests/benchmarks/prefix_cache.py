#!/usr/bin/env python3
"""The prefix cache: what it costs when nothing is found, and what it brings when much is.

Runs with and without it take turns, each with a server of its own, so that a machine that becomes
slower or faster meanwhile favours neither.
"""

import statistics
import sys

import scenario

BAR_PERCENT = 1.0


def measure(arguments, shared, cache):
    print(f"\n{shared:.0%} shared, --prefix_cache={cache}")
    result = scenario.run(
        arguments, "serve_bench",
        [f"--concurrency={arguments.concurrency}", f"--shared_prefix={shared}",
         f"--prompt_tokens={arguments.prompt_tokens}",
         f"--output_tokens={arguments.output_tokens}", f"--duration={arguments.duration}",
         f"--warmup={arguments.warmup}"],
        [f"--model={arguments.model}", f"--prefix_cache={cache}"])
    return result


def throughput(result):
    return result["points"][0]["per_second"]["total_tokens"]


def cpu_per_token(result):
    """Microseconds of the server's processor time for a token of prompt or output."""
    return 1e6 * result["points"][0]["cpus"]["server"] / throughput(result)


def take_turns(arguments, shared):
    """Results without and with the cache."""
    without, with_cache = [], []
    for _ in range(arguments.rounds):
        without.append(measure(arguments, shared, "false"))
        with_cache.append(measure(arguments, shared, "true"))
    return without, with_cache


def report(name, without, with_cache):
    print(f"\n{name}")
    for title, of in (("tok/s", throughput), ("CPU us/token", cpu_per_token)):
        print(f"  {title:12} without  {scenario.spread([of(result) for result in without])}")
        print(f"  {title:12} with     {scenario.spread([of(result) for result in with_cache])}")
    hits = statistics.median(
        result["points"][0]["cached_prompt_share"] for result in with_cache)
    print(f"  prompt tokens found in the cache: {hits:.1%}")
    return hits


def main():
    parser = scenario.parser(__doc__)
    parser.add_argument("--model", default=scenario.DEMO_MODEL, help="model directory")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--shared", type=float, default=0.8, help="shared part of the prompts")
    parser.add_argument("--concurrency", type=int, default=8, help="callers of the closed loop")
    parser.add_argument("--prompt_tokens", default="256..512", help="as serve_bench's")
    parser.add_argument("--output_tokens", default="32..64", help="as serve_bench's")
    parser.add_argument("--duration", default="8s", help="of each run")
    parser.add_argument("--warmup", default="2s", help="before that")
    arguments = parser.parse_args()
    without, with_cache = take_turns(arguments, 0)
    shared_without, shared_with = take_turns(arguments, arguments.shared)

    verdicts = scenario.Verdicts()
    hits = report("nothing shared", without, with_cache)
    verdicts.check("hits without shared prefixes", f"{hits:.1%}", "0", hits == 0)
    medians = [statistics.median(map(throughput, results)) for results in (without, with_cache)]
    cost = 100 * (1 - medians[1] / medians[0])
    pairs = [100 * (1 - throughput(one) / throughput(other))
             for one, other in zip(with_cache, without)]
    print(f"  cost of each pair of runs, in %: {scenario.spread(pairs, '{:.2f}')}")
    verdicts.check("throughput it costs then", f"{cost:.2f} %", f"< {BAR_PERCENT} %",
                   cost < BAR_PERCENT)
    hits = report(f"{arguments.shared:.0%} of every prompt shared", shared_without, shared_with)
    gain = (statistics.median(map(throughput, shared_with))
            / statistics.median(map(throughput, shared_without)))
    verdicts.check(f"throughput with {hits:.0%} hits, with / without", f"{gain:.2f}", "> 1",
                   gain > 1)
    return verdicts.finish(arguments, without + with_cache + shared_without + shared_with)


if __name__ == "__main__":
    sys.exit(main())
