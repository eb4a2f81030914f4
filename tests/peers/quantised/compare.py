"""Serves checkpoints that the `compressed-tensors` package quantised, and compares logits.

    compare.py [--seed S] [CASE...]

A random Llama or Qwen2 gets the package's schemes, with scales and zeros of the weights' ranges, is
compressed by the package's ModelCompressor and saved with save_pretrained. The reference is the same
model in float64 with the weights that the package's decompress() makes of the saved tensors, scales
widened to float32. With --weights=float32 the logits may be off by 1e-5 in relative L2 norm.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor, ModelCompressor
from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig,
                                             QuantizationScheme, QuantizationStatus,
                                             apply_quantization_config)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from server_process import ServerProcess  # noqa: E402

transformers.utils.logging.disable_progress_bar()

BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
SHAPE = {"vocab_size": 509, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
TOKENS = 100
LIMIT = 1e-5
DYNAMIC = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)
DYNAMIC_FLOAT = DYNAMIC.model_copy(update={"type": "float"})

# By name, FP8 if it begins so: bits, group (none: channels), symmetric, type of the checkpoint,
# quantised activations.
CASES = {
    "W4A16, group 128": (4, 128, True, torch.bfloat16, None),
    "W4A16, group 64, zeros": (4, 64, False, torch.float16, None),
    "W4A16, group 32, zeros": (4, 32, False, torch.float32, None),
    "W4A16, channels": (4, None, True, torch.bfloat16, None),
    "W8A16, group 128": (8, 128, True, torch.bfloat16, None),
    "W8A16, channels, zeros": (8, None, False, torch.float16, None),
    "W8A8, channels": (8, None, True, torch.bfloat16, DYNAMIC),
    "W8A8, channels, zeros": (8, None, False, torch.float32, DYNAMIC),
    "W4A8, group 128": (4, 128, True, torch.bfloat16, DYNAMIC),
    "FP8, channels": (8, None, True, torch.bfloat16, DYNAMIC_FLOAT),
    "FP8, group 128": (8, 128, True, torch.float16, None),
}


def model_config(name, tied):
    kind = Qwen2Config if "A8" in name else LlamaConfig
    return kind(**SHAPE, tie_word_embeddings=tied, initializer_range=0.1)


def set_ranges(module):
    """Scales and zeros of the smallest and largest weights of each group."""
    arguments = module.quantization_scheme.weights
    weight = module.weight.data.float()
    groups = weight.unflatten(1, (-1, arguments.group_size or weight.shape[1]))
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments)
    module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data.copy_(zero.reshape(module.weight_zero_point.shape))


def save_quantised(name, tied, directory):
    """The schemes by the names of their modules."""
    bits, group, symmetric, dtype, activations = CASES[name]
    model = AutoModelForCausalLM.from_config(model_config(name, tied)).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.to(dtype)
    kind = "float" if name.startswith("FP8") else "int"
    weights = QuantizationArgs(num_bits=bits, type=kind, symmetric=symmetric, group_size=group,
                               strategy="channel" if group is None else "group")
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, input_activations=activations)
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"],
                                quantization_status=QuantizationStatus.INITIALIZED)
    apply_quantization_config(model, config)
    schemes = {}
    for module_name, module in model.named_modules():
        if getattr(module, "quantization_scheme", None) is not None:
            set_ranges(module)
            module.quantization_status = QuantizationStatus.FROZEN
            schemes[module_name] = module.quantization_scheme
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(directory)
    compressor.update_config(directory)
    return schemes


def reference(name, tied, directory, schemes):
    """The model in float64, its weights as the package decompresses them."""
    stored = load_file(directory / "model.safetensors")
    form = json.loads((directory / "config.json").read_text())["quantization_config"]["format"]
    compressor = BaseCompressor.get_value_from_registry(form)
    state = dict(stored)
    for module, scheme in schemes.items():
        local = {key.removeprefix(module + "."): state.pop(key) for key in stored
                 if key.startswith(module + ".") and not key.endswith(".bias")}
        local["weight_scale"] = local["weight_scale"].float()
        state[module + ".weight"] = compressor.decompress(local, scheme)["weight"].float()
    model = AutoModelForCausalLM.from_config(model_config(name, tied), attn_implementation="eager")
    model.load_state_dict(state, strict=not tied)
    return model.double().eval(), form


def compare(name, tied, workplace):
    directory = workplace / "model"
    directory.mkdir()
    schemes = save_quantised(name, tied, directory)
    model, form = reference(name, tied, directory, schemes)
    ids = torch.randint(SHAPE["vocab_size"], (TOKENS,)).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    path = workplace / "logits.npy"
    with ServerProcess(BIN_DIR / "tlm-server", f"--model={directory}", "--weights=float32") as server:
        subprocess.run([BIN_DIR / "tlm", "forward", "--ids=" + ",".join(map(str, ids)),
                        "--positions=all", f"--npy={path}", f"--target={server.target}"],
                       check=True, timeout=600, stdout=subprocess.DEVNULL)
    actual = np.load(path).astype(np.float64).reshape(expected.shape)
    error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
    print(f"| {name} | {form} | {'tied' if tied else 'own'} | {error:.1e} |"
          f"{'' if error < LIMIT else ' TOO FAR'}", flush=True)
    return error < LIMIT


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    failures = 0
    print("| scheme | format | head | relative L2 |\n|---|---|---|---|")
    for name in arguments.cases:
        for tied in (False, True):
            with tempfile.TemporaryDirectory(prefix="tlm-quantised-") as workplace:
                failures += not compare(name, tied, pathlib.Path(workplace))
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
