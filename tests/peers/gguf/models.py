"""Random models as GGUF files of every architecture and type, written by the `gguf` package."""

import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

from vocabularies import add_plain_vocabulary

Kind = gguf.GGMLQuantizationType
FLOATS = ["F32", "F16", "BF16"]
SMALL_BLOCKS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"]
LARGE_BLOCKS = ["Q4_K", "Q5_K", "Q6_K"]
TYPES = FLOATS + SMALL_BLOCKS + LARGE_BLOCKS
# Sets of types of which every matrix takes one, as published files have several.
MIXTURES = {"small mixed": SMALL_BLOCKS + ["F16"], "mixed": SMALL_BLOCKS + LARGE_BLOCKS}
CONTEXT = 256
OWN_YARN = "yarn, own factors"  # llama.cpp does not read those of these architectures
SCALED = {"linear": gguf.RopeScalingType.LINEAR, "yarn": gguf.RopeScalingType.YARN,
          OWN_YARN: gguf.RopeScalingType.YARN}
# Of what a layer adds to the residual stream. At most as much as there is, as in trained models:
# with more, 8-bit activations alone take two programs further apart than their errors do.
BRANCH = 0.5


class Ggml:
    """The quantisation of ggml, from the library in the package llama_cpp."""

    def __init__(self):
        folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
        self._quantise = ctypes.CDLL(str(folder / "libggml-base.so")).ggml_quantize_chunk
        self._quantise.restype = ctypes.c_size_t
        self._quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                   ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def quantise(self, matrix, kind):
        """The blocks of a float32 matrix, as rows of bytes."""
        rows, columns = matrix.shape
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.zeros((rows, columns // elements * size), np.uint8)
        written = self._quantise(kind, matrix.ctypes.data, blocks.ctypes.data, 0, rows, columns,
                                 None)
        assert written == blocks.nbytes, (kind, matrix.shape, written)
        return blocks


def block_of(types):
    """The length of rows must be a multiple of this."""
    return max(gguf.GGML_QUANT_SIZES[Kind[name]][0] for name in types)


def sizes(rng, architecture, types):
    """Dimensions whose matrices have whole blocks in their rows."""
    block = block_of(types)
    own_length = architecture in ("qwen3", "mistral")
    head_dims = [32, 64, 128] if block == 256 or own_length else [32, 64, 80, 96, 128]
    head_dim = int(rng.choice(head_dims))
    kv_heads, group = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 4]))
    while kv_heads * group * head_dim % block:
        kv_heads += 1
    if architecture == "gpt2":
        kv_heads, group = kv_heads * group, 1
    heads = kv_heads * group
    width = heads * head_dim
    if own_length:
        width = int(rng.choice([256, 512, 768] if block == 256 else [96, 160, 288, 416]))
    inner = int(rng.choice([512, 768, 1280] if block == 256 else [160, 352, 544, 1056]))
    return {"layers": int(rng.choice([2, 3])), "width": width, "inner": inner, "heads": heads,
            "kv_heads": kv_heads, "head_dim": head_dim,
            "vocabulary": int(rng.choice([310, 777, 1000])),
            "eps": float(rng.choice([1e-5, 1e-6])), "tied": bool(rng.random() < 0.5)}


