"""Writes GGUF files: the bundled model, and pieces of files for tests that damage them."""

import json
import math
import os
import pathlib
import struct

DEMO_MODEL = pathlib.Path(os.environ["TLM_SOURCE_DIR"]) / "model" / "demo"

# Types of values and what struct calls them.
FORMATS = {"uint8": (0, "B"), "int8": (1, "b"), "uint16": (2, "H"), "int16": (3, "h"),
           "uint32": (4, "I"), "int32": (5, "i"), "float32": (6, "f"), "bool": (7, "?"),
           "uint64": (10, "Q"), "int64": (11, "q"), "float64": (12, "d")}
STRING, ARRAY = 8, 9
# Types of tensors: number, elements of a block, bytes of a block.
TENSOR_TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34),
                "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def text_bytes(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    """Returns the bytes of a value after its key. kind: a name of FORMATS, "string", or one of
    these with "[]" for a list."""
    if kind.endswith("[]"):
        kind = kind[:-2]
        number = STRING if kind == "string" else FORMATS[kind][0]
        head = struct.pack("<IIQ", ARRAY, number, len(value))
        if kind == "string":
            return head + b"".join(map(text_bytes, value))
        return head + struct.pack(f"<{len(value)}{FORMATS[kind][1]}", *value)
    if kind == "string":
        return struct.pack("<I", STRING) + text_bytes(value)
    return struct.pack("<I" + FORMATS[kind][1], FORMATS[kind][0], value)


class GgufFile:
    """Metadata and tensors in the order of their addition; both may be changed at will."""

    def __init__(self):
        self.values = {}  # by key: the bytes after it
        self.tensors = {}  # by name: type, shape (outermost first), data

    def set(self, key, kind, value):
        self.values[key] = value_bytes(kind, value)

    def add(self, name, kind, shape, data=None):
        """data: zeros if omitted."""
        if data is None:
            _, elements, size = TENSOR_TYPES[kind]
            data = bytes(math.prod(shape) // elements * size)
        self.tensors[name] = [kind, list(shape), data]

    def layout(self):
        """Returns the offsets of the tensors in the data, and the data."""
        offsets, data = {}, bytearray()
        for name, (_, _, content) in self.tensors.items():
            data += bytes(-len(data) % 32)
            offsets[name] = len(data)
            data += content
        return offsets, bytes(data)

    def header(self, entries=None):
        """entries: bytes that replace a tensor's entry, by name."""
        offsets, _ = self.layout()
        parts = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.values))]
        for key, value in self.values.items():
            parts += [text_bytes(key), value]
        for name, (kind, shape, _) in self.tensors.items():
            entry = tensor_entry(name, shape, TENSOR_TYPES[kind][0], offsets[name])
            parts.append((entries or {}).get(name, entry))
        header = b"".join(parts)
        return header + bytes(-len(header) % 32)

    def bytes(self):
        return self.header() + self.layout()[1]


def tensor_entry(name, shape, kind, offset):
    """kind: a number."""
    return text_bytes(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind,
                                          offset)


