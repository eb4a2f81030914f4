"""The figures of a run of run.sh as fractions of what the card can do, against their bars.

  summary.py FOLDER [--quick] [--merge ARCHIVE...]

Reads what the stages wrote there, prints two tables and writes summary.json; with --quick the
verdicts alone. A stage that wrote nothing is reported as missing, not as met. --merge unpacks
archives of several runs into FOLDER first, the latest last: peers of one find the figures of
another.
"""

import argparse
import json
import pathlib
import tarfile

import narrow

# Qwen3-8B, 256 requests of 1,024 in and 1,024 out on an H200: published by SGLang, seconds.
PUBLISHED_SECONDS = {"SGLang": 30.85, "SGLang, deterministic": 43.99}
REQUESTS = "256 requests 1024/1024"
# What ceilings.json may have.
CEILINGS = (("read_bytes_per_second", "reads", 1e9, "GB/s"),
            ("matmul_flops", "multiplies", 1e12, "TFLOP/s"),
            ("upload_bytes_per_second", "uploads", 1e9, "GB/s"))
# Stages with fewer bits, what they are of, and the same with bfloat16.
VARIANTS = (("engine-8b-fp8", "8B, fp8 keys and values", "engine-8b"),
            ("engine-8b-long-fp8", "8B, fp8 keys and values", "engine-8b-long"),
            ("engine-8b-int8", "8B, int8 weights", "engine-8b"),
            ("engine-8b-int4", "8B, 4-bit weights", "engine-8b"))
# What kernels are planned by: microbench.json's name, and what is printed.
MICROBENCH = {
    "mma_chain_clocks": ("a dependent mma.m16n8k16", "clk"),
    "boundary_us": ("from a kernel to the next in a graph", "us"),
    "boundary_overlap_us": ("the same, when the next begins early", "us"),
    "l2_read_bytes_per_second": ("reads from L2", "B/s"),
    "l2_hit_clocks": ("a hit in L2", "clk"),
    "prefetch_speedup": ("a read after its prefetch into L2, times as fast", "x")}


def load(folder, name):
    path = folder / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def does_not_fit(report, name):
    return any(test["test"] == name for test in (report or {}).get("does_not_fit", []))


def test_of(report, name):
    for test in (report or {}).get("tests", []):
        if test["test"] == name:
            return test
    return None


class Summary:
    def __init__(self):
        self.rows = []

    def add(self, what, value, unit, bar=None, at_most=False, why="missing"):
        """`bar` in the unit of `value`; `value` None: not measured, because of `why`."""
        met = None if value is None or bar is None else (value <= bar if at_most else value >= bar)
        self.rows.append({"what": what, "value": value, "unit": unit, "bar": bar, "met": met}
                         | ({"why": why} if value is None else {}))

    def print(self):
        for row in self.rows:
            value = row["why"] if row["value"] is None else f"{row['value']:.3g} {row['unit']}"
            bar = "" if row["bar"] is None else f"bar {row['bar']:.3g}"
            verdict = {True: "met", False: "NOT MET", None: ""}[row["met"]]
            print(f"{row['what']:<72} {value:>16}  {bar:<10} {verdict}".rstrip())


def decode_fraction(summary, ceilings, report, name, test, bar):
    found = test_of(report, test)
    fraction = None
    if found and "read_bytes_per_second" in ceilings:
        fraction = 100 * found["bytes"] / found["seconds"] / ceilings["read_bytes_per_second"]
    summary.add(f"{name}: {test}, of the read bandwidth", fraction, "%", bar,
                why="does not fit" if does_not_fit(report, test) else "missing")


def prompt_factor(summary, ceilings, report, name, test, bar):
    found = test_of(report, test)
    factor = None
    if found and "matmul_flops" in ceilings:
        factor = found["seconds"] * ceilings["matmul_flops"] / found["flops"]
    summary.add(f"{name}: {test}, times the floor of its products", factor, "x", bar, at_most=True)


