"""How long a server takes from exec to ready with a model of 16 GB in the page cache.

  start_time.py --directory FOLDER [--json FILE]

Writes a checkpoint of Qwen3-8B's shape with random weights into FOLDER first (16 GB).
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

import served

WIDTH, LAYERS, HEADS, KV_HEADS, DIM, FFN, VOCABULARY = 4096, 36, 32, 8, 128, 12288, 151936


def write_checkpoint(folder, device):
    """The published layout in files of some gigabytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "qwen3", "hidden_size": WIDTH, "intermediate_size": FFN,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
        "head_dim": DIM, "vocab_size": VOCABULARY, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": False,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16"}), encoding="utf-8")

    def matrix(rows, columns):
        return (torch.randn(rows, columns, device=device) * 0.02).to(torch.bfloat16).cpu()

    def gain(length):
        return torch.ones(length, dtype=torch.bfloat16)
    weight_map, total = {}, 0

    def save(name, tensors):
        nonlocal total
        save_file(tensors, folder / name)
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        weight_map.update({tensor: name for tensor in tensors})
    save("model-outer.safetensors", {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH),
                                     "lm_head.weight": matrix(VOCABULARY, WIDTH),
                                     "model.norm.weight": gain(WIDTH)})
    for first in range(0, LAYERS, 9):
        tensors = {}
        for layer in range(first, first + 9):
            name = f"model.layers.{layer}."
            tensors |= {
                name + "self_attn.q_proj.weight": matrix(HEADS * DIM, WIDTH),
                name + "self_attn.k_proj.weight": matrix(KV_HEADS * DIM, WIDTH),
                name + "self_attn.v_proj.weight": matrix(KV_HEADS * DIM, WIDTH),
                name + "self_attn.o_proj.weight": matrix(WIDTH, HEADS * DIM),
                name + "self_attn.q_norm.weight": gain(DIM),
                name + "self_attn.k_norm.weight": gain(DIM),
                name + "mlp.gate_proj.weight": matrix(FFN, WIDTH),
                name + "mlp.up_proj.weight": matrix(FFN, WIDTH),
                name + "mlp.down_proj.weight": matrix(WIDTH, FFN),
                name + "input_layernorm.weight": gain(WIDTH),
                name + "post_attention_layernorm.weight": gain(WIDTH)}
        save(f"model-{first:02}.safetensors", tensors)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}),
        encoding="utf-8")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    weight_bytes = write_checkpoint(arguments.directory, arguments.device)
    torch.cuda.empty_cache()
    seconds = []
    for _ in range(3):
        with served.Server(f"--model={arguments.directory}") as server:
            seconds.append(server.ready_seconds)
    result = {"weight_bytes": weight_bytes, "ready_seconds": sorted(seconds)[1],
              "all_seconds": seconds}
    print(f"{weight_bytes / 1e9:.2f} GB ready after {result['ready_seconds']:.2f} s "
          f"({', '.join(f'{s:.2f}' for s in seconds)})")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
