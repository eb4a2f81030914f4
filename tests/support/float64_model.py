"""A decoder-only transformer in plain Python floats, which are double precision: no tensors, no
cache, one token after the other, written from the papers' formulas. Tests compare the server's
logits with it. It reads the same configuration keys as the server's generic `transformer_lm`."""

import json
import math
import random
import struct

NAMES = {
    "cs336": {
        "embedding": "token_embeddings", "positions": "position_embeddings", "final": "ln_final",
        "head": "lm_head", "layer": "layers.{}.", "norm1": "ln1", "norm2": "ln2", "q": "attn.q_proj",
        "k": "attn.k_proj", "v": "attn.v_proj", "o": "attn.output_proj", "q_norm": "attn.q_norm",
        "k_norm": "attn.k_norm", "w1": "ffn.w1", "w2": "ffn.w2", "w3": "ffn.w3"},
    "qwen3_mha": {
        "embedding": "embeddings", "final": "norm", "head": "output", "layer": "layers.{}.",
        "norm1": "input_norm", "norm2": "post_attention_norm", "q": "attn.wq", "k": "attn.wk",
        "v": "attn.wv", "o": "attn.wo", "q_norm": "attn.q_norm", "k_norm": "attn.k_norm",
        "w1": "ffn.gate_proj", "w2": "ffn.down_proj", "w3": "ffn.up_proj"},
}


class ConfigFields:
    """A configuration with every default filled in."""

    def __init__(self, config):
        get = config.get
        self.family = get("model_type", "cs336")
        course = self.family == "qwen3_mha"
        self.names = NAMES["qwen3_mha" if course else "cs336"]
        self.vocab = config["vocab_size"]
        self.context = get("max_seq_len", 8192) if course else config["context_length"]
        self.width = config["d_model"]
        self.layers = config["n_layer"] if course else config["num_layers"]
        self.heads = config["n_head"] if course else config["num_heads"]
        self.hidden = config["d_hidden"] if course else config["d_ff"]
        self.kv_heads = get("num_kv_heads", self.heads)
        self.head_dim = get("head_dim", self.width // self.heads)
        self.layer_norm = get("norm") == "layer"
        self.eps = get("norm_eps", 1e-6 if course else 1e-5)
        self.eps_outside = get("norm_eps_placement") == "outside"
        self.theta = get("rope_theta", 10000.0 if course else None)
        self.pairing = get("rope_layout", "half" if course else "interleaved")
        if self.pairing == "none":
            self.theta = None
        elif "rope_layout" in config and self.theta is None:
            self.theta = 10000.0
        self.learned = get("learned_positions", False)
        self.qk_norm = get("qk_norm", course)
        self.ffn = get("ffn_type", "swiglu")
        self.gate = get("ffn_gate", "w1")
        self.up = get("ffn_up", "w3" if self.ffn == "swiglu" else "w1")
        self.down = get("ffn_down", "w2")
        self.qkv_bias = get("qkv_bias", False)
        self.output_bias = get("attention_output_bias", False)
        self.ffn_bias = get("ffn_bias", False)
        self.tied = get("tie_word_embeddings", False)
        self.window = get("sliding_window") or self.context


def shapes(fields):
    """Every tensor's name and shape; matrices are [outputs, inputs]."""
    n, d = fields.names, fields.width
    result = {}

    def linear(name, outputs, inputs, bias):
        result[name + ".weight"] = (outputs, inputs)
        if bias:
            result[name + ".bias"] = (outputs,)

    def norm(name):
        result[name + ".weight"] = (d,)
        if fields.layer_norm:
            result[name + ".bias"] = (d,)

    result[n["embedding"] + ".weight"] = (fields.vocab, d)
    if fields.learned:
        result[n["positions"] + ".weight"] = (fields.context, d)
    for layer in range(fields.layers):
        prefix = n["layer"].format(layer)
        q_rows, kv_rows = fields.heads * fields.head_dim, fields.kv_heads * fields.head_dim
        norm(prefix + n["norm1"])
        linear(prefix + n["q"], q_rows, d, fields.qkv_bias)
        linear(prefix + n["k"], kv_rows, d, fields.qkv_bias)
        linear(prefix + n["v"], kv_rows, d, fields.qkv_bias)
        linear(prefix + n["o"], d, q_rows, fields.output_bias)
        if fields.qk_norm:
            result[prefix + n["q_norm"] + ".weight"] = (fields.head_dim,)
            result[prefix + n["k_norm"] + ".weight"] = (fields.head_dim,)
        norm(prefix + n["norm2"])
        if fields.ffn == "swiglu":
            linear(prefix + n[fields.gate], fields.hidden, d, fields.ffn_bias)
        linear(prefix + n[fields.up], fields.hidden, d, fields.ffn_bias)
        linear(prefix + n[fields.down], d, fields.hidden, fields.ffn_bias)
    norm(n["final"])
    if not fields.tied:
        result[n["head"] + ".weight"] = (fields.vocab, d)
    return result


def random_tensors(fields, seed):
    """Returns values that float32 holds exactly, flat and row-major."""
    rnd = random.Random(seed)

    def value(shape):
        if len(shape) == 1:
            number = rnd.gauss(0.5, 0.3)
        else:
            number = rnd.gauss(0, 1.5 / math.sqrt(shape[1]))
        return struct.unpack("<f", struct.pack("<f", number))[0]

    return {name: [value(shape) for _ in range(math.prod(shape))]
            for name, shape in shapes(fields).items()}


def save(directory, config, tensors, prefix=""):
    """Writes config.json and model.safetensors; `prefix` goes before every tensor's name."""
    fields = ConfigFields(config)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header, offset = {}, 0
    for name, shape in shapes(fields).items():
        end = offset + 4 * math.prod(shape)
        header[prefix + name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in shapes(fields):
            file.write(struct.pack(f"<{len(tensors[name])}f", *tensors[name]))


def linear(weights, name, x):
    matrix, bias = weights[name + ".weight"], weights.get(name + ".bias")
    inputs = len(x)
    result = [math.sumprod(matrix[row:row + inputs], x) if hasattr(math, "sumprod") else
              sum(w * v for w, v in zip(matrix[row:row + inputs], x))
              for row in range(0, len(matrix), inputs)]
    return [r + b for r, b in zip(result, bias)] if bias else result


def normalise(fields, x, gain, bias=None):
    mean = sum(x) / len(x) if bias else 0.0
    square = sum((v - mean) ** 2 for v in x) / len(x)
    scale = math.sqrt(square) + fields.eps if fields.eps_outside else math.sqrt(square + fields.eps)
    result = [(v - mean) / scale * g for v, g in zip(x, gain)]
    return [r + b for r, b in zip(result, bias)] if bias else result


def norm(fields, weights, name, x):
    return normalise(fields, x, weights[name + ".weight"], weights.get(name + ".bias"))


def rotate(fields, head, position):
    """Applies RoPE (Su et al. 2021) to one head."""
    if fields.theta is None:
        return head
    half, result = len(head) // 2, list(head)
    for i in range(half):
        angle = position * fields.theta ** (-2 * i / len(head))
        a, b = (2 * i, 2 * i + 1) if fields.pairing == "interleaved" else (i, i + half)
        result[a] = head[a] * math.cos(angle) - head[b] * math.sin(angle)
        result[b] = head[a] * math.sin(angle) + head[b] * math.cos(angle)
    return result


def activate(kind, a):
    if kind in ("swiglu", "silu"):
        return a / (1 + math.exp(-a))
    if kind == "relu":
        return max(a, 0.0)
    if kind == "gelu_tanh":
        return 0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3)))
    return 0.5 * a * (1 + math.erf(a / math.sqrt(2)))