def request_seconds(summary, folder, name, what):
    report = load(folder, f"{name}.json")
    found = test_of(report, REQUESTS)
    summary.add(f"{what}: 256 requests of 1,024 in, 1,024 out", found and found["seconds"], "s",
                27.7, at_most=True,
                why="does not fit" if does_not_fit(report, REQUESTS) else "missing")


def share(summary, what, seconds, other):
    """A time as a share of another; either may be None."""
    summary.add(what, seconds / other if seconds and other else None, "x",
                why="missing" if not seconds else "nothing to compare")


def variants(folder, summary):
    """What fewer bits give, test by test against bfloat16 in the same run."""
    for name, what, other in VARIANTS:
        report, plain = load(folder, f"{name}.json"), load(folder, f"{other}.json")
        if not report:
            summary.add(f"{what}, of bfloat16's time", None, "x")
        for test in (report or {}).get("tests", []):
            same = test_of(plain, test["test"])
            share(summary, f"{what}: {test['test']}, {1e3 * test['seconds']:.4g} ms, "
                  "of bfloat16's time", test["seconds"], same and same["seconds"])


def operation_times(folder, name):
    """By operation; of products, which are "NAME NxK m=ROWS", the sum of a layer's for each m."""
    times = {}
    for row in (load(folder, f"{name}.json") or {}).get("operations", []):
        operation = row["operation"]
        if " m=" in operation and operation.split()[0] in ("qkv", "output", "gate_up", "down"):
            operation = "products of a layer, m=" + operation.rsplit("=", 1)[1]
        times[operation] = times.get(operation, 0) + row["seconds"]
    return times


def operations(folder, summary):
    plain, int8, fp8 = (operation_times(folder, name)
                        for name in ("kernels", "kernels-int8", "kernels-fp8"))
    for rows in (1, 16, 64, 256):
        product = f"products of a layer, m={rows}"
        share(summary, f"{product}, int8, of bfloat16's time", int8.get(product), plain.get(product))
    # There the way in which they are computed changes.
    share(summary, "products of a layer, int8, m=33, of the time of m=32",
          int8.get("products of a layer, m=33"), int8.get("products of a layer, m=32"))
    for sequences in (1, 64, 256):
        name = f"attention {sequences} x 1024"
        share(summary, f"{name}, fp8, of bfloat16's time", fp8.get(name), plain.get(name))


def same_bits(product):
    return product["different_runs"] + product["model_differences"] == 0


def canon_parts(folder):
    """What mma_canon wrote, part by part; None for what it did not."""
    return {part: load(folder, f"canon-{part}.json")
            for part in ("mma", "own", "library", "blocks")}


def canon_verdict(parts):
    """One line on whether products have the same bits with every method, and one on whether
    prefill and decode do, as far as masked weights of zero go."""
    found = [part for part in parts.values() if part and "passed" in part]
    if not found:
        return ["missing"]
    missing = [name for name, part in parts.items() if not part or "passed" not in part]
    verdict = ["one arithmetic" if all(part["passed"] for part in found) else "RESULTS DIFFER"]
    if missing:
        verdict[0] += f" (as far as known: {', '.join(missing)} missing)"
    mma = parts["mma"] or {}
    if checks := mma.get("mma"):
        verdict.append(f"{sum(check['differences'] > 0 for check in checks)} of {len(checks)} kinds "
                       "of mma operands differ from the model")
    products = [product for part in found for product in part.get("products", [])]
    if products:
        verdict.append(f"{sum(not same_bits(product) for product in products)} of {len(products)} "
                       "products differ")
    blocks = [product for part in found for product in part.get("blocks", [])]
    if blocks:
        verdict.append(f"{sum(product['different_runs'] > 0 for product in blocks)} of "
                       f"{len(blocks)} matrices in blocks differ from their elements")
    by_library = [product for product in products if product["library_asked"]]
    verdict.append(f"cuBLASLt computes {sum(product['library'] for product in by_library)} of "
                   f"{len(by_library)} products" if by_library else "no cuBLASLt")
    zeros = [f"{dtype} {'holds' if says == 'holds' else 'FAILS: prefill and decode may differ'}"
             for dtype, says in mma.get("zero_products", {}).items()]
    return ["; ".join(verdict),
            "zero products have no say in a sum: " + (", ".join(zeros) or "missing")]


