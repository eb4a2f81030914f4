"""Serves random Hugging Face checkpoints and compares logits and greedy tokens with transformers.

    compare.py [--rounds N] [--seed S] [--backend cpu|cuda] [FAMILY...]

Every checkpoint is written by transformers' own save_pretrained and served by the real tlm-server;
logits come over the Forward RPC, tokens over Generate. The reference is the same checkpoint loaded
again by transformers in float64 with eager attention. (Loaded again, because `model.to(bfloat16)`
rounds the rotary frequencies too, which no checkpoint stores.) Prints a table, and fails when

  float32 weights: a logit is off by more than 1e-4 of the spread of the reference's logits;
  16-bit weights:  the logits are off by more than 1e-3 in relative L2 norm, or on a GPU, whose
                   intermediate results have 16 bits too, by more than 1.5 times what transformers'
                   own are in the same type on that GPU;
  either:          a greedy token differs where the reference's margin between the two exceeds
                   twice the largest error seen.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from server_process import ServerProcess  # noqa: E402

transformers.utils.logging.disable_progress_bar()

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])  # a build's bin, or the build
if not (BIN_DIR / "tlm-server").exists():
    BIN_DIR /= "bin"
    if not (BIN_DIR / "tlm-server").exists():
        print(f"skipped: tlm-server is not in {BIN_DIR.parent}")
        sys.exit(77)
CONTEXT = 600
NEW_TOKENS = 24


def sizes(rnd, *, head_dims=(16, 32, 64, 80, 96, 128)):
    """Dimensions that divide each other as they must and nothing else evenly."""
    head_dim, kv_heads, group = rnd.choice(head_dims), rnd.choice([1, 2, 3]), rnd.choice([1, 2, 3, 4])
    return {
        "vocab_size": rnd.choice([97, 1000, 3001]), "num_hidden_layers": rnd.choice([1, 2, 5]),
        "num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads,
        "hidden_size": kv_heads * group * head_dim, "intermediate_size": rnd.choice([100, 333, 768]),
        "max_position_embeddings": CONTEXT, "rms_norm_eps": rnd.choice([1e-5, 1e-6]),
        "tie_word_embeddings": rnd.choice([True, False]), "initializer_range": rnd.choice([0.02, 0.08]),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }, head_dim


def rope(rnd, kind):
    parameters = {"rope_type": kind, "rope_theta": rnd.choice([10000.0, 500000.0, 1e6])}
    if kind == "linear":
        parameters["factor"] = rnd.choice([2.0, 3.5])
    if kind == "llama3":
        parameters |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": rnd.choice([64, 200])}
    if kind == "yarn":
        parameters |= {"factor": rnd.choice([4.0, 7.5]), "original_max_position_embeddings": 100}
        parameters |= rnd.choice([{}, {"attention_factor": 1.3}, {"beta_fast": 20.0, "beta_slow": 2.0},
                                  {"mscale": 1.0, "mscale_all_dim": 0.7}, {"truncate": False}])
    return parameters


def llama(rnd, kind="default"):
    shape, _ = sizes(rnd)
    return LlamaConfig(**shape, rope_parameters=rope(rnd, kind), attention_bias=rnd.choice([True, False]),
                       mlp_bias=rnd.choice([True, False]))


def mistral(rnd):
    shape, head_dim = sizes(rnd)
    if rnd.random() < 0.5:
        shape["hidden_size"] = 200  # head_dim of its own
    return MistralConfig(**shape, head_dim=head_dim, sliding_window=rnd.choice([None, 7, 64, 100]),
                         rope_parameters=rope(rnd, "default"))


def qwen2(rnd):
    shape, _ = sizes(rnd)
    return Qwen2Config(**shape, use_sliding_window=rnd.choice([True, False]),
                       sliding_window=rnd.choice([33, 90]), max_window_layers=rnd.choice([0, 1]),
                       rope_parameters=rope(rnd, rnd.choice(["default", "yarn"])))


def qwen3(rnd):
    shape, head_dim = sizes(rnd)
    shape["hidden_size"] = rnd.choice([128, 200, 320])
    return Qwen3Config(**shape, head_dim=head_dim, attention_bias=rnd.choice([True, False]),
                       rope_parameters=rope(rnd, rnd.choice(["default", "yarn"])))


def gpt2(rnd):
    heads = rnd.choice([1, 3, 4])
    return GPT2Config(vocab_size=rnd.choice([97, 1000, 3001]), n_positions=CONTEXT, n_head=heads,
                      n_embd=heads * rnd.choice([16, 20, 64]), n_layer=rnd.choice([1, 2, 5]),
                      n_inner=rnd.choice([None, 100, 333]), bos_token_id=None, eos_token_id=None,
                      activation_function=rnd.choice(["gelu_new", "gelu", "relu", "silu"]),
                      tie_word_embeddings=rnd.choice([True, True, False]),
                      initializer_range=rnd.choice([0.02, 0.08]))


FAMILIES = {"llama": llama, "llama-linear": lambda rnd: llama(rnd, "linear"),
            "llama-llama3": lambda rnd: llama(rnd, "llama3"),
            "llama-yarn": lambda rnd: llama(rnd, "yarn"), "mistral": mistral, "qwen2": qwen2,
            "qwen3": qwen3, "gpt2": gpt2}


def save_random(config, dtype, directory, rnd):
    """A checkpoint with every parameter away from its initial value, gains and biases too."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.to(dtype).save_pretrained(directory,
                                    max_shard_size="300KB" if rnd.random() < 0.3 else "10GB")


