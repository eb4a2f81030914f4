"""Compares constrained output with llguidance and xgrammar: verdicts on documents, times of masks.

compare.py MASK_BENCH [--schemas=DIR] [--tokenizer=DIR] [--sample=N] [--json=OUT]: MASK_BENCH (the
program of tests/benchmarks) and both packages judge the same documents, one after the other, and
a table of the three is printed. Exit status 1 if MASK_BENCH accepts an invalid document, or has
fewer schemas with every document right than a package that accepts none. By default every 100th
file of the oracles' half of MaskBench, with Qwen3's vocabulary; without them it is skipped.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

try:
    import llguidance
    import torch
    import transformers
    import xgrammar
except ImportError as error:
    print(f"skipped: the interpreter of TLM_PEERS_PYTHON has no {error.name}")
    sys.exit(77)

ORACLES = pathlib.Path(os.environ.get("TLM_ORACLES") or
                       pathlib.Path(os.environ["TLM_SOURCE_DIR"]).parent / "shared" / "oracles")
TIMEOUT_S = 60  # a schema with its documents


class LlguidanceEngine:
    def __init__(self, tokenizer_json):
        self.tokenizer = llguidance.LLTokenizer(str(tokenizer_json))

    def compile(self, schema):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return grammar

    def start(self, grammar):
        return llguidance.LLMatcher(self.tokenizer, grammar)

    def mask(self, matcher):
        return matcher.compute_bitmask()

    def allows(self, mask, token):
        return mask[token // 8] >> (token % 8) & 1

    def take(self, matcher, token):
        return matcher.consume_token(token)

    def may_end(self, matcher):
        return matcher.is_accepting()


class XgrammarEngine:
    def __init__(self, tokenizer_json):
        torch.set_num_threads(1)
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_json))
        self.info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        self.bitmask = xgrammar.allocate_token_bitmask(1, self.info.vocab_size)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True)

    def start(self, compiled):
        return xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=False)

    def mask(self, matcher):
        matcher.fill_next_token_bitmask(self.bitmask)
        return self.bitmask[0].numpy()

    def allows(self, mask, token):
        return int(mask[token // 32]) >> (token % 32) & 1

    def take(self, matcher, token):
        return matcher.accept_token(token)

    def may_end(self, matcher):
        mask = self.mask(matcher)
        return any(self.allows(mask, token) for token in self.info.stop_token_ids)


ENGINES = {"llguidance": LlguidanceEngine, "xgrammar": XgrammarEngine}


def follow(engine, compiled, tokens, times):
    """Whether the document is accepted."""
    matcher = engine.start(compiled)
    mask = engine.mask(matcher)
    for token in tokens:
        if not engine.allows(mask, token):
            return False
        begin = time.perf_counter()
        if not engine.take(matcher, token):
            return False
        mask = engine.mask(matcher)
        times.append(time.perf_counter() - begin)
    return bool(engine.may_end(matcher))


def judge(engine, case):
    """Of one schema: the first mask's time, the others', and whether each document is accepted."""
    begin = time.perf_counter()
    try:
        compiled = engine.compile(case["schema"])
        engine.mask(engine.start(compiled))
    except Exception as error:  # of many types
        return {"refused": str(error)[:200]}
    result = {"first": time.perf_counter() - begin, "times": [], "accepted": []}
    for tokens in case["documents"]:
        result["accepted"].append(follow(engine, compiled, tokens, result["times"]))
    return result


def serve(name, tokenizer_json, pipe):
    engine = ENGINES[name](tokenizer_json)
    pipe.send("ready")
    while True:
        pipe.send(judge(engine, pipe.recv()))


def run_engine(name, tokenizer_json, cases):
    """The result of each case; a process that takes too long is ended, and a new one goes on."""
    results, process, pipe = [], None, None
    for case in cases:
        if process is None:
            pipe, other = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(name, tokenizer_json, other),
                                              daemon=True)
            process.start()
            other.close()
            pipe.recv()
        try:
            pipe.send(case)
            answer = pipe.recv() if pipe.poll(TIMEOUT_S) else {"refused": "took too long"}
        except (EOFError, OSError):
            answer = {"refused": "ended its process"}
        results.append(answer)
        if answer.get("refused") in ("took too long", "ended its process"):
            process.kill()
            process.join()
            process = None
    if process is not None:
        process.kill()
    return results


def read_cases(paths, tokenizer_json):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_json))
    cases = []
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in content["tests"]]
        cases.append({"schema": json.dumps(content["schema"], ensure_ascii=False),
                      "documents": [tokenizer.encode(text, add_special_tokens=False)
                                    for text in texts],
                      "valid": [test["valid"] for test in content["tests"]]})
    return cases


def quantiles(values, scale):
    values = sorted(values) or [0]
    return [round(values[int(q * (len(values) - 1))] * scale, 3) for q in (0.5, 0.99, 1)]


def summarise(cases, results):
    right = wrong = 0
    for case, result in zip(cases, results):
        verdicts = result.get("accepted", [])
        right += "refused" not in result and verdicts == case["valid"]
        wrong += sum(accepted and not valid for accepted, valid in zip(verdicts, case["valid"]))
    return {"schemas": len(cases), "right": right, "invalid accepted": wrong,
            "refused": sum("refused" in result for result in results),
            "first mask ms": quantiles([r["first"] for r in results if "first" in r], 1e3),
            "mask us": quantiles([t for r in results for t in r.get("times", [])], 1e6)}


def run_ours(mask_bench, tokenizer, schemas):
    with tempfile.TemporaryDirectory(prefix="tlm-masks-") as directory:
        path = pathlib.Path(directory) / "masks.json"
        subprocess.run([mask_bench, f"--tokenizer={tokenizer}", f"--schemas={schemas}",
                        f"--json={path}"], stdout=subprocess.DEVNULL, check=False)
        report = json.loads(path.read_text(encoding="utf-8"))
    times = [report["first_mask_us"], report["mask_us"]]
    first, mask = [[round(of[q], 3) for q in ("p50", "p99", "max")] for of in times]
    return {"schemas": report["schemas"], "right": report["right_schemas"],
            "invalid accepted": report["invalid_accepted"], "refused": report["refused_schemas"],
            "first mask ms": [round(value / 1e3, 3) for value in first], "mask us": mask}


def compare(options, schemas):
    paths = sorted(schemas.rglob("*.json"))[::options.sample]
    tokenizer_json = options.tokenizer / "tokenizer.json"
    with tempfile.TemporaryDirectory(prefix="tlm-masks-") as directory:
        for path in paths:
            (pathlib.Path(directory) / path.name).symlink_to(path.resolve())
        rows = {"tlm": run_ours(options.mask_bench, options.tokenizer, directory)}
    cases = read_cases(paths, tokenizer_json)
    for name in ENGINES:
        rows[name] = summarise(cases, run_engine(name, tokenizer_json, cases))
    print(f"{len(paths)} schemas; times as p50, p99, max")
    for name, row in rows.items():
        print(f"{name:11}", "; ".join(f"{key} {value}" for key, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    sound = [row["right"] for name, row in rows.items()
             if name != "tlm" and row["invalid accepted"] == 0]
    return rows["tlm"]["invalid accepted"] == 0 and rows["tlm"]["right"] >= max(sound, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mask_bench")
    parser.add_argument("--schemas", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ORACLES / "tokenizer" / "qwen3")
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.schemas is not None:
        return compare(options, options.schemas)
    archive = ORACLES / "maskbench" / "maskbench-half.tar.xz"
    if not archive.exists() or not options.tokenizer.exists():
        print(f"skipped: no {archive} or no {options.tokenizer}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="tlm-maskbench-") as directory:
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        return compare(options, pathlib.Path(directory))


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
