#!/usr/bin/env python3
"""What serving adds to decoding: engine_bench beside serve_bench, the same model and load in turns.
With --facade: what a façade adds to tlm.v1, stream_bench by both in turns.

A served step is the mean time for a token that a caller sees behind the first one, in the median of
the requests. What it takes longer than the model's own step is RPC, scheduling, text, and where the
client shares the processors, the client: its part, the processor time it used spread over the
processors, is taken off for the bars on steps.
"""

import statistics
import sys

import scenario

THROUGHPUT_BAR = 0.8
# Share of a step, by streams: the bar of the smallest number that is not below.
STEP_BARS_PERCENT = {1: 5, 16: 10}
FACADE_BAR_PERCENT = 3
FACADE_PACE = 5000  # tokens a second: slow enough that each is a message


def numbers(text):
    return [int(number) for number in text.split(",")]


def step_bar(streams):
    largest = max(STEP_BARS_PERCENT)
    return STEP_BARS_PERCENT[min((most for most in STEP_BARS_PERCENT if most >= streams),
                                 default=largest)]


def run_engine(arguments):
    """The model's own figures, by streams."""
    result = scenario.measure(
        scenario.benchmark_of(arguments, "engine_bench"), f"--model={arguments.model}",
        "--backend=cpu", f"--threads={arguments.threads}", "--prompts=",
        f"--decode={arguments.output_tokens}", f"--depths={arguments.prompt_tokens}",
        f"--sequences={arguments.streams}", "--repetitions=3", "--long_depth=0",
        *arguments.engine_flag)
    return result, {test["sequences"]: test for test in result["tests"]}


def run_server(arguments, *flags):
    """A server's figures, by streams."""
    result = scenario.run(
        arguments, "serve_bench",
        [f"--concurrency={arguments.streams}", f"--prompt_tokens={arguments.prompt_tokens}",
         f"--output_tokens={arguments.output_tokens}", "--temperature=0",
         f"--duration={arguments.duration}", f"--warmup={arguments.warmup}", *flags],
        [f"--model={arguments.model}", "--backend=cpu", f"--threads={arguments.threads}"])
    return result, {int(point["load"]): point for point in result["points"]}


def compare(streams, test, point, served):
    """One round at one number of streams."""
    if point["latency_s"]["per_token"] is None:
        sys.exit(f"no request of {streams} callers was over in time: --duration is too short")
    tokens_per_second = point["per_second"]["output_tokens"]
    step = point["latency_s"]["per_token"]["p50"]
    events = point["latency_s"]["inter_token"]
    client = 0
    if served["client_shares_machine"]:
        client = (point["cpus"]["client"] / served["machine"]["cpus"]) * streams / tokens_per_second
    return {"streams": streams, "engine_tokens_per_second": test["tokens_per_second"],
            "served_tokens_per_second": tokens_per_second,
            "throughput_ratio": tokens_per_second / test["tokens_per_second"],
            "engine_step_s": test["seconds"], "served_step_s": step, "client_step_s": client,
            "not_model_percent": 100 * (1 - test["seconds"] / step),
            "server_percent": 100 * (1 - (test["seconds"] + client) / step),
            "tokens_per_event": tokens_per_second * point["window_s"] / max(events["count"], 1)}


def measure(arguments):
    """All rounds, and everything the programs reported."""
    rounds, results = [], []
    for number in range(arguments.rounds):
        print(f"\nround {number + 1} of {arguments.rounds}")
        # The order alternates: a machine that becomes slower favours neither.
        if number % 2 == 0:
            engine, served = run_engine(arguments), run_server(arguments, "--text")
        else:
            served, engine = run_server(arguments, "--text"), run_engine(arguments)
        results += [engine[0], served[0]]
        rounds += [compare(streams, engine[1][streams], served[1][streams], served[0])
                   for streams in numbers(arguments.streams)]
    return rounds, results