class Server(ServerProcess):
    """tlm-server on a directory; use as a context manager."""

    def __init__(self, directory, backend):
        super().__init__(BIN_DIR / "tlm-server", f"--model={directory}", f"--backend={backend}",
                         "--withdrawal_grace=0s")

    def tlm(self, *arguments):
        result = subprocess.run([BIN_DIR / "tlm", *arguments, f"--target={self.target}"], text=True,
                                capture_output=True, timeout=600, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"tlm {arguments[0]}: {result.stderr}")
        return result.stdout

    def logits(self, ids, workplace):
        path = workplace / "logits.npy"
        self.tlm("forward", "--ids=" + ",".join(map(str, ids)), "--positions=all", f"--npy={path}")
        return np.load(path).astype(np.float64).reshape(len(ids), -1)

    def greedy(self, ids):
        output = self.tlm("generate", "--prompt_ids=" + ",".join(map(str, ids)), "--temperature=0", "--json",
                          f"--max_new_tokens={NEW_TOKENS}")
        events = [json.loads(line) for line in output.splitlines() if line.strip()]
        return [token["id"] for event in events for token in event.get("tokens", {}).get("tokens", [])]


def greedy_agrees(reference, prompt, tokens, error):
    """Whether each token is the reference's best, or too close to it to tell."""
    with torch.no_grad():
        logits = reference(torch.tensor([prompt + tokens])).logits[0].numpy()
    for i, token in enumerate(tokens):
        row = logits[len(prompt) - 1 + i]
        if row.max() - row[token] > 2 * error:
            return False
    return len(tokens) == NEW_TOKENS


def own_error(directory, dtype, ids, expected):
    """Relative L2 error of transformers' logits, computed in `dtype` on the GPU."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval().to("cuda")
    with torch.no_grad():
        logits = model(torch.tensor([ids], device="cuda")).logits[0].double().cpu().numpy()
    return np.linalg.norm(logits - expected) / np.linalg.norm(expected)


def compare(name, config, dtype, rnd, workplace, backend):
    """One line of the table, and whether it is within the limits."""
    directory = workplace / "model"
    shutil.rmtree(directory, ignore_errors=True)
    save_random(config, dtype, directory, rnd)
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64,
                                                     attn_implementation="eager").eval()
    ids = [rnd.randrange(config.vocab_size) for _ in range(rnd.choice([1, 63, 65, 130, 300]))]
    with torch.no_grad():
        expected = reference(torch.tensor([ids])).logits[0].numpy()
    with Server(directory, backend) as server:
        actual = server.logits(ids, workplace)
        tokens = server.greedy(ids)
    error = np.abs(actual - expected).max()
    relative = error / (expected.max() - expected.min())
    l2 = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
    agrees = greedy_agrees(reference, ids, tokens, error)
    if dtype == torch.float32:
        within = relative < 1e-4
    elif backend == "cpu":
        within = l2 < 1e-3
    else:
        within = l2 <= 1.5 * own_error(directory, dtype, ids, expected)
    print(f"| {name} | {str(dtype)[6:]} | {len(ids)} | {relative:.1e} | {l2:.1e} | "
          f"{'equal' if agrees else 'DIFFER'} |{'' if within else ' TOO FAR'}", flush=True)
    return within and agrees


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    rnd = random.Random(arguments.seed)
    failures = 0
    print("| checkpoint | weights | tokens | max error / spread | relative L2 | greedy tokens |\n"
          "|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tlm-parity-") as workplace:
        for name in arguments.families:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                for _ in range(arguments.rounds):
                    config = FAMILIES[name](rnd)
                    try:
                        ok = compare(name, config, dtype, rnd, pathlib.Path(workplace),
                                     arguments.backend)
                    except RuntimeError as error:
                        print(f"{name} {dtype}: {error}\n{config}")
                        ok = False
                    failures += not ok
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
