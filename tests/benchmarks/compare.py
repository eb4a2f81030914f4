#!/usr/bin/env python3
"""Runs engine_bench and llama.cpp's benchmarks in turns, and prints how much faster ours is.

  tests/benchmarks/compare.py --peer=llama.cpp/build/bin/llama-bench \\
      --gguf=qwen3-0.6b-bf16.gguf --preset=qwen3-0.6b --threads=2 --json=compare.json

Or the very same file, and beside it our own 8 and 4 bits of the shape, or the model, that is named:

  tests/benchmarks/compare.py --peer=llama.cpp/build/bin/llama-bench --weights_dtype=gguf \\
      --gguf=qwen3-0.6b-Q4_K_M.gguf --preset=qwen3-0.6b --threads=2

Or OpenVINO GenAI, where `tests/benchmarks/install_openvino.sh DIR` has installed it:

  tests/benchmarks/compare.py --peer=openvino --openvino=DIR --preset=qwen3-0.6b --threads=2

All run the same shapes with the same number of threads, one after the other, --rounds times; every
second round in reverse order. The ratio is that of the medians. Exits with 1 when a bar is not met.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import scenario

OPENVINO_BENCH = pathlib.Path(__file__).resolve().with_name("openvino_bench.py")

# How many times as fast as llama.cpp on the same file a test must be, by how our weights are stored.
PEER_BARS = {"bfloat16": {"tg": 1.4, "pp": 7.0, "tg x 16": 4.0}, "float32": {"tg": 1.1, "pp": 1.4},
             "int8": {"tg": 1.2, "pp": 3.0}, "4 bits": {"tg": 1.5, "pp": 3.0, "tg x 16": 3.0}}
# The part of the machine's own ceiling that a test must reach: decoding of the read bandwidth,
# prompts of the fastest matrix products, 16 sequences of 16 times what reading allows for one.
MACHINE_BARS = {"bfloat16": {"tg": 0.85, "pp": 0.60, "tg x 16": 0.75}, "4 bits": {"tg": 0.85}}
# How many times as fast as our own int8 one sequence must decode.
OWN_BARS = {"4 bits": 1.45, "int4:128": 1.7}
OWN_WEIGHTS = ("int8", "int4:128")
MOST_BITS = 6  # of an element of what counts as 4 bits here, scales and the embedding included

TEST = re.compile(r"(pp|tg)(\d+)(?: ?x ?(\d+))?(?: ?@ ?d(\d+))?")


class BenchError(Exception):
    """Something that makes a comparison impossible, in words for people."""


class Test:
    """One figure: pp512, tg128, tg128x16, tg128@d8192."""

    def __init__(self, text):
        match = TEST.fullmatch(text)
        if match is None or int(match[2]) < 1 or (match[1] == "pp" and (match[3] or match[4])):
            raise argparse.ArgumentTypeError(
                f"{text!r} is no test: pp512, tg128, tg128x16 or tg128@d8192")
        self.kind = match[1]
        self.tokens = int(match[2])
        self.sequences = int(match[3] or 1)
        self.depth = int(match[4] or 0)
        if self.sequences < 1 or (self.sequences > 1 and self.depth > 0):
            raise argparse.ArgumentTypeError(f"{text!r}: sequences together have no depth here")
        if self.kind == "tg" and self.tokens < 2:
            raise argparse.ArgumentTypeError(f"{text!r}: decode at least 2 tokens")

    @property
    def name(self):
        name = f"{self.kind}{self.tokens}"
        if self.sequences > 1:
            name += f" x {self.sequences}"
        return name + (f" @ d{self.depth}" if self.depth else "")

    @property
    def bar_name(self):
        """What its bars are called, or None where it has none."""
        if self.depth or self.sequences not in (1, 16):
            return None
        return f"{self.kind} x 16" if self.sequences == 16 else self.kind


def parse_tests(text):
    tests = [Test(part.strip()) for part in text.split(",") if part.strip()]
    if not tests:
        raise argparse.ArgumentTypeError("no test")
    return tests


def run(command, timeout):
    """Its standard output; BenchError where it cannot be run or fails."""
    command = [str(part) for part in command]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                errors="replace", timeout=timeout, check=False)
    except OSError as error:
        raise BenchError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{command[0]} took more than {timeout} s") from error
    if result.returncode != 0:
        tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-5:])
        raise BenchError(f"{' '.join(command)}\nexited with {result.returncode}:\n{tail}")
    return result.stdout


def unparsable(program, what, output):
    return BenchError(f"{program}: {what}; its output begins with {output.strip()[:200]!r}")


def parse_llama_bench(program, output):
    """{(n_prompt, n_gen, n_depth): tokens a second} of `llama-bench -o json`."""
    start = output.find("[")
    try:
        rows = json.loads(output[start:]) if start >= 0 else None
    except json.JSONDecodeError:
        rows = None
    if not isinstance(rows, list) or not rows:
        raise unparsable(program, "no JSON list of results", output)
    found = {}
    for row in rows:
        try:
            key = (int(row["n_prompt"]), int(row["n_gen"]), int(row.get("n_depth", 0)))
            samples = [float(rate) for rate in row.get("samples_ts") or [row["avg_ts"]]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unparsable(program, f"a result without {error}", output) from error
        found[key] = statistics.median(samples)
    return found


def parse_batched_bench(program, output):
    """{sequences: tokens a second} of `llama-batched-bench --output-format jsonl`."""
    found = {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
            found[int(row["pl"])] = float(row["speed_tg"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise unparsable(program, "a line that is no result", line) from error
    if not found:
        raise unparsable(program, "no result", output)
    return found


class Ours:
    """engine_bench with weights of one kind, once for single sequences and once for many."""

    def __init__(self, arguments, tests, weights):
        self.arguments = arguments
        self.tests = tests
        self.weights = weights
        self.reports = []

    def measure(self):
        prompts = [test for test in self.tests if test.kind == "pp"]
        lone = [test for test in self.tests if test.kind == "tg" and test.sequences == 1]
        many = [test for test in self.tests if test.sequences > 1]
        rates = {}
        if prompts:
            self.run(rates, [f"--prompts={join(test.tokens for test in prompts)}", "--decode=0"])
        for tokens in sorted({test.tokens for test in lone}):
            depths = join(test.depth for test in lone if test.tokens == tokens)
            self.run(rates, ["--prompts=", f"--decode={tokens}", "--sequences=1",
                             f"--depths={depths}"])
        for tokens in sorted({test.tokens for test in many}):
            counts = join(test.sequences for test in many if test.tokens == tokens)
            self.run(rates, ["--prompts=", f"--decode={tokens}", f"--sequences={counts}",
                             f"--depths={self.arguments.parallel_prompt}"])
        return rates

    def run(self, rates, flags):
        arguments = self.arguments
        command = [arguments.engine_bench, "--backend=cpu", *self.model_flags(),
                   f"--isa={arguments.isa}", f"--threads={arguments.threads}", "--repetitions=1",
                   "--long_depth=0", *flags]
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "report.json"
            output = run([*command, f"--json={path}"], arguments.timeout)
            try:
                report = json.loads(path.read_text(encoding="utf-8"))
                for row in report["tests"]:
                    key = (row["n_prompt"], row["n_gen"], row["n_depth"], row["n_parallel"])
                    rates[key] = (row["tokens_per_second"], machine_part(report, row))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise unparsable(arguments.engine_bench, "no report", output) from error
        self.reports.append(report)

    def model_flags(self):
        arguments = self.arguments
        if self.weights == "gguf":
            return [f"--model={arguments.gguf}"]
        source = f"--preset={arguments.preset}" if arguments.preset else f"--model={arguments.model}"
        if self.weights in OWN_WEIGHTS:
            return [source, f"--weights={self.weights}"]
        return [source, f"--weights_dtype={self.weights}"] if arguments.preset else [source]

    def rate(self, rates, test):
        if test.kind == "pp":
            key = (test.tokens, 0, 0, 1)
        else:
            depth = self.arguments.parallel_prompt if test.sequences > 1 else test.depth
            key = (0, test.tokens, depth, test.sequences)
        if key not in rates:
            raise BenchError(f"engine_bench did not measure {test.name}: is it within the context?")
        return rates[key]


def machine_part(report, row):
    """The part of the machine's ceiling a row reached, as MACHINE_BARS count it; None if unknown."""
    ceilings = report.get("ceilings")
    if not ceilings:
        return None
    if row["n_gen"] == 0:
        return row["flops"] / row["seconds"] / ceilings["product_flops_per_second"]
    read = row["bytes"] if row["n_parallel"] == 1 else report["weight_bytes_read"]
    return read / row["seconds"] / ceilings["read_bytes_per_second"]


