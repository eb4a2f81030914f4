#!/usr/bin/env python3
"""Overload: finds the load a server sustains and offers up to ten times as much.

Closed loops find the best goodput, then open loops offer multiples of it. Goodput counts requests
that are completed within their deadline. A second server with a slow model, on which one
request runs and one waits, tells what a refusal costs the threads that do not compute.

Server and client have one half of the processors each.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import scenario

sys.path.append(str(scenario.ROOT / "tests" / "support"))

from server_process import ServerProcess  # noqa: E402

REFUSAL_BAR_S = 0.050
REFUSAL_CPU_BAR_US = 100
GOODPUT_BAR = 0.95
# One request takes minutes.
SLOW_MODEL = ["--preset=gpt2-medium", "--random_weights=1"]
SLOW_TOKENS = 1000
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
TIMEOUT_S = 60


def measure(arguments, processors):
    flags = [f"--concurrency={arguments.concurrency}", f"--rate_factors={arguments.factors}",
             f"--prompt_tokens={arguments.prompt_tokens}",
             f"--output_tokens={arguments.output_tokens}", f"--deadline={arguments.deadline}",
             f"--duration={arguments.duration}", f"--warmup={arguments.warmup}",
             f"--seed={arguments.seed}"]
    if arguments.plot:
        flags += [f"--plot={arguments.plot}", f"--plot_note=; server on processors "
                  f"{processors[0]}, client on {processors[1]}"]
    return scenario.run(arguments, "serve_bench", flags,
                        [f"--model={arguments.model}",
                         f"--max_queue_time={arguments.max_queue_time}s"], processors)


def until(condition, what):
    """What `condition` returns, once it is true."""
    end = time.monotonic() + TIMEOUT_S
    while not (result := condition()):
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {TIMEOUT_S} s")
        time.sleep(0.05)
    return result


def cpu_seconds(server):
    """Processor time so far of a server's threads but those that compute: utime and stime of
    proc(5)'s stat. On one thread the engine computes itself."""
    seconds = 0
    for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir():
        stat = (task / "stat").read_text(encoding="ascii")
        name, _, fields = stat.partition("(")[2].rpartition(")")
        if name != "engine":
            user, system = fields.split()[11:13]
            seconds += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def is_full(metrics):
    """Whether one request runs and one waits."""
    with urllib.request.urlopen(metrics) as answer:
        lines = answer.read().decode().splitlines()
    return all(line.endswith(" 1") for line in lines if line.startswith(BUSY))


def measure_refusals(arguments, processors):
    """What serve_bench says of an open loop that is refused, and the processor time that the
    server's threads but those that compute spend meanwhile."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ServerProcess(
            scenario.server_of(arguments), "--log_level=warn", *SLOW_MODEL, "--threads=1",
            "--max_running_requests=1", "--max_queued_requests=1", *arguments.server_flag,
            ports=("metrics",), prefix=scenario.pinned(processors[0])))
        stack.callback(server.kill)
        path = server.folder / "json"
        benchmark = scenario.pinned(processors[1], scenario.benchmark_of(arguments, "serve_bench"),
                                    f"--target={server.target}")
        # One runs and one waits, until all is over.
        pair = stack.enter_context(subprocess.Popen(
            [*benchmark, "--concurrency=2", "--prompt_tokens=16",
             f"--output_tokens={SLOW_TOKENS}"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL))
        stack.callback(pair.kill)
        metrics = f"http://{server.target_of('metrics')}/metrics"
        until(lambda: is_full(metrics), "a server without a place")
        before = cpu_seconds(server)
        subprocess.run([*benchmark, f"--rate={arguments.refusals}",
                        f"--duration={arguments.duration}", "--warmup=0s",
                        f"--prompt_tokens={arguments.prompt_tokens}",
                        f"--output_tokens={arguments.output_tokens}", f"--json={path}"], check=True)
        result = json.loads(path.read_text(encoding="utf-8"))
        result["server_cpu_s"] = cpu_seconds(server) - before
        return result


def judge_refusals(result, verdicts):
    requests = result["points"][0]["requests"]
    verdicts.check("calls to a full server that it does not refuse",
                   f"{requests['offered'] - requests['refused']} of {requests['offered']}", "0",
                   requests["offered"] == requests["refused"])
    cost = 1e6 * result["server_cpu_s"] / max(requests["refused"], 1)
    verdicts.check("processor time of the server for a refusal",
                   f"{cost:.0f} us ({result['server_cpu_s']:.2f} s)",
                   f"<= {REFUSAL_CPU_BAR_US} us", cost <= REFUSAL_CPU_BAR_US)


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
    parser.add_argument("--refusals", default="2000", help="calls a second to the full server")
    parser.add_argument("--duration", default="20s", help="measured at each load")
    parser.add_argument("--warmup", default="5s", help="before that")
    parser.add_argument("--seed", type=int, default=1, help="of the requests")
    parser.add_argument("--plot", help="plot latency and goodput into this .svg or .png")
    arguments = parser.parse_args()
    processors = scenario.halves()
    print(f"server on processors {processors[0]}, client on {processors[1]}")
    result = measure(arguments, processors)
    refusals = measure_refusals(arguments, processors)
    verdicts = scenario.Verdicts()
    judge(arguments, result, verdicts)
    judge_refusals(refusals, verdicts)
    return verdicts.finish(arguments, [result, refusals])


if __name__ == "__main__":
    sys.exit(main())