def correctness_verdict(stages):
    checked = [stage for stage in stages if stage["kind"] == "correctness"]
    bad = [f"{stage['stage']} {stage['status']}" for stage in checked
           if stage["status"] in ("failed", "timeout")]
    verdict = f"{sum(stage['status'] == 'passed' for stage in checked)} of {len(checked)} passed"
    if bad:
        verdict += "; NOT PASSED: " + ", ".join(bad)
    for status in ("skipped", "cut"):
        if names := [stage["stage"] for stage in checked if stage["status"] == status]:
            verdict += f"; {status}: " + ", ".join(names)
    return verdict


def figures(folder, ceilings, summary):
    small, middle, large = (load(folder, f"engine-{size}.json") for size in ("0.6b", "1.7b", "8b"))
    decode_fraction(summary, ceilings, small, "Qwen3-0.6B", "tg64 @ d1024", 50)
    decode_fraction(summary, ceilings, middle, "Qwen3-1.7B", "tg64 @ d1024", 75)
    decode_fraction(summary, ceilings, large, "Qwen3-8B", "tg64 @ d1024", 90)
    for count in (64, 256):
        decode_fraction(summary, ceilings, large, "Qwen3-8B", f"tg64 x {count} @ d1024", None)
    for tokens, bar in ((1024, None), (8192, 1.5)):
        prompt_factor(summary, ceilings, large, "Qwen3-8B", f"pp{tokens}", bar)
    request_seconds(summary, folder, "engine-8b-requests", "Qwen3-8B")
    request_seconds(summary, folder, "engine-8b-fp8-requests", "Qwen3-8B, fp8 keys and values")
    for name, what in (("engine-8b-long", "Qwen3-8B"),
                       ("engine-8b-long-fp8", "Qwen3-8B, fp8 keys and values")):
        for depth in (8192, 32768):
            decode_fraction(summary, ceilings, load(folder, f"{name}.json"), what,
                            f"tg32 @ d{depth}", None)
    decode_fraction(summary, ceilings, load(folder, "engine-14b-int4-fp8.json"),
                    "Qwen3-14B, 4-bit weights, fp8", "tg64 @ d1024", None)
    variants(folder, summary)
    operations(folder, summary)
    rpc = load(folder, "rpc.json")
    summary.add("gRPC on top of the engine at 64 streams", rpc and rpc["overhead_percent"], "%", 3,
                at_most=True)
    served = load(folder, "serve-8b.json") or {}
    for wave in ("cold", "warm"):
        figures_of = served.get(wave, {})
        for key, name in (("ttft", "first token"), ("inter_token", "between tokens")):
            for share_of in ("p50", "p99"):
                summary.add(f"8B served, fp8, 256 streams of 512/256, {wave}: {name}, {share_of}",
                            1e3 * figures_of[key][share_of] if figures_of.get(key) else None, "ms")
        summary.add(f"8B served, {wave}: generated", figures_of.get("output_tokens_per_second"),
                    "tokens/s")
    # Context, module and libraries cost the same for every model: the bar is for what grows.
    start = load(folder, "start.json")
    factor = None
    if start and "upload_bytes_per_second" in ceilings:
        floor = start["weight_bytes"] / ceilings["upload_bytes_per_second"]
        factor = (start["ready_seconds"] - start["tiny_seconds"]) / floor
    summary.add("16 GB model ready after a tiny one, times its upload", factor, "x", 2, at_most=True)
    summary.add("16 GB model ready, from exec", start and start["ready_seconds"], "s")
    summary.add("tiny model ready, from exec", start and start["tiny_seconds"], "s")
    microbench = load(folder, "microbench.json") or {}
    for key, (what, unit) in MICROBENCH.items():
        summary.add(what, microbench.get(key), unit)
    summary.print()


