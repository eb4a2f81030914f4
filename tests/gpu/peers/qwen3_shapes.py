"""A Qwen3 of known shape with random weights, and the clock, for the peers measured beside tlm."""

import json
import statistics
import time

import torch

# What the published configurations say; as in model/config/presets.cc.
SHAPES = {
    "qwen3-0.6b": dict(hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
                       num_hidden_layers=28, tie_word_embeddings=True),
    "qwen3-8b": dict(hidden_size=4096, intermediate_size=12288, num_attention_heads=32,
                     num_hidden_layers=36, tie_word_embeddings=False),
    # Not a published model: for trying the scripts without an accelerator.
    "tiny": dict(hidden_size=128, intermediate_size=256, num_attention_heads=4,
                 num_hidden_layers=2, tie_word_embeddings=True, vocab_size=1000,
                 num_key_value_heads=2, head_dim=32),
}


def config_of(preset):
    from transformers import Qwen3Config
    common = dict(head_dim=128, num_key_value_heads=8, vocab_size=151936, rms_norm_eps=1e-6,
                  max_position_embeddings=40960, rope_theta=1000000.0, use_sliding_window=False)
    return Qwen3Config(**{**common, **SHAPES[preset]})


def model_of(preset, device, attention="sdpa"):
    """Random weights in bfloat16, made on the device."""
    from transformers import AutoModelForCausalLM
    config = config_of(preset)
    config._attn_implementation = attention
    with torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval().requires_grad_(False)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def median_seconds(step, count, device, warmup=3):
    """The median time of `step()`, each to its end."""
    for _ in range(warmup):
        step()
    times = []
    for _ in range(count):
        synchronize(device)
        begin = time.perf_counter()
        step()
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def versions():
    import transformers
    named = {"torch": torch.__version__, "transformers": transformers.__version__}
    if torch.cuda.is_available():
        named["device"] = torch.cuda.get_device_name(0)
        named["cuda"] = torch.version.cuda
    return named


def report(rows, path):
    """Prints rows of equal keys as a table; writes them, with the versions, to `path`."""
    for row in rows:
        print("  ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
                        for key, value in row.items()), flush=True)
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"versions": versions(), "rows": rows}, file, indent=2)