def openvino_command(arguments):
    """OpenVINO GenAI with the options and the output of llama.cpp's benchmarks."""
    return [arguments.openvino / "bin" / "python", "-B", OPENVINO_BENCH]


def openvino_model(arguments):
    """Its model of our shape, made by the first comparison."""
    name = f"{arguments.preset}-{arguments.weights_dtype.replace(':', '-')}"
    model = arguments.openvino / "models" / name
    if not model.exists():
        print(f"making {model}", file=sys.stderr, flush=True)
        run([*openvino_command(arguments), "-m", model, "--export", arguments.preset,
             "--weights_dtype", arguments.weights_dtype], arguments.timeout)
    return model


class Peer:
    """llama-bench for single sequences, llama-batched-bench for many, or what stands for both."""

    def __init__(self, arguments, tests):
        self.arguments = arguments
        self.tests = tests
        self.version = None
        if arguments.openvino:
            self.single = self.batched = openvino_command(arguments)
            self.model = openvino_model(arguments)
        else:
            self.single, self.batched = [arguments.peer], [arguments.batched_peer]
            self.model = arguments.gguf

    def measure(self):
        rates = {}
        for test in self.tests:
            if test.sequences == 1:
                self.run_single(rates, test)
        for tokens in sorted({test.tokens for test in self.tests if test.sequences > 1}):
            self.run_batched(rates, tokens)
        return rates

    def run_single(self, rates, test):
        arguments = self.arguments
        prompt, generate = (test.tokens, 0) if test.kind == "pp" else (0, test.tokens)
        command = [*self.single, "-m", self.model, "-t", arguments.threads, "-p", prompt,
                   "-n", generate, "-r", 1, "-o", "json"]
        if test.depth:
            command += ["-d", test.depth]
        output = run(command, arguments.timeout)
        found = parse_llama_bench(self.single[-1], output)
        if (prompt, generate, test.depth) not in found:
            raise unparsable(self.single[-1], f"no result of {test.name}", output)
        rates[test.name] = found[(prompt, generate, test.depth)]
        first = json.loads(output[output.find("["):])[0]
        self.version = {key: first[key] for key in (
            "build_commit", "build_number", "model_type", "model_n_params") if key in first}

    def run_batched(self, rates, tokens):
        arguments = self.arguments
        tests = [test for test in self.tests if test.sequences > 1 and test.tokens == tokens]
        prompt = arguments.parallel_prompt
        context = max(test.sequences for test in tests) * (prompt + tokens)
        output = run([*self.batched, "-m", self.model, "-t", arguments.threads, "-c", context,
                      "-npp", prompt, "-ntg", tokens,
                      "-npl", join(test.sequences for test in tests), "--output-format", "jsonl"],
                     arguments.timeout)
        found = parse_batched_bench(self.batched[-1], output)
        for test in tests:
            if test.sequences not in found:
                raise unparsable(self.batched[-1], f"no result of {test.name}", output)
            rates[test.name] = found[test.sequences]


