"""Logits of random GGUF files: tlm over its RPC, llama.cpp and float64.

Every file is served twice: as it is, to be compared with llama.cpp, and with activations and
keys and values in float32, to be compared with numpy in float64. That finds what the rounding of
activations hides from the first comparison.
"""

import os
import pathlib
import subprocess
import sys

import llama_cpp
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "support"), str(TESTS / "benchmarks")]

from models import CONTEXT, MIXTURES, OWN_YARN, TYPES, Ggml, Model  # noqa: E402
from random_gguf import write_gguf  # noqa: E402
from reference import Reference  # noqa: E402
from server_process import ServerProcess  # noqa: E402

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
# By what activations are rounded to there: not at all, to 16 bits, or to 8. Of keys and values it
# keeps 16 bits in any case.
MOST_TO_LLAMA = {"F32": 1e-3, "F16": 2e-3, "BF16": 1e-2}
MOST_TO_LLAMA_IN_BLOCKS = 2e-2
MOST_TO_FLOAT64 = 1e-5
# Of the bundled model, which is trained: there rounding does less.
MOST_OF_TRAINED = 1e-2
TRAINED_TYPES = ["Q8_0", "Q4_0", "Q5_K_M", "Q4_K_M"]
TEXT = """The prince looked at him without a word, and went to the window. It was already dark. In
the yard the soldiers had lit a fire; one of them was singing. "And so you think," he said at last,
"that the Emperor knows nothing of all this?" """
NO_LOG = llama_cpp.llama_log_callback(lambda level, text, data: None)
FLOAT_FLAGS = ["--weights=float32", "--kv_cache_dtype=float32"]


def ours(path, ids, workplace, flags):
    output = workplace / "logits.npy"
    with ServerProcess(BIN_DIR / "tlm-server", f"--model={path}", "--backend=cpu", "--threads=2",
                       *flags) as server:
        result = subprocess.run(
            [BIN_DIR / "tlm", "forward", "--ids=" + ",".join(map(str, ids)), "--positions=all",
             f"--npy={output}", f"--target={server.target}"],
            capture_output=True, text=True, timeout=600, check=False)
        server.kill()  # which does not wait for callers
    if result.returncode != 0:
        raise RuntimeError(f"tlm forward: {result.stderr}")
    return np.load(output).astype(np.float64).reshape(len(ids), -1)


def theirs(path, ids):
    model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, logits_all=True, verbose=False, n_threads=2,
                            n_threads_batch=2)
    try:
        model.eval(ids)
        return np.array(model.scores[:len(ids)], dtype=np.float64)
    finally:
        model.close()


def cases(rng):
    """(architecture, types, rope, files) of every comparison."""
    for architecture in ("llama", "mistral", "qwen2", "qwen3", "gpt2"):
        for name in TYPES:
            yield architecture, name, "default", 1
        for name in MIXTURES:
            yield architecture, name, "default", int(rng.choice([1, 3]))
    for architecture, rope in (("llama", "linear"), ("llama", "yarn"), ("llama", "factors"),
                               ("qwen2", "yarn"), ("qwen3", "yarn")):
        yield architecture, "F32", rope, 1
        yield architecture, "Q4_K", rope, 1
    yield "llama", "F32", OWN_YARN, 1
    yield "qwen3", "F32", OWN_YARN, 1


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def compare(name, paths, ids, most, workplace):
    """One line of the table; whether both distances are within the limits."""
    exact = Reference(paths).logits(ids)
    peer = theirs(paths[0], ids)
    floats, plain = ours(paths[0], ids, workplace, FLOAT_FLAGS), ours(paths[0], ids, workplace, [])
    found = [distance(plain, peer), distance(floats, exact), distance(plain, exact),
             distance(peer, exact)]
    within = found[0] <= most and found[1] <= MOST_TO_FLOAT64
    columns = " | ".join(f"{value:.1e}" for value in found)
    print(f"| {name} | {len(paths)} | {len(ids)} | {columns} |{'' if within else ' TOO FAR'}",
          flush=True)
    return within


def compare_random(case, rng, ggml, workplace):
    architecture, types, rope, files = case
    for old in workplace.glob("*.gguf"):
        old.unlink()
    path = workplace / "model.gguf"
    model = Model(path, architecture, MIXTURES.get(types, [types]), rng, ggml, rope, files)
    count = int(rng.choice([1, 17, 64, 130]))
    ids = [int(i) for i in rng.integers(0, model.size["vocabulary"], count)]
    most = MOST_TO_LLAMA.get(types, MOST_TO_LLAMA_IN_BLOCKS)
    size = model.size
    name = (f"{architecture} | {types} | {rope} | {size['layers']} x {size['width']}, "
            f"{size['heads']}/{size['kv_heads']} x {size['head_dim']}")
    return compare(name, sorted(workplace.glob("*.gguf")), ids,
                   np.inf if rope == OWN_YARN else most, workplace)


def compare_trained(kind, workplace):
    """The bundled model, as llama.cpp quantises it."""
    source, path = workplace / "demo.gguf", workplace / "quantised.gguf"
    write_gguf(source, TESTS.parent / "model" / "demo")
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + kind)
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), parameters)
    if status != 0:
        raise RuntimeError(f"llama_model_quantize returned {status}")
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    ids = model.tokenize(TEXT.encode(), add_bos=False)
    model.close()
    return compare(f"bundled model | {kind} | default | 6 x 256, 4/2 x 64", [path], ids,
                   MOST_OF_TRAINED, workplace)


def compare_all(seed, workplace, wanted):
    rng = np.random.default_rng(seed)
    ggml = Ggml()
    llama_cpp.llama_log_set(NO_LOG, None)
    print("| architecture | types | positions | shape | files | tokens | to llama.cpp | "
          "in floats, to float64 | to float64 | llama.cpp to float64 |\n" + 10 * "|---" + "|")
    runs = [(case[:3], lambda case=case: compare_random(case, rng, ggml, workplace))
            for case in cases(rng)]
    runs += [(("bundled", kind), lambda kind=kind: compare_trained(kind, workplace))
             for kind in TRAINED_TYPES]
    failures = 0
    for name, run in runs:
        if wanted and not set(wanted) & set(name):
            continue
        try:
            failures += not run()
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            failures += 1
    return failures
