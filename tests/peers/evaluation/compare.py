"""Evaluates the bundled model with lm-eval through its model types `tlm` and `hf`.

compare.py: the tasks, multiple choice, rolling perplexity and generation, are made of the
repository's texts. Every number and text that `tlm` gives must be the same at concurrency 1, 16 and
64, over two replicas, when replicas are killed and restarted in the middle, and from lm-eval's
cache after an interruption. With float32 weights they must be those of `hf` in float32: accuracies
and greedy texts equal, log-likelihoods within LIMIT. Prints the differences and the times.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
WORKPLACE = pathlib.Path(tempfile.mkdtemp(prefix="tlm-evaluation-"))
# No hub is asked for anything, and no cache of the user is touched.
os.environ |= {"HF_HOME": str(WORKPLACE / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
               "TOKENIZERS_PARALLELISM": "false", "LMEVAL_LOG_LEVEL": "ERROR"}
sys.path.append(str(SOURCE_DIR / "tests" / "support"))

try:
    import datasets
    import lm_eval
    import transformers
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
except ImportError as error:
    print(f"skipped: {error}; tests/peers/README.md says what TLM_PEERS_PYTHON should have")
    shutil.rmtree(WORKPLACE)
    sys.exit(77)

from server_process import ServerProcess  # noqa: E402

MODEL = SOURCE_DIR / "model" / "demo"
FLOAT32 = ("--weights=float32", "--kv_cache_dtype=float32")
# Documents of the multiple choice.
CHOICES = 24
TEXTS = ("README.md", "server/MANUAL.md", "client/README.md", "deploy/README.md")
# Of a log-likelihood, relative to it, from that of `hf`.
LIMIT = 1e-5
CONCURRENCIES = (1, 16, 64)
# The number of results after which the third text has come.
GENERATING = 4 * CHOICES + 7 + 3
HF_BATCH_SIZES = (1, 16)
INTERRUPTED_AFTER = 10
CACHED_CONCURRENCY = 4
TASKS = {
    "tlm_choice": """
output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""", "tlm_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""", "tlm_text": """
output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: ["\\n\\n", "."], max_gen_toks: 40, do_sample: false}
metric_list: [{metric: exact_match}]
""", "tlm_samples": """
output_type: generate_until
repeats: 2
doc_to_text: "{{query}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 30, do_sample: true, temperature: 0.9}
metric_list: [{metric: exact_match}]
"""}
DETERMINISTIC = ("tlm_choice", "tlm_rolling", "tlm_text")


class Failures:
    count = 0

    @classmethod
    def check(cls, condition, text):
        print(f"{'ok  ' if condition else 'FAIL'} {text}", flush=True)
        cls.count += not condition


class Replica(ServerProcess):

    def __init__(self, *flags):
        super().__init__(BIN_DIR / "tlm-server", f"--model={MODEL}", "--withdrawal_grace=0s",
                         *flags)
        self.keep_ports()


class At:
    """In place of lm-eval's cache: runs actions after so many results."""

    dbdict = None

    def __init__(self, actions):
        self._actions = dict(actions)
        self._results = 0

    def add_partial(self, *_):
        self._results += 1
        for action in self._actions.pop(self._results, ()):
            action()

    def check(self):
        assert not self._actions, f"never done, after {self._results} results: {self._actions}"