def add_hyperparameters(writer, architecture, size, rope):
    writer.add_block_count(size["layers"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(size["width"])
    writer.add_feed_forward_length(size["inner"])
    writer.add_head_count(size["heads"])
    if architecture == "gpt2":
        writer.add_layer_norm_eps(size["eps"])
        return
    writer.add_head_count_kv(size["kv_heads"])
    writer.add_layer_norm_rms_eps(size["eps"])
    writer.add_rope_dimension_count(size["head_dim"])
    writer.add_rope_freq_base(rope["base"])
    if size["width"] != size["heads"] * size["head_dim"] or architecture == "qwen3":
        writer.add_key_length(size["head_dim"])
        writer.add_value_length(size["head_dim"])
    if rope["kind"] in SCALED:
        writer.add_rope_scaling_type(SCALED[rope["kind"]])
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["context"])
    if rope["kind"] == OWN_YARN:
        writer.add_rope_scaling_yarn_attn_factor(1.3)
        writer.add_rope_scaling_yarn_beta_fast(20.0)
        writer.add_rope_scaling_yarn_beta_slow(2.0)
    if architecture == "mistral":
        writer.add_sliding_window(4096)


def random_rope(rng, kind):
    rope = {"kind": kind, "base": float(rng.choice([10000.0, 500000.0, 1e6]))}
    if kind in SCALED:
        rope["factor"] = float(rng.choice([2.0, 3.5, 8.0]))
        rope["context"] = int(rng.choice([32, 100]))
    return rope


class Model:
    """A file under way: tensors with random numbers, of deviations that keep activations near 1."""

    def __init__(self, path, architecture, types, rng, ggml, rope="default", files=1):
        self.path, self.rng, self.ggml, self.types = path, rng, ggml, types
        self.size = sizes(rng, architecture, types)
        name = "llama" if architecture == "mistral" else architecture
        self.writer = gguf.GGUFWriter(path, name,
                                      split_max_tensors=0 if files == 1 else 12)
        self.rope = random_rope(rng, rope)
        add_hyperparameters(self.writer, architecture, self.size, self.rope)
        add_plain_vocabulary(self.writer, self.size["vocabulary"])
        self.add_tensors(architecture)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def matrix(self, name, rows, columns, deviation):
        values = (self.rng.standard_normal((rows, columns)) * deviation).astype(np.float32)
        kind = Kind[self.types[self.rng.integers(len(self.types))]]
        if kind == Kind.F32:
            self.writer.add_tensor(name, values)
        elif kind in (Kind.F16, Kind.BF16):
            self.writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            self.writer.add_tensor(name, self.ggml.quantise(values, kind), raw_dtype=kind)

    def linear(self, name, rows, columns, bias, gain=1):
        self.matrix(name + ".weight", rows, columns, gain * columns ** -0.5)
        if bias:
            self.vector(name + ".bias", rows, 0)

    def vector(self, name, length, mean):
        values = mean + 0.1 * self.rng.standard_normal(length)
        self.writer.add_tensor(name, values.astype(np.float32))

    def norm(self, name, length, bias):
        self.vector(name + ".weight", length, 1)
        if bias:
            self.vector(name + ".bias", length, 0)

    def add_tensors(self, architecture):
        size, gpt2 = self.size, architecture == "gpt2"
        self.matrix("token_embd.weight", size["vocabulary"], size["width"], 1)
        if gpt2:
            values = 0.3 * self.rng.standard_normal((CONTEXT, size["width"]))
            self.writer.add_tensor("position_embd.weight", values.astype(np.float32))
        if self.rope["kind"] == "factors":
            # As of Llama 3: 1 for the fast pairs, up to 8 for the slow ones.
            factors = np.clip(np.linspace(-3, 12, size["head_dim"] // 2), 1, 8)
            self.writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        biases = {"attention": gpt2 or architecture == "qwen2", "output": gpt2, "ffn": gpt2}
        if architecture == "llama":
            biases = {name: bool(self.rng.random() < 0.3) for name in biases}
        for layer in range(size["layers"]):
            self.add_layer(f"blk.{layer}.", architecture, biases)
        self.norm("output_norm", size["width"], gpt2)
        if not size["tied"]:
            self.linear("output", size["vocabulary"], size["width"], False)

    def add_layer(self, prefix, architecture, biases):
        size, gpt2 = self.size, architecture == "gpt2"
        width, inner = size["width"], size["inner"]
        queries, keys = (size["head_dim"] * size[name] for name in ("heads", "kv_heads"))
        self.norm(prefix + "attn_norm", width, gpt2)
        self.norm(prefix + "ffn_norm", width, gpt2)
        if gpt2:
            self.linear(prefix + "attn_qkv", 3 * width, width, True)
        else:
            self.linear(prefix + "attn_q", queries, width, biases["attention"])
            self.linear(prefix + "attn_k", keys, width, biases["attention"])
            self.linear(prefix + "attn_v", keys, width, biases["attention"])
            self.linear(prefix + "ffn_gate", inner, width, biases["ffn"])
        if architecture == "qwen3":
            self.norm(prefix + "attn_q_norm", size["head_dim"], False)
            self.norm(prefix + "attn_k_norm", size["head_dim"], False)
        self.linear(prefix + "attn_output", width, queries, biases["output"], BRANCH)
        self.linear(prefix + "ffn_up", inner, width, biases["ffn"])
        self.linear(prefix + "ffn_down", width, inner, biases["ffn"], BRANCH)