def join(numbers):
    return ",".join(str(number) for number in dict.fromkeys(numbers))


def verdict(value, bar):
    return "" if bar is None else f"{'met' if value >= bar else 'NOT MET'} (>= {bar:g})"


def compare(arguments):
    tests = arguments.tests
    ours, peer = Ours(arguments, tests, arguments.weights_dtype), Peer(arguments, tests)
    own_test, own = own_sides(arguments)
    samples = {test.name: {"ours": [], "peer": [], "machine": []} for test in tests}
    own_samples = {side.weights: [] for side in own}
    for number in range(arguments.rounds):
        order = (ours, peer, *own)[::1 if number % 2 == 0 else -1]
        found = {side: side.measure() for side in order}
        for side in (ours, *own):
            check_same_shape(side.reports[-1], peer.version)
        for test in tests:
            rate, part = ours.rate(found[ours], test)
            samples[test.name]["ours"].append(rate)
            samples[test.name]["peer"].append(found[peer][test.name])
            samples[test.name]["machine"].append(part)
        for side in own:
            own_samples[side.weights].append(side.rate(found[side], own_test)[0])
        print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr, flush=True)
    bars = bars_name(arguments, ours.reports[-1])
    rows = [judge(arguments, bars, test, samples[test.name]) for test in tests]
    if own:
        own_samples[bars] = samples[own_test.name]["ours"]
    return {"ours": {key: ours.reports[-1].get(key) for key in (
                "model", "weights_dtype", "kv_cache_dtype", "device", "arithmetic", "ceilings")},
            "peer": {"program": str(arguments.peer), "model": str(peer.model),
                     **(peer.version or {})},
            "threads": arguments.threads, "rounds": arguments.rounds,
            "parallel_prompt": arguments.parallel_prompt, "tests": rows,
            "own": judge_own(own_test, own_samples)}