def write_tasks():
    """Folder of the tasks."""
    folder = WORKPLACE / "tasks"
    folder.mkdir()
    rnd = random.Random(1)
    whole = [(SOURCE_DIR / name).read_text(encoding="utf-8") for name in TEXTS]
    paragraphs = [part for text in whole for part in text.split("\n\n") if 200 < len(part) < 1500]
    assert len(paragraphs) > 40, len(paragraphs)
    rnd.shuffle(paragraphs)
    halves = [(part[:cut], part[cut + 1:cut + 80]) for part in paragraphs
              for cut in [part.index(" ", len(part) // 2)]]
    ends = [end for _, end in halves]
    choice = []
    for i, (query, end) in enumerate(halves[:CHOICES]):
        # Empty contexts, contexts with spaces at their end, and some longer than the model's.
        query = {0: "", 1: f"{query}  ", 2: whole[1][:9000]}.get(i % 12, query)
        choices = [end, *rnd.sample(ends[CHOICES:], 3)]
        gold = rnd.randrange(4)
        choices[0], choices[gold] = choices[gold], choices[0]
        choice.append({"query": query, "choices": choices, "gold": gold})
    text = [{"query": query, "text": end} for query, end in halves[:12]]
    documents = {"tlm_choice": choice, "tlm_text": [*text, {"query": whole[1], "text": "x"}],
                 "tlm_rolling": [{"text": part} for part in (*paragraphs[:6], whole[1])],
                 "tlm_samples": text[:4]}
    for name, task in TASKS.items():
        lines = "".join(json.dumps(document) + "\n" for document in documents[name])
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\n"
            f"dataset_kwargs: {{data_files: {{test: {folder / f'{name}.jsonl'}}}}}\n"
            f"test_split: test\nnum_fewshot: 0{task}", encoding="utf-8")
    return folder


def install_client():
    """Makes tlm_client importable, here and in programs, as pip installs it from a checkout."""
    checkout = WORKPLACE / "checkout"
    shutil.copytree(SOURCE_DIR / "proto", checkout / "proto")
    shutil.copyfile(SOURCE_DIR / "LICENSE", checkout / "LICENSE")
    shutil.copytree(SOURCE_DIR / "client" / "python", checkout / "client" / "python",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "--no-build-isolation",
                    f"--target={WORKPLACE / 'site'}", "./client/python"], cwd=checkout, check=True)
    sys.path.insert(0, str(WORKPLACE / "site"))
    os.environ["PYTHONPATH"] = str(WORKPLACE / "site")


def evaluate(lm, tasks, **options):
    """Responses by task and document, the metrics, and the seconds that it took."""
    manager = TaskManager(include_path=str(WORKPLACE / "tasks"), include_defaults=False)
    begin = time.monotonic()
    results = lm_eval.simple_evaluate(model=lm, tasks=list(tasks), task_manager=manager,
                                      bootstrap_iters=0, log_samples=True, **options)
    seconds = time.monotonic() - begin
    responses = {task: {sample["doc_id"]: sample["resps"] for sample in samples}
                 for task, samples in results["samples"].items()}
    metrics = {task: {name: value for name, value in values.items() if isinstance(value, float)}
               for task, values in results["results"].items()}
    return responses, metrics, seconds


def numbers_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return list(itertools.chain.from_iterable(map(numbers_of, value)))
    return [value] if isinstance(value, float) else []


def compare_runs(make, first, second):
    """That responses never change. `make` makes a model of targets and further arguments."""
    expected = evaluate(make(first.target, concurrency=1), TASKS)[:2]
    count = len(numbers_of(expected[0]))
    Failures.check(count > 4 * CHOICES, f"concurrency 1: {count} log-likelihoods")

    def check(name, lm, actions=None):
        hook = At(actions or {})
        lm.set_cache_hook(hook)
        found = evaluate(lm, TASKS)[:2]
        hook.check()
        Failures.check(found == expected, f"{name}: all equal")

    for concurrency in CONCURRENCIES[1:]:
        check(f"concurrency {concurrency}", make(first.target, concurrency=concurrency))
    both = f"{first.target},{second.target}"
    for concurrency in CONCURRENCIES:
        check(f"two replicas, concurrency {concurrency}", make(both, concurrency=concurrency))
    check("kill -9 of one replica of two, at once and while texts are generated",
          make(both), {25: [first.kill], 50: [first.start], GENERATING: [second.kill]})
    second.start()
    check("kill -9 and restart of the only replica, twice", make(first.target),
          {25: [first.kill, first.start], GENERATING: [first.kill, first.start]})
    first.kill()
    first.start()
    check("after a restart", make(first.target))
    return expected


def compare_cache(make, first, other, expected):
    """That an interrupted run goes on with lm-eval's cache."""
    cache = str(WORKPLACE / "cache")

    class Interruption(Exception):
        pass

    def calls(count, **options):
        """Runs until that many calls of Score; returns how many there were."""
        lm = make(first.target, concurrency=CACHED_CONCURRENCY)
        remaining, score = itertools.count(count, -1), lm._score

        def counted(*arguments):
            if next(remaining) <= 0:
                raise Interruption
            return score(*arguments)
        lm._score = counted
        with contextlib.suppress(Interruption):
            found = evaluate(lm, DETERMINISTIC, **options)[0]
            assert found == {task: expected[0][task] for task in DETERMINISTIC}
        if lm.cache_hook.dbdict is not None:
            lm.cache_hook.dbdict.close()
        return count - next(remaining)

    whole = calls(10**6)
    calls(INTERRUPTED_AFTER, use_cache=cache)
    rest = calls(10**6, use_cache=cache)
    # A continuation that fills the context takes two calls, of which the second failed.
    Failures.check(0 < rest <= whole - INTERRUPTED_AFTER + CACHED_CONCURRENCY,
                   f"{whole} calls of Score; interrupted after {INTERRUPTED_AFTER}, then {rest}")
    Failures.check(calls(10**6, use_cache=cache) == 0, "everything is in the cache")
    try:
        evaluate(make(other.target), DETERMINISTIC, use_cache=cache)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    Failures.check("fingerprint" in refusal, f"a cache of another model is refused: {refusal}")


def compare_with_hf(make, target):
    """That the type `hf` gives the same."""
    times = {}
    for chat in (False, True):
        options = {"apply_chat_template": chat}
        lm = make(target, tokenizer=str(MODEL))
        responses, metrics, times["tlm"] = evaluate(lm, DETERMINISTIC, **options)
        for batch_size in HF_BATCH_SIZES if not chat else HF_BATCH_SIZES[-1:]:
            hf = HFLM(pretrained=str(MODEL), dtype="float32", device="cpu", batch_size=batch_size)
            expected, hf_metrics, seconds = evaluate(hf, DETERMINISTIC, **options)
            times[f"hf, batch size {batch_size}"] = seconds
            name = f"hf, batch size {batch_size}{', chat template' if chat else ''}"
            check_against_hf(name, responses, expected)
            Failures.check(metrics["tlm_choice"] == hf_metrics["tlm_choice"],
                           f"{name}: accuracies {hf_metrics['tlm_choice']}")
        if not chat:
            print("seconds:", ", ".join(f"{name} {seconds:.1f}" for name, seconds in times.items()))
            fastest = min(seconds for name, seconds in times.items() if name != "tlm")
            print(f"tlm at concurrency 16 takes {times['tlm'] / fastest:.2f} of the time of hf")


def check_against_hf(name, responses, expected):
    for task in ("tlm_choice", "tlm_rolling"):
        pairs = list(zip(numbers_of(responses[task]), numbers_of(expected[task]), strict=True))
        worst = max(abs(a - b) / abs(b) for a, b in pairs)
        absolute = max(abs(a - b) for a, b in pairs)
        Failures.check(worst <= LIMIT, f"{name}: {len(pairs)} log-likelihoods of {task} differ by "
                       f"up to {worst:.1e} of themselves, {absolute:.1e}")
    greedy = [[response[0][1] for response in resps] for resps in responses["tlm_choice"].values()]
    hf_greedy = [[response[0][1] for response in resps]
                 for resps in expected["tlm_choice"].values()]
    Failures.check(greedy == hf_greedy, f"{name}: the same continuations are greedy")
    texts = [responses["tlm_text"][i] == text for i, text in expected["tlm_text"].items()]
    Failures.check(all(texts), f"{name}: {sum(texts)} of {len(texts)} texts equal")


def check_command_line(first, second):
    """That the command line writes what identifies the model into the results."""
    output = WORKPLACE / "output"
    targets = f'targets="{first.target},{second.target}",concurrency=16,prefix_token_id=0'
    subprocess.run(
        [sys.executable, "-m", "tlm_client.lm_eval", "run", "--model", "tlm", "--model_args",
         targets, "--tasks", "tlm_choice", "--include_path", str(WORKPLACE / "tasks"),
         "--output_path", str(output)], check=True, stdout=subprocess.DEVNULL)
    path, = output.rglob("results*.json")
    config = json.loads(path.read_text(encoding="utf-8"))["config"]
    from tlm_client import Client
    with Client(first.target) as client:
        info = client.model_info()
    expected = {"fingerprint": info.determinism.fingerprint,
                "weights_sha256": info.identity.weights_sha256,
                "server_version": info.identity.server_version}
    found = {name: config[name] for name in expected}
    Failures.check(all(found.values()) and found == expected, f"the results have {found}")


def main():
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    write_tasks()
    install_client()
    from tlm_client.lm_eval import TlmLM

    def make(targets, **options):
        return TlmLM(targets, **({"prefix_token_id": 0} | options))

    with Replica(*FLOAT32) as first, Replica(*FLOAT32) as second:
        compare_with_hf(make, first.target)
        check_command_line(first, second)
        expected = compare_runs(make, first, second)
        with Replica("--weights=int8") as other:
            compare_cache(make, first, other, expected)
    print(f"{Failures.count} failed")
    return 1 if Failures.count else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(WORKPLACE, ignore_errors=True)
