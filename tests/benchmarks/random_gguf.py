#!/usr/bin/env python3
"""Writes GGUF files of a known shape with random weights, quantised by llama.cpp.

  tests/benchmarks/random_gguf.py --quantize=llama.cpp/build/bin/llama-quantize FOLDER

Needs the packages `gguf` and numpy from PyPI. FOLDER gets SHAPE-BF16.gguf and SHAPE-TYPE.gguf of
every type, and SHAPE, the model directory with the same weights. What is there already is kept.
With --model=DIR the weights and the name are those of a Qwen3 directory, such as model/demo.
"""

import argparse
import json
import mmap
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import random_checkpoint

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
               "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
               "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    """What a tensor of a Qwen3 checkpoint is called in a GGUF file."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return NAMES[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def read_tensors(folder):
    """(name, shape, bfloat16 elements) of all tensors, mapped from the files."""
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                sys.exit(f"{path}: tensor {name} is {entry['dtype']}, only BF16 is written")
            begin, end = entry["data_offsets"]
            elements = np.frombuffer(data, np.uint16, (end - begin) // 2, 8 + size + begin)
            yield name, entry["shape"], elements


def add_hyperparameters(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config["rope_theta"]))


def add_tokenizer(writer, folder, vocab_size):
    """The byte-level tokenizer of the model directory, filled up to the rows of the embedding."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{i}]" for i in range(vocab_size)]
    types = [gguf.TokenType.UNUSED] * vocab_size
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], kind
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in tokenizer["model"]["merges"]]
    end = next(added["id"] for added in tokenizer["added_tokens"]
               if added["content"] == "<|endoftext|>")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)


def write_gguf(path, folder):
    """The model directory as a GGUF file: matrices of bfloat16, vectors of float32."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    scratch = path.with_suffix(".part")
    writer = gguf.GGUFWriter(scratch, "qwen3")
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add_hyperparameters(writer, config)
    add_tokenizer(writer, folder, config["vocab_size"])
    for name, shape, elements in read_tensors(folder):
        if len(shape) == 1:
            gain = (elements.astype(np.uint32) << 16).view(np.float32)
            writer.add_tensor(gguf_name(name), gain)
        else:
            rows = elements.view(np.uint8).reshape(shape[0], 2 * shape[1])
            writer.add_tensor(gguf_name(name), rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    scratch.rename(path)


def quantise(program, source, path, kind):
    scratch = path.with_suffix(".part")
    result = subprocess.run([program, source, scratch, kind], capture_output=True, text=True,
                            errors="replace", check=False)
    if result.returncode != 0:
        sys.exit(f"{program} exited with {result.returncode}:\n{result.stderr[-2000:]}")
    scratch.rename(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quantize", type=pathlib.Path, help="path of llama-quantize")
    parser.add_argument("--shape", choices=random_checkpoint.SHAPES, default="qwen3-0.6b")
    parser.add_argument("--model", type=pathlib.Path,
                        help="a Qwen3 directory with bfloat16 weights")
    parser.add_argument("--types", default="Q4_K_M,Q8_0,Q4_0",
                        help="comma-separated, as llama-quantize calls them")
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        help="a Qwen tokenizer.json to take instead of a random one")
    arguments = parser.parse_args()
    arguments.types = [kind for kind in arguments.types.split(",") if kind]
    if arguments.types and arguments.quantize is None:
        parser.error("--types needs --quantize")
    return arguments


def main():
    arguments = parse_arguments()
    checkpoint = arguments.model or arguments.folder / arguments.shape
    if arguments.model is None:
        random_checkpoint.write_model(checkpoint, arguments.shape, arguments.tokenizer or True)
    name = checkpoint.resolve().name
    arguments.folder.mkdir(parents=True, exist_ok=True)
    source = arguments.folder / f"{name}-BF16.gguf"
    if not source.exists():
        write_gguf(source, checkpoint)
    for kind in arguments.types:
        path = arguments.folder / f"{name}-{kind}.gguf"
        if not path.is_file():
            quantise(arguments.quantize, source, path, kind)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