def small_llama(kind="Q4_0"):
    """Makes one layer of zeros and a byte-level tokenizer, 30 KB; for tests of damaged files."""
    width, inner, vocab = 64, 64, 260
    file = GgufFile()
    file.set("general.architecture", "string", "llama")
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", width),
                       ("feed_forward_length", inner), ("attention.head_count", 4),
                       ("attention.head_count_kv", 2), ("rope.dimension_count", 16)):
        file.set("llama." + key, "uint32", value)
    file.set("llama.attention.layer_norm_rms_epsilon", "float32", 1e-5)
    file.set("llama.rope.freq_base", "float32", 10000.0)
    add_byte_tokenizer(file, vocab)
    for name, shape in (("token_embd", (vocab, width)), ("blk.0.attn_q", (width, width)),
                        ("blk.0.attn_k", (width // 2, width)), ("blk.0.attn_v", (width // 2, width)),
                        ("blk.0.attn_output", (width, width)), ("blk.0.ffn_gate", (inner, width)),
                        ("blk.0.ffn_up", (inner, width)), ("blk.0.ffn_down", (width, inner))):
        file.add(name + ".weight", kind, shape)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        file.add(name + ".weight", "F32", (width,))
    return file


def add_byte_tokenizer(file, vocab):
    """Adds a token for every byte, merges, and control tokens."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    tokens = [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]
    tokens += ["th", "the", "<|im_start|>", "<|im_end|>"][:vocab - 256]
    file.set("tokenizer.ggml.model", "string", "gpt2")
    file.set("tokenizer.ggml.pre", "string", "qwen2")
    file.set("tokenizer.ggml.tokens", "string[]", tokens)
    file.set("tokenizer.ggml.token_type", "int32[]", [NORMAL] * 258 + [CONTROL] * 2)
    file.set("tokenizer.ggml.merges", "string[]", ["t h", "th e"])
    file.set("tokenizer.ggml.eos_token_id", "uint32", 259)
    file.set("tokenizer.ggml.add_bos_token", "bool", False)
    file.set("tokenizer.chat_template", "string",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
             "{% endfor %}")


# Qwen 3's names of tensors in GGUF files.
DEMO_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
              "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def demo_model():
    """Makes a GGUF file of the bundled model, with its weights, tokenizer and template."""
    def read(name):
        return json.loads((DEMO_MODEL / name).read_text(encoding="utf-8"))

    file = GgufFile()
    config = read("config.json")
    file.set("general.architecture", "string", "qwen3")
    for key, field in (("block_count", "num_hidden_layers"),
                       ("context_length", "max_position_embeddings"),
                       ("embedding_length", "hidden_size"),
                       ("feed_forward_length", "intermediate_size"),
                       ("attention.head_count", "num_attention_heads"),
                       ("attention.head_count_kv", "num_key_value_heads"),
                       ("attention.key_length", "head_dim"),
                       ("attention.value_length", "head_dim")):
        file.set("qwen3." + key, "uint32", config[field])
    file.set("qwen3.attention.layer_norm_rms_epsilon", "float64", config["rms_norm_eps"])
    file.set("qwen3.rope.freq_base", "float64", config["rope_theta"])
    add_tokenizer(file, read("tokenizer.json"), config)
    settings = read("tokenizer_config.json")
    if settings.get("chat_template"):
        file.set("tokenizer.chat_template", "string", settings["chat_template"])
    data = (DEMO_MODEL / "model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            file.add(gguf_name(name), tensor["dtype"], tensor["shape"], data[begin:end])
    return file


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    layer = ""
    if stem.startswith("model.layers."):
        number, _, stem = stem.removeprefix("model.layers.").partition(".")
        layer = f"blk.{number}."
    return f"{layer}{DEMO_NAMES[stem]}.{kind}"


def add_tokenizer(file, tokenizer, config):
    """Adds a byte-level tokenizer.json with Qwen's pattern and no normalizer, as converters do."""
    tokens, types = {}, {}
    for text, token in tokenizer["model"]["vocab"].items():
        tokens[token], types[token] = text, NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    ids = range(max(tokens) + 1)
    merges = tokenizer["model"]["merges"]
    file.set("tokenizer.ggml.model", "string", "gpt2")
    file.set("tokenizer.ggml.pre", "string", "deepseek-r1-qwen")
    file.set("tokenizer.ggml.tokens", "string[]", [tokens.get(i, f"[PAD{i}]") for i in ids])
    file.set("tokenizer.ggml.token_type", "int32[]", [types.get(i, UNUSED) for i in ids])
    file.set("tokenizer.ggml.merges", "string[]",
             [merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    end = config["eos_token_id"]
    file.set("tokenizer.ggml.eos_token_id", "uint32", end[0] if isinstance(end, list) else end)
