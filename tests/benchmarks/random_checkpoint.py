"""Checkpoints of a given shape with random bfloat16 weights, as published ones lie on disk; with
nothing but Python's own library."""

import array
import json
import pathlib
import random
import sys

# Those of the model of this name, as its config.json has them.
SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
             "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 384,
             "max_position_embeddings": 512, "tie_word_embeddings": True},
    "qwen3-0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
                   "num_hidden_layers": 28, "num_key_value_heads": 8, "head_dim": 128,
                   "vocab_size": 151936, "max_position_embeddings": 40960,
                   "tie_word_embeddings": True},
    "qwen3-8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
                 "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128,
                 "vocab_size": 151936, "max_position_embeddings": 40960,
                 "tie_word_embeddings": False}}
SHARD_BYTES = 5_000_000_000
QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
                r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def config_of(shape):
    """The config.json of a Qwen3 model."""
    return {"model_type": "qwen3", "hidden_act": "silu", "attention_bias": False,
            "rms_norm_eps": 1e-6, "rope_theta": 1000000, "torch_dtype": "bfloat16",
            **SHAPES[shape]}


def tensor_shapes(config):
    """Name to shape, in the order of the forward pass."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    dim = config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], width]}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        shapes |= {name + "input_layernorm.weight": [width],
                   name + "self_attn.q_proj.weight": [queries, width],
                   name + "self_attn.k_proj.weight": [keys, width],
                   name + "self_attn.v_proj.weight": [keys, width],
                   name + "self_attn.q_norm.weight": [dim],
                   name + "self_attn.k_norm.weight": [dim],
                   name + "self_attn.o_proj.weight": [width, queries],
                   name + "post_attention_layernorm.weight": [width],
                   name + "mlp.gate_proj.weight": [inner, width],
                   name + "mlp.up_proj.weight": [inner, width],
                   name + "mlp.down_proj.weight": [width, inner]}
    shapes["model.norm.weight"] = [width]
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [config["vocab_size"], width]
    return shapes


def elements(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


class Weights:
    """Endless bfloat16 numbers, normal with deviation 0.02: one random block, repeated from ever
    other places of it."""

    BLOCK = 1 << 20

    def __init__(self):
        self._random = random.Random(1)
        block = array.array("f", (self._random.gauss(0, 0.02) for _ in range(self.BLOCK)))
        halves = array.array("H", block.tobytes())[int(sys.byteorder == "little")::2]
        if sys.byteorder != "little":
            halves.byteswap()
        self._block = memoryview(halves.tobytes() * 2)

    def write(self, file, count):
        while count > 0:
            begin = self._random.randrange(self.BLOCK)
            piece = min(count, self.BLOCK)
            file.write(self._block[2 * begin:2 * (begin + piece)])
            count -= piece


def write_file(path, shapes, weights):
    """One safetensors file; gains are 1."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * elements(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            if len(shape) == 1:
                file.write(b"\x80\x3f" * shape[0])
            else:
                weights.write(file, elements(shape))


def write_weights(folder, config):
    """One file, or several of at most SHARD_BYTES with their index; the bytes of all tensors."""
    shards, filled = [{}], 0
    for name, shape in tensor_shapes(config).items():
        if shards[-1] and filled + 2 * elements(shape) > SHARD_BYTES:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += 2 * elements(shape)
    weights = Weights()
    total = sum(2 * elements(shape) for shard in shards for shape in shard.values())
    if len(shards) == 1:
        write_file(folder / "model.safetensors", shards[0], weights)
        return total
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards):
        write_file(folder / name, shard, weights)
    index = {"metadata": {"total_size": total},
             "weight_map": {tensor: name for name, shard in zip(names, shards) for tensor in shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return total


def byte_alphabet():
    """The 256 characters that stand for bytes in a byte-level vocabulary (GPT-2's)."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    character = {byte: chr(byte) for byte in printable}
    character |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [character[byte] for byte in range(256)]


def random_tokenizer(tokens):
    """A tokenizer.json of the layout of Qwen3's: byte-level, with `tokens` tokens in all."""
    source = random.Random(1)
    known = byte_alphabet()
    vocab = {token: i for i, token in enumerate(known)}
    merges = []
    while len(vocab) < tokens - 1:
        # Half from letters, so that there are long tokens and short ones.
        left = known[source.randrange(min(len(known), 20000))]
        right = known[source.randrange(256 if source.random() < 0.5 else min(len(known), 20000))]
        if len(left + right) > 16 or left + right in vocab:
            continue
        vocab[left + right] = len(vocab)
        known.append(left + right)
        merges.append([left, right])
    plain = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": QWEN_PATTERN}, "behavior": "Isolated",
             "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": tokens - 1, "content": "<|endoftext|>", "single_word": False,
                              "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True}],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence",
                              "pretokenizers": [split, {"type": "ByteLevel", **plain}]},
            "post_processor": {"type": "ByteLevel", **plain},
            "decoder": {"type": "ByteLevel", **plain},
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                      "merges": merges}}


def write_model(folder, shape, tokenizer=True):
    """Makes the model directory `folder` unless it is there complete; the bytes of its tensors.
    `tokenizer`: the tokenizer.json to copy, True for a random one, None for none."""
    folder = pathlib.Path(folder)
    config = config_of(shape)
    done = folder / "complete.json"
    wanted = {"config": config, "tokenizer": str(tokenizer)}
    if done.exists():
        written = json.loads(done.read_text(encoding="utf-8"))
        if {key: written[key] for key in wanted} == wanted:
            return written["weight_bytes"]
        done.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    total = write_weights(folder, config)
    if tokenizer is True:
        tokens = min(config["vocab_size"], 151669)
        text = json.dumps(random_tokenizer(tokens), ensure_ascii=False, indent=2)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    elif tokenizer is not None:
        (folder / "tokenizer.json").write_bytes(pathlib.Path(tokenizer).read_bytes())
    done.write_text(json.dumps({**wanted, "weight_bytes": total}), encoding="utf-8")
    return total