def own_sides(arguments):
    """The test of one sequence, and what decodes it with weights that we quantise ourselves."""
    if arguments.weights_dtype != "gguf" or not (arguments.preset or arguments.model):
        return None, []
    test = next((test for test in arguments.tests if test.bar_name == "tg"), None)
    return test, [Ours(arguments, [test], weights) for weights in OWN_WEIGHTS] if test else []


def bars_name(arguments, report):
    """What the bars of our weights are called; those of a file depend on its bits."""
    if arguments.weights_dtype != "gguf":
        return arguments.weights_dtype
    bits = 8 * arguments.gguf.stat().st_size / report["model_n_params"]
    return "4 bits" if bits < MOST_BITS else "int8" if bits < 2 * MOST_BITS else "bfloat16"


def check_same_shape(report, version):
    """BenchError where the two models are not of one size."""
    ours, peers = report.get("model_n_params"), (version or {}).get("model_n_params")
    if ours and peers and abs(ours - peers) > 0.01 * peers:
        raise BenchError(f"the models differ: ours has {ours} parameters, the peer's {peers}")


def judge(arguments, bars, test, samples):
    ours, peer = statistics.median(samples["ours"]), statistics.median(samples["peer"])
    parts = [part for part in samples["machine"] if part is not None]
    return {"test": test.name, "ours": ours, "peer": peer, "ratio": ours / peer,
            "bar": None if arguments.openvino else PEER_BARS.get(bars, {}).get(test.bar_name),
            "of_machine": statistics.median(parts) if parts else None,
            "machine_bar": MACHINE_BARS.get(bars, {}).get(test.bar_name),
            "samples": samples}


def judge_own(test, samples):
    """The rates of all kinds of our weights in one test, by that of int8."""
    medians = {weights: statistics.median(rates) for weights, rates in samples.items()}
    return [{"test": test.name, "weights": weights, "rate": rate, "ratio": rate / medians["int8"],
             "bar": OWN_BARS.get(weights), "samples": samples[weights]}
            for weights, rate in medians.items()]


def print_table(report):
    print(f"{'test':<16} {'ours':>10} {'peer':>10} {'ratio':>7}  {'bar':<18} {'of machine':>10}  "
          "bar")
    for row in report["tests"]:
        part = "-" if row["of_machine"] is None else f"{100 * row['of_machine']:.0f} %"
        machine = "" if row["of_machine"] is None else verdict(row["of_machine"],
                                                              row["machine_bar"])
        line = (f"{row['test']:<16} {row['ours']:>10.2f} {row['peer']:>10.2f} "
                f"{row['ratio']:>6.2f}x  {verdict(row['ratio'], row['bar']):<18} {part:>10}  "
                f"{machine}")
        print(line.rstrip())
    for row in report["own"]:
        weights = row["weights"] if row["weights"] in OWN_WEIGHTS else "the file"
        print(f"{row['test']}, {weights}: {row['rate']:.2f}, {row['ratio']:.2f}x own int8  "
              f"{verdict(row['ratio'], row['bar'])}".rstrip())