def report(streams, rounds, verdicts):
    def values(name, factor=1):
        return [factor * entry[name] for entry in rounds]

    print(f"\n{streams} streams")
    for title, name, factor, form in (
            ("engine_bench tok/s", "engine_tokens_per_second", 1, "{:.0f}"),
            ("serve_bench tok/s", "served_tokens_per_second", 1, "{:.0f}"),
            ("the model's step, us", "engine_step_s", 1e6, "{:.1f}"),
            ("served step, us", "served_step_s", 1e6, "{:.1f}"),
            ("client's part of it, us", "client_step_s", 1e6, "{:.1f}"),
            ("not the model, %", "not_model_percent", 1, "{:.1f}"),
            ("tokens an event", "tokens_per_event", 1, "{:.2f}")):
        print(f"  {title:24} {scenario.spread(values(name, factor), form)}")
    ratios = values("throughput_ratio")
    verdicts.check(f"{streams} streams: serve_bench / engine_bench",
                   scenario.spread(ratios, "{:.3f}"), f"median >= {THROUGHPUT_BAR}",
                   statistics.median(ratios) >= THROUGHPUT_BAR)
    percent, bar = values("server_percent"), step_bar(streams)
    verdicts.check(f"{streams} streams: RPC, scheduler and text, % of a step",
                   scenario.spread(percent, "{:.1f}"), f"median < {bar}",
                   statistics.median(percent) < bar)


def run_streams(arguments, *flags):
    """CPU time of the server of stream_bench, in microseconds a token, by streams."""
    result = scenario.measure(
        scenario.benchmark_of(arguments, "stream_bench"), f"--streams={arguments.streams}",
        f"--pace={FACADE_PACE}", f"--duration={arguments.duration}",
        f"--warmup={arguments.warmup}", *flags)
    return result, {point["streams"]: point["server_cpu_us_per_token"]
                    for point in result["points"]}


def compare_facade(arguments, verdicts):
    """What the façade takes more than tlm.v1, of the CPU time of a token of the model: the two in
    turns around a model that costs nothing, which shows small differences."""
    rounds, results = [], []
    for number in range(arguments.rounds):
        print(f"\nround {number + 1} of {arguments.rounds}")
        ways = {"tlm.v1": [], arguments.facade: [f"--{arguments.facade}"]}
        microseconds = {}
        for way in sorted(ways, reverse=number % 2 == 1):
            result, microseconds[way] = run_streams(arguments, *ways[way])
            results.append(result)
        result, served = run_server(arguments)
        results.append(result)
        for streams in numbers(arguments.streams):
            point = served[streams]
            token = 1e6 * point["cpus"]["server"] / point["per_second"]["output_tokens"]
            added = microseconds[arguments.facade][streams] - microseconds["tlm.v1"][streams]
            rounds.append({"streams": streams, "token_us": token, "added_us": added,
                           "without_model_us": {way: us[streams]
                                                for way, us in microseconds.items()}})
    for streams in numbers(arguments.streams):
        percent = [100 * entry["added_us"] / entry["token_us"] for entry in rounds
                   if entry["streams"] == streams]
        verdicts.check(f"{streams} streams: what {arguments.facade} adds to a token's CPU time, %",
                       scenario.spread(percent, "{:.2f}"), f"median <= {FACADE_BAR_PERCENT}",
                       statistics.median(percent) <= FACADE_BAR_PERCENT)
    return [*rounds, *results]


def main():
    parser = scenario.parser(__doc__)
    parser.add_argument("--model", default=scenario.DEMO_MODEL, help="model directory")
    parser.add_argument("--streams", default="1,16", help="decoding at the same time")
    parser.add_argument("--threads", type=int, default=0, help="of the model; 0: all processors")
    parser.add_argument("--prompt_tokens", type=int, default=16, help="of every request")
    parser.add_argument("--output_tokens", type=int, default=512, help="of every request")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--duration", default="4s", help="of a load in each round")
    parser.add_argument("--warmup", default="1s", help="before that")
    parser.add_argument("--engine_flag", action="append", default=[],
                        help="a further flag for engine_bench, beside --server_flag; may be "
                             "repeated")
    parser.add_argument("--facade", choices=["vllm"], help="measure this façade")
    arguments = parser.parse_args()
    verdicts = scenario.Verdicts()
    if arguments.facade:
        return verdicts.finish(arguments, compare_facade(arguments, verdicts))
    rounds, results = measure(arguments)
    for streams in numbers(arguments.streams):
        report(streams, [entry for entry in rounds if entry["streams"] == streams], verdicts)
    return verdicts.finish(arguments, [*rounds, *results])


if __name__ == "__main__":
    sys.exit(main())
