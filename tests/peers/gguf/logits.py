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

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from models import CONTEXT, MIXTURES, OWN_YARN, TYPES, Ggml, Model  # noqa: E402
from reference import Reference  # noqa: E402
from server_process import ServerProcess  # noqa: E402

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
# By what activations are rounded to there: not at all, to 16 bits, or to 8. Of keys and values it
# keeps 16 bits in any case.
MOST_TO_LLAMA = {"F32": 1e-3, "F16": 2e-3, "BF16": 1e-2}
MOST_TO_LLAMA_IN_BLOCKS = 2e-2
MOST_TO_FLOAT64 = 1e-5
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


def compare(case, rng, ggml, workplace):
    """One line of the table; whether both distances are within the limits."""
    architecture, types, rope, files = case
    for old in workplace.glob("*.gguf"):
        old.unlink()
    path = workplace / "model.gguf"
    model = Model(path, architecture, MIXTURES.get(types, [types]), rng, ggml, rope, files)
    paths = sorted(workplace.glob("*.gguf"))
    count = int(rng.choice([1, 17, 64, 130]))
    ids = [int(i) for i in rng.integers(0, model.size["vocabulary"], count)]
    exact = Reference(paths).logits(ids)
    peer = theirs(paths[0], ids)
    floats, plain = ours(paths[0], ids, workplace, FLOAT_FLAGS), ours(paths[0], ids, workplace, [])
    found = [distance(plain, peer), distance(floats, exact), distance(plain, exact),
             distance(peer, exact)]
    near = rope == OWN_YARN or found[0] <= MOST_TO_LLAMA.get(types, MOST_TO_LLAMA_IN_BLOCKS)
    within = near and found[1] <= MOST_TO_FLOAT64
    columns = " | ".join(f"{value:.1e}" for value in found)
    size = model.size
    shape = f"{size['layers']} x {size['width']}, {size['heads']}/{size['kv_heads']} x {size['head_dim']}"
    print(f"| {architecture} | {types} | {rope} | {len(paths)} | {shape} | {count} | {columns} |"
          f"{'' if within else ' TOO FAR'}", flush=True)
    return within


def compare_all(seed, workplace, wanted):
    rng = np.random.default_rng(seed)
    ggml = Ggml()
    print("| architecture | types | positions | files | shape | tokens | to llama.cpp | "
          "in floats, to float64 | to float64 | llama.cpp to float64 |\n" + 10 * "|---" + "|")
    failures = 0
    for case in cases(rng):
        if wanted and not set(wanted) & set(case[:3]):
            continue
        try:
            failures += not compare(case, rng, ggml, workplace)
        except RuntimeError as error:
            print(f"{case}: {error}", flush=True)
            failures += 1
    return failures