def all_met(report):
    rows = report["tests"] + report["own"]
    return all(row["bar"] is None or row["ratio"] >= row["bar"] for row in rows) and all(
        row["machine_bar"] is None or row["of_machine"] is None or
        row["of_machine"] >= row["machine_bar"] for row in report["tests"])


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, required=True,
                        help="path of llama-bench, or openvino")
    parser.add_argument("--batched_peer", type=pathlib.Path,
                        help="path of llama-batched-bench; default: beside --peer")
    parser.add_argument("--gguf", type=pathlib.Path, help="llama.cpp's model")
    parser.add_argument("--openvino", type=pathlib.Path, metavar="DIR",
                        help="of install_openvino.sh; --peer=openvino needs it and --preset")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--preset", help="our shape, with random weights")
    source.add_argument("--model", type=pathlib.Path, help="our model directory")
    parser.add_argument("--weights_dtype", choices=("bfloat16", "float32", "float16", *OWN_WEIGHTS,
                                                    "gguf"),
                        default="bfloat16",
                        help="how our weights are stored; gguf: our model is the file of --gguf, "
                        "and that of --preset or --model, if any, is decoded in "
                        + " and ".join(OWN_WEIGHTS))
    parser.add_argument("--tests", type=parse_tests,
                        default="pp512,tg128,tg128x4,tg128x8,tg128x16,tg128x32",
                        help="comma-separated: pp512, tg128, tg128x16, tg128@d8192")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=positive, default=2, help="of both")
    parser.add_argument("--isa", default="auto", help="instructions ours uses")
    parser.add_argument("--parallel_prompt", type=positive, default=16,
                        help="tokens of each sequence before those that decode together begin")
    parser.add_argument("--engine_bench", type=pathlib.Path,
                        default=scenario.ROOT / "build" / "release" / "benchmarks" / "engine_bench")
    parser.add_argument("--timeout", type=positive, default=1800, help="seconds of one run")
    parser.add_argument("--json", type=pathlib.Path, help="write everything to this file")
    arguments = parser.parse_args()
    if arguments.weights_dtype != "gguf" and not (arguments.preset or arguments.model):
        parser.error("one of --preset and --model is needed")
    if str(arguments.peer) == "openvino":
        if arguments.openvino is None or arguments.preset is None:
            parser.error("--peer=openvino needs --openvino=DIR and --preset")
        if arguments.weights_dtype in ("float16", "gguf"):
            parser.error(f"--peer=openvino has no weights of {arguments.weights_dtype}")
        return arguments
    if arguments.gguf is None or arguments.openvino is not None:
        parser.error("--peer=PATH needs --gguf=PATH, and --openvino is for --peer=openvino")
    if arguments.batched_peer is None:
        arguments.batched_peer = arguments.peer.parent / "llama-batched-bench"
    return arguments


def check_files(arguments):
    wanted = []
    if arguments.openvino:
        if not (arguments.openvino / "bin" / "python").is_file():
            raise BenchError(f"--openvino={arguments.openvino}: OpenVINO GenAI is not installed "
                             "there; tests/benchmarks/install_openvino.sh DIR installs it")
    else:
        wanted.append(("--gguf", arguments.gguf))
        if any(test.sequences == 1 for test in arguments.tests):
            wanted.append(("--peer", arguments.peer))
        if any(test.sequences > 1 for test in arguments.tests):
            wanted.append(("--batched_peer", arguments.batched_peer))
    scenario.built(arguments.engine_bench)
    for flag, path in wanted:
        if not path.is_file():
            raise BenchError(f"{flag}={path}: there is no such file")


def main():
    arguments = parse_arguments()
    try:
        check_files(arguments)
        report = compare(arguments)
    except BenchError as error:
        sys.exit(f"compare.py: {error}")
    print_table(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if all_met(report) else 1)


if __name__ == "__main__":
    main()