def peers(folder):
    print("\npeers")
    large = load(folder, "engine-8b.json")
    requests = test_of(load(folder, "engine-8b-requests.json"), REQUESTS)
    step = test_of(large, "tg64 @ d1024")
    for name in ("peer-graph", "peer-static"):
        for row in (load(folder, f"{name}.json") or {"rows": []})["rows"]:
            ours = step if row["batch"] == 1 else test_of(large, f"tg64 x {row['batch']} @ d1024")
            ratio = f"{row['step_ms'] / 1e3 / ours['seconds']:.2f}x" if ours else "?"
            print(f"{row['peer']}, batch {row['batch']}: {row['step_ms']:.2f} ms a step; tlm is "
                  f"{ratio} as fast")
    for row in (load(folder, "peer-continuous.json") or {"rows": []})["rows"]:
        print(f"{row['peer']}, {row['requests']} requests of {row['prompt']}/{row['output']}: "
              f"{row['tokens_per_second']:.0f} tokens/s")
    for peer, seconds in PUBLISHED_SECONDS.items():
        ratio = f"{seconds / requests['seconds']:.2f}x" if requests else "?"
        print(f"{peer} (published): {seconds} s for 256 x 1,024/1,024; tlm is {ratio} as fast")


def merge(folder, archives):
    """Unpacks them, one over the other. Says where two were not of the same card, or not as fast."""
    folder.mkdir(parents=True, exist_ok=True)
    stages, last = {}, {}
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                if member.isfile() and "/" not in member.name:
                    (folder / member.name).write_bytes(tar.extractfile(member).read())
            names = tar.getnames()
        for line in narrow.text_of(folder / "stages.tsv").splitlines():
            stages[line.split("\t")[0]] = line + "\n"
        ceilings = (load(folder, "ceilings.json") or {}) if "ceilings.json" in names else {}
        for key, value in ceilings.items():
            before = last.get(key, value)
            if (value != before if isinstance(value, str) else
                    key in dict.fromkeys(name for name, *_ in CEILINGS)
                    and abs(value / before - 1) > 0.03):
                print(f"NOT ALIKE: {key} is {value} in {archive}, {before} before")
            last[key] = value
    (folder / "stages.tsv").write_text("".join(stages.values()), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--merge", nargs="+", type=pathlib.Path, default=[])
    arguments = parser.parse_args()
    folder, quick = arguments.folder, arguments.quick
    if arguments.merge:
        merge(folder, arguments.merge)
    ceilings = load(folder, "ceilings.json") or {}
    summary = Summary()
    if ceilings:
        print(f"{ceilings['device']}: " + ", ".join(
            f"{what} {ceilings[key] / unit:.0f} {name}" for key, what, unit, name in CEILINGS
            if key in ceilings) + "\n")
    if not quick:
        figures(folder, ceilings, summary)
        peers(folder)

    stages = [dict(zip(("stage", "status", "seconds", "kind"), line.split("\t"))) for line in
              narrow.text_of(folder / "stages.tsv").splitlines()]
    print("\n" + ", ".join(f"{stage['stage']} {stage['status']}" for stage in stages))
    canon = canon_verdict(canon_parts(folder))
    print("\n".join("canon: " + line for line in canon))
    switches = {}
    for name, what in (("switches", ""), ("switches-blocks", ", with fewer bits")):
        if found := load(folder, f"{name}.json"):
            switches[name] = found
            ran = sum(row["outcome"] == "passed" for row in found["rows"])
            print(f"the same tokens with overlap, graphs and library on and off{what}: "
                  + {"no": "NO"}.get(found["same_tokens"], found["same_tokens"])
                  + f", {ran} of {len(found['rows'])} ran")
    print("correctness: " + correctness_verdict(stages))
    (folder / "summary.json").write_text(json.dumps(
        {"ceilings": ceilings, "canon": canon, "switches": switches, "figures": summary.rows,
         "correctness": correctness_verdict(stages),
         "stages": [stage | {"seconds": int(stage["seconds"])} for stage in stages]}, indent=2),
        encoding="utf-8")


if __name__ == "__main__":
    main()
