#!/usr/bin/env python3
"""Overload: finds the load a server sustains and offers up to ten times as much.

Closed loops find the best goodput, then open loops offer multiples of it. Goodput counts requests
that are completed within their deadline.
"""

import sys

import scenario

REFUSAL_BAR_S = 0.050
GOODPUT_BAR = 0.9


def measure(arguments):
    flags = [f"--concurrency={arguments.concurrency}", f"--rate_factors={arguments.factors}",
             f"--prompt_tokens={arguments.prompt_tokens}",
             f"--output_tokens={arguments.output_tokens}", f"--deadline={arguments.deadline}",
             f"--duration={arguments.duration}", f"--warmup={arguments.warmup}",
             f"--seed={arguments.seed}"]
    if arguments.plot:
        flags.append(f"--plot={arguments.plot}")
    return scenario.run(arguments, "serve_bench", flags,
                        [f"--model={arguments.model}",
                         f"--max_queue_time={arguments.max_queue_time}s"])


def judge(arguments, result, verdicts):
    points = result["points"]
    worst = max((point for point in points if point["loop"] == "open"),
                key=lambda point: point["load"])
    peak = max(points, key=lambda point: point["per_second"]["good"])
    best = peak["per_second"]["good"]
    ratio = worst["per_second"]["good"] / best
    verdicts.check("goodput at the highest load / its peak",
                   f"{worst['per_second']['good']:.2f} / {best:.2f} requests/s = {ratio:.3f}",
                   f">= {GOODPUT_BAR}", ratio >= GOODPUT_BAR)

    # Admitted requests wait at most about max_queue_time, then as those of the peak do.
    bound = arguments.max_queue_time * 1.5 + peak["latency_s"]["ttft"]["p99"]
    ttft = worst["latency_s"]["ttft"]
    p99 = ttft["p99"] if ttft else float("inf")
    verdicts.check("p99 time to first token of admitted requests there", f"{p99:.3f} s",
                   f"<= {bound:.3f} s", p99 <= bound)

    refusal = worst["latency_s"]["refusal"]
    if refusal is None:
        verdicts.check("refusals there", "none", "some", False)
    else:
        verdicts.check("latest refusal there",
                       f"{1e3 * refusal['max']:.1f} ms (p99 {1e3 * refusal['p99']:.1f} ms, of "
                       f"{refusal['count']})", f"<= {1e3 * REFUSAL_BAR_S:.0f} ms",
                       refusal["max"] <= REFUSAL_BAR_S)
        refused = [end for end in worst["not_completed"] if end["outcome"] == "refused"]
        untold = sum(end["count"] - end["with_retry_time"] for end in refused
                     if end["code"] == "RESOURCE_EXHAUSTED")
        verdicts.check("refusals for want of room that do not say when to come back", f"{untold}",
                       "0", untold == 0)
    other = sum(end["count"] for end in worst["not_completed"]
                if end["outcome"] == "failed" and end["code"] != "DEADLINE_EXCEEDED")
    verdicts.check("requests that failed there for other reasons than time", f"{other}", "0",
                   other == 0)


def main():
    parser = scenario.parser(__doc__)
    parser.add_argument("--model", default=scenario.DEMO_MODEL, help="model directory")
    parser.add_argument("--concurrency", default="1,4,16,64,128", help="closed loops to try")
    parser.add_argument("--factors", default="0.5,1,2,5,10", help="open loops, multiples")
    parser.add_argument("--prompt_tokens", default="32..256", help="as serve_bench's")
    parser.add_argument("--output_tokens", default="16..64", help="as serve_bench's")
    parser.add_argument("--deadline", default="10s", help="as serve_bench's")
    parser.add_argument("--max_queue_time", type=float, default=2, help="the server's, in seconds")
    parser.add_argument("--duration", default="20s", help="measured at each load")
    parser.add_argument("--warmup", default="5s", help="before that")
    parser.add_argument("--seed", type=int, default=1, help="of the requests")
    parser.add_argument("--plot", help="draw latency and goodput into this .svg or .png")
    arguments = parser.parse_args()
    result = measure(arguments)
    verdicts = scenario.Verdicts()
    judge(arguments, result, verdicts)
    return verdicts.finish(arguments, [result])


if __name__ == "__main__":
    sys.exit(main())