def attend(query, keys, values):
    scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(len(query)) for key in keys]
    largest = max(scores)
    shares = [math.exp(score - largest) for score in scores]
    total = sum(shares)
    return [sum(s * value[i] for s, value in zip(shares, values)) / total
            for i in range(len(query))]


def heads_of(fields, x, gain):
    heads = [x[i:i + fields.head_dim] for i in range(0, len(x), fields.head_dim)]
    return heads if gain is None else [normalise(fields, head, gain) for head in heads]


def attention(fields, weights, prefix, x, position, keys, values):
    """Appends this position's key and value to `keys` and `values`."""
    n = fields.names
    gain = {key: weights.get(prefix + n[key] + ".weight") for key in ("q_norm", "k_norm")}
    queries = heads_of(fields, linear(weights, prefix + n["q"], x), gain["q_norm"])
    keys.append([rotate(fields, head, position) for head in
                 heads_of(fields, linear(weights, prefix + n["k"], x), gain["k_norm"])])
    values.append(heads_of(fields, linear(weights, prefix + n["v"], x), None))
    mixed = []
    for index, query in enumerate(queries):
        kv = index * fields.kv_heads // fields.heads
        mixed += attend(rotate(fields, query, position),
                        [key[kv] for key in keys[-fields.window:]],
                        [value[kv] for value in values[-fields.window:]])
    return linear(weights, prefix + n["o"], mixed)


def feed_forward(fields, weights, prefix, x):
    n = fields.names
    up = linear(weights, prefix + n[fields.up], x)
    if fields.ffn == "swiglu":
        gate = linear(weights, prefix + n[fields.gate], x)
        hidden = [activate("swiglu", g) * u for g, u in zip(gate, up)]
    else:
        hidden = [activate(fields.ffn, u) for u in up]
    return linear(weights, prefix + n[fields.down], hidden)


def logits(config, weights, ids):
    """Returns a list of vocab_size numbers after each of `ids`."""
    fields = ConfigFields(config)
    n, d = fields.names, fields.width
    cache = [([], []) for _ in range(fields.layers)]
    embedding = weights[n["embedding"] + ".weight"]
    head = n["embedding"] if fields.tied else n["head"]
    rows = []
    for position, token in enumerate(ids):
        x = embedding[token * d:(token + 1) * d]
        if fields.learned:
            table = weights[n["positions"] + ".weight"]
            x = [a + b for a, b in zip(x, table[position * d:(position + 1) * d])]
        for layer in range(fields.layers):
            prefix = n["layer"].format(layer)
            added = attention(fields, weights, prefix, norm(fields, weights, prefix + n["norm1"], x),
                              position, *cache[layer])
            x = [a + b for a, b in zip(x, added)]
            added = feed_forward(fields, weights, prefix,
                                 norm(fields, weights, prefix + n["norm2"], x))
            x = [a + b for a, b in zip(x, added)]
        rows.append(linear(weights, head, norm(fields, weights, n["final"], x)))
    return rows
