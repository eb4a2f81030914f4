"""Makes random checkpoints of a small Llama or Qwen2 whose linear maps are quantised in the storage
of AutoAWQ, AutoGPTQ, compressed-tensors and FP8 checkpoints, and the same weights as float32. Packs
by the formats' definitions; needs the standard library only."""

import json
import random
import struct

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
SHAPE = {"vocab_size": 96, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
CODES = {"F32": "f", "F16": "e", "I64": "q", "I32": "i", "I8": "b", "F8_E4M3": "B"}


def bfloat16(value):
    """Returns the bits of a positive number, rounded to nearest."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def encoded(dtype, values):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *map(bfloat16, values))
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def decoded(dtype, data):
    if dtype == "BF16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", data))


def save(path, tensors):
    """Writes a safetensors file of {name: (dtype, shape, bytes)}."""
    header, data = {}, []
    offset = 0
    for name, (dtype, shape, content) in tensors.items():
        end = offset + len(content)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        data.append(content)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def words(rows, bits, order=None):
    """Packs rows of unsigned numbers into I32 words; returns the words and their number per row."""
    per = 32 // bits
    order = order or range(per)
    packed = []
    for row in rows:
        row = row + [0] * (-len(row) % per)
        for begin in range(0, len(row), per):
            word = sum(row[begin + source] << place * bits for place, source in enumerate(order))
            packed.append(word - (word >> 31 << 32))
    return packed, len(packed) // len(rows)


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def flat(rows):
    return [value for row in rows for value in row]


class Module:
    """A random quantised matrix. kind: awq, gptq, pack or int."""

    def __init__(self, generator, outputs, inputs, *, kind, bits=4, group=-1, symmetric=False,
                 v1=True, act_order=False, scales="F16", index="I32", order_seed=None):
        self.kind, self.bits, self.v1, self.symmetric = kind, bits, v1, symmetric
        self.index, self.act_order, self.dtype = index, act_order, scales
        self.outputs, self.inputs = outputs, inputs
        size = inputs if group == -1 else group
        self.groups = inputs // size
        levels = 1 << bits
        self.q = [[generator.randrange(levels) for _ in range(inputs)] for _ in range(outputs)]
        self.zeros = [[levels // 2 if symmetric else generator.randrange(levels)
                       for _ in range(self.groups)] for _ in range(outputs)]
        spread = 0.3 / levels
        scales = [generator.uniform(spread, 2 * spread) for _ in range(outputs * self.groups)]
        scales = decoded(self.dtype, encoded(self.dtype, scales))
        self.scales = [scales[i:i + self.groups] for i in range(0, len(scales), self.groups)]
        self.group_of = [i // size for i in range(inputs)]
        if act_order:
            random.Random(order_seed).shuffle(self.group_of)

    def elements(self):
        return [(q - zeros[g]) * scales[g]
                for row, zeros, scales in zip(self.q, self.zeros, self.scales)
                for q, g in zip(row, self.group_of)]

    def tensors(self):
        """Returns {suffix: (dtype, shape, bytes)}."""
        result = {}

        def add(name, dtype, shape, values):
            result[name] = (dtype, shape, encoded(dtype, values))

        def add_words(name, rows, by_row=False, order=None):
            """Packs along the rows' elements; by_row: along the rows themselves."""
            values, width = words(transposed(rows) if by_row else rows, self.bits, order)
            if by_row:
                lines = [values[i:i + width] for i in range(0, len(values), width)]
                values = flat(transposed(lines))
                add(name, "I32", (width, len(lines)), values)
            else:
                add(name, "I32", (len(rows), width), values)

        n, k, groups = self.outputs, self.inputs, self.groups
        if self.kind in ("awq", "gptq"):
            order = AWQ_ORDER if self.kind == "awq" else None
            less = 1 if self.kind == "gptq" and self.v1 else 0
            zeros = [[(z - less) % (1 << self.bits) for z in row] for row in self.zeros]
            add_words(".qweight", transposed(self.q), by_row=self.kind == "gptq", order=order)
            add_words(".qzeros", transposed(zeros), order=order)
            add(".scales", self.dtype, (groups, n), flat(transposed(self.scales)))
            if self.kind == "gptq":
                add(".g_idx", self.index, (k,), self.group_of)
            return result
        add(".weight_scale", self.dtype, (n, groups), flat(self.scales))
        if self.kind == "pack":
            add_words(".weight_packed", self.q)
            add(".weight_shape", self.index, (2,), (n, k))
            if not self.symmetric:
                add_words(".weight_zero_point", self.zeros, by_row=True)
        else:
            middle = 1 << self.bits - 1
            add(".weight", "I8", (n, k), [q - middle for q in flat(self.q)])
            if not self.symmetric:
                add(".weight_zero_point", "I8", (n, groups), [z - middle for z in flat(self.zeros)])
        if self.act_order:
            add(".weight_g_idx", self.index, (k,), self.group_of)
        return result


def e4m3(bits):
    """Returns the value of an FP8 number that is no NaN."""
    exponent, fraction = bits >> 3 & 15, bits & 7
    value = fraction / 512 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
    return -value if bits & 128 else value


class FloatModule:
    """A random matrix of FP8, each tile of `high` outputs and `wide` inputs (None: all) with a scale."""

    def __init__(self, generator, outputs, inputs, *, high, wide, suffix=".weight_scale",
                 scales="F32", input_scale=False, order_seed=None):
        del order_seed
        self.shape, self.suffix, self.dtype = (outputs, inputs), suffix, scales
        self.input_scale, self.whole = input_scale, high is None and wide is None
        self.high, self.wide = high or outputs, wide or inputs
        self.bits = [bits ^ 32 if bits & 127 > 0x70 else bits  # up to 128, and no NaN
                     for bits in generator.choices(range(256), k=outputs * inputs)]
        self.tiles = (-(-outputs // self.high), -(-inputs // self.wide))
        scales = [generator.uniform(0.001, 0.002) for _ in range(self.tiles[0] * self.tiles[1])]
        self.scales = decoded(self.dtype, encoded(self.dtype, scales))

    def elements(self):
        width = self.shape[1]
        return [e4m3(bits) * self.scales[i // width // self.high * self.tiles[1] +
                                         i % width // self.wide]
                for i, bits in enumerate(self.bits)]

    def tensors(self):
        shape = (1,) if self.whole else self.tiles
        result = {".weight": ("F8_E4M3", self.shape, bytes(self.bits)),
                  self.suffix: (self.dtype, shape, encoded(self.dtype, self.scales))}
        if self.input_scale:
            result[".input_scale"] = ("F32", (1,), encoded("F32", [0.5]))
        return result


def floats(strategy, dynamic, **weights):
    """Writes FP8 like llm-compressor."""
    config = compressed(8, "float-quantized", symmetric=True, type="float", strategy=strategy,
                        **weights)
    config["config_groups"]["group_0"]["input_activations"] = {
        "dynamic": dynamic, "num_bits": 8, "strategy": "token" if dynamic else "tensor",
        "symmetric": True, "type": "float"}
    return config


def compressed(bits, form, group=-1, symmetric=False, **weights):
    """Writes integers like llm-compressor."""
    inputs = {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "int"}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quantization_status": "compressed", "config_groups": {
                "group_0": {"targets": ["Linear"], "output_activations": None,
                            "input_activations": inputs if form == "int-quantized" else None,
                            "weights": {"num_bits": bits, "type": "int", "symmetric": symmetric,
                                        "strategy": "channel" if group == -1 else "group",
                                        "group_size": None if group == -1 else group,
                                        "dynamic": False} | weights}}}


def awq(group):
    return {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
            "zero_point": True, "modules_to_not_convert": None}


def gptq(bits, group, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": False,
            "desc_act": False, "checkpoint_format": "gptq", **more}


# By name: quantization_config, the storage of the modules, and the special fields of the model.
FORMATS = {
    "awq": (awq(32), {"kind": "awq", "group": 32}, {"tied": True}),
    "awq, group 128": (awq(128), {"kind": "awq", "group": 128}, {"model_type": "qwen2"}),
    "gptq, act-order": (gptq(4, 64, desc_act=True, lm_head=True),
                        {"kind": "gptq", "group": 64, "act_order": True},
                        {"zero_biases": True, "head": True}),
    "gptq_v2, 8 bits": (gptq(8, -1, checkpoint_format="gptq_v2", sym=True),
                        {"kind": "gptq", "bits": 8, "v1": False, "symmetric": True,
                         "index": "I64"}, {}),
    "pack-quantized": (compressed(4, "pack-quantized", 64),
                       {"kind": "pack", "group": 64, "scales": "BF16", "index": "I64"},
                       {"shards": 3}),
    "pack-quantized, act-order": (compressed(4, "pack-quantized", 32, True, actorder="group"),
                                  {"kind": "pack", "group": 32, "symmetric": True,
                                   "act_order": True}, {"own_orders": True}),
    "pack-quantized, 8 bits": (compressed(8, "pack-quantized", 128),
                               {"kind": "pack", "bits": 8, "group": 128}, {}),
    "int-quantized": (compressed(8, "int-quantized", symmetric=True),
                      {"kind": "int", "bits": 8, "symmetric": True, "scales": "F32"},
                      {"model_type": "qwen2"}),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
             "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
            {"high": 128, "wide": 128, "suffix": ".weight_scale_inv", "scales": "BF16"}, {}),
    "fp8, one scale": ({"quant_method": "fp8", "activation_scheme": "static"},
                       {"high": None, "wide": None, "input_scale": True},
                       {"model_type": "qwen2"}),
    "float-quantized, channels": (floats("channel", True),
                                  {"high": 1, "wide": None, "scales": "BF16"}, {"shards": 2}),
    "float-quantized, blocks": (floats("block", True, block_structure=[64, 32]),
                                {"high": 64, "wide": 32}, {}),
    "float-quantized, tensors": (floats("tensor", False),
                                 {"high": None, "wide": None, "input_scale": True}, {}),
}


class Pair:
    """A model of one of FORMATS: save() writes it quantised, save_floats() as float32."""

    def __init__(self, name, seed=1):
        self.quantisation, how, special = FORMATS[name]
        self.shards = special.get("shards", 1)
        tied = special.get("tied", False)
        model_type = special.get("model_type", "llama")
        self.config = {"model_type": model_type, **SHAPE, "tie_word_embeddings": tied}
        generator = random.Random(seed)
        self.stored, self.floats = {}, {}
        d, vocab, hidden = SHAPE["hidden_size"], SHAPE["vocab_size"], SHAPE["intermediate_size"]

        def add(tensor, shape, low, high):
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            data = encoded("F32", [generator.uniform(low, high) for _ in range(size)])
            self.stored[tensor] = self.floats[tensor] = ("F32", shape, data)

        def add_module(module, outputs, inputs, bias):
            # GPTQ orders inputs by their activations: modules with one input have one order.
            order = module if special.get("own_orders") else module.rpartition(".")[0] + str(inputs)
            kind = FloatModule if "high" in how else Module
            matrix = kind(generator, outputs, inputs, order_seed=order, **how)
            for suffix, tensor in matrix.tensors().items():
                self.stored[module + suffix] = tensor
            self.floats[module + ".weight"] = ("F32", (outputs, inputs),
                                               encoded("F32", matrix.elements()))
            if bias:
                add(module + ".bias", (outputs,), -0.5, 0.5)
            elif special.get("zero_biases"):
                self.stored[module + ".bias"] = ("F16", (outputs,), bytes(2 * outputs))

        add("model.embed_tokens.weight", (vocab, d), -1, 1)
        for layer in range(SHAPE["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            for part, width in (("q", d), ("k", d // 2), ("v", d // 2)):
                add_module(f"{prefix}self_attn.{part}_proj", width, d, model_type == "qwen2")
            add_module(f"{prefix}self_attn.o_proj", d, d, False)
            add_module(f"{prefix}mlp.gate_proj", hidden, d, False)
            add_module(f"{prefix}mlp.up_proj", hidden, d, False)
            add_module(f"{prefix}mlp.down_proj", d, hidden, False)
            add(f"{prefix}input_layernorm.weight", (d,), 0.8, 1.2)
            add(f"{prefix}post_attention_layernorm.weight", (d,), 0.8, 1.2)
        add("model.norm.weight", (d,), 0.8, 1.2)
        if special.get("head"):
            add_module("lm_head", vocab, d, False)
        elif not tied:
            add("lm_head.weight", (vocab, d), -0.1, 0.1)

    def save(self, directory):
        config = self.config | {"quantization_config": self.quantisation}
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if self.shards == 1:
            save(directory / "model.safetensors", self.stored)
            return
        file_of = {name: f"model-{i % self.shards}.safetensors" for i, name in enumerate(self.stored)}
        for file in set(file_of.values()):
            save(directory / file, {name: tensor for name, tensor in self.stored.items()
                                    if file_of[name] == file})
        index = {"metadata": {}, "weight_map": file_of}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    def save_floats(self, directory):
        (directory / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        save(directory / "model.safetensors", self.floats)
