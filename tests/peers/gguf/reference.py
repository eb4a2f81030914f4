"""The logits of a GGUF file in float64, by numpy, on weights as the `gguf` package reads them."""

import gguf
import numpy as np


class Reference:
    """A model of one file, or of all files of one model."""

    def __init__(self, paths):
        self.fields, self.tensors = {}, {}
        for path in paths:
            reader = gguf.GGUFReader(path)
            self.fields |= {name: field for name, field in reader.fields.items()
                            if name not in self.fields}
            for tensor in reader.tensors:
                values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                shape = [int(extent) for extent in tensor.shape[::-1]]
                self.tensors[tensor.name] = values.reshape(shape).astype(np.float64)
        self.architecture = self.fields["general.architecture"].contents()

    def value(self, name, otherwise=None):
        field = self.fields.get(f"{self.architecture}.{name}")
        return otherwise if field is None else field.contents()

    def logits(self, ids):
        """[tokens, vocabulary]"""
        x = self.tensors["token_embd.weight"][ids]
        if "position_embd.weight" in self.tensors:
            x = x + self.tensors["position_embd.weight"][:len(ids)]
        for layer in range(self.value("block_count")):
            prefix = f"blk.{layer}."
            x = x + self.attention(prefix, self.norm(prefix + "attn_norm", x))
            x = x + self.feed_forward(prefix, self.norm(prefix + "ffn_norm", x))
        head = "output" if "output.weight" in self.tensors else "token_embd"
        return self.linear(head, self.norm("output_norm", x))

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0)

    def norm(self, name, x):
        gain = self.tensors[name + ".weight"]
        eps = self.value("attention.layer_norm_epsilon")
        if eps is None:
            eps = self.value("attention.layer_norm_rms_epsilon")
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain
        x = x - x.mean(-1, keepdims=True)
        return (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain
                + self.tensors[name + ".bias"])

    def attention(self, prefix, x):
        heads = self.value("attention.head_count")
        kv_heads = self.value("attention.head_count_kv", heads)
        if prefix + "attn_qkv.weight" in self.tensors:
            q, k, v = np.split(self.linear(prefix + "attn_qkv", x), 3, axis=-1)
        else:
            q, k, v = (self.linear(prefix + "attn_" + name, x) for name in "qkv")
        # [heads, tokens, head_dim]
        q, k, v = (part.reshape(len(x), count, -1).swapaxes(0, 1)
                   for part, count in ((q, heads), (k, kv_heads), (v, kv_heads)))
        if prefix + "attn_q_norm.weight" in self.tensors:
            q, k = self.norm(prefix + "attn_q_norm", q), self.norm(prefix + "attn_k_norm", k)
        if "position_embd.weight" not in self.tensors:
            q, k = self.rotate(q), self.rotate(k)
        k, v = (np.repeat(part, heads // kv_heads, axis=0) for part in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        out = scores / scores.sum(-1, keepdims=True) @ v
        return self.linear(prefix + "attn_output", out.swapaxes(0, 1).reshape(len(x), -1))

    def rotate(self, x):
        """Rotary positions of [heads, tokens, head_dim]; pairs of llama's are neighbours."""
        frequencies, magnitude = self.frequencies(x.shape[-1])
        angles = np.arange(x.shape[1])[:, None] * frequencies
        turn = magnitude * np.exp(1j * angles)
        if self.architecture == "llama":
            turned = (x[..., ::2] + 1j * x[..., 1::2]) * turn
            return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
        low, high = np.split(x, 2, axis=-1)
        turned = (low + 1j * high) * turn
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def frequencies(self, head_dim):
        """Of every pair, and what lengths are multiplied by."""
        base = self.value("rope.freq_base", 10000.0)
        frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
        frequencies = frequencies / self.tensors.get("rope_freqs.weight", 1)
        kind, factor = self.value("rope.scaling.type"), self.value("rope.scaling.factor", 1.0)
        if kind == "linear":
            return frequencies / factor, 1.0
        if kind != "yarn":
            return frequencies, 1.0
        # YaRN: pairs that turn often in the original context keep their frequency.
        context = self.value("rope.scaling.original_context_length")
        fast, slow = (head_dim * np.log(context / (2 * np.pi * turns)) / (2 * np.log(base))
                      for turns in (self.value("rope.scaling.yarn_beta_fast", 32.0),
                                    self.value("rope.scaling.yarn_beta_slow", 1.0)))
        first, last = max(np.floor(fast), 0), min(np.ceil(slow), head_dim - 1)
        ramp = np.clip((np.arange(head_dim // 2) - first) / max(last - first, 0.001), 0, 1)
        magnitude = self.value("rope.scaling.yarn_attn_factor", 0.1 * np.log(factor) + 1)
        return frequencies * (1 - ramp + ramp / factor), magnitude

    def feed_forward(self, prefix, x):
        up = self.linear(prefix + "ffn_up", x)
        if prefix + "ffn_gate.weight" in self.tensors:
            gate = self.linear(prefix + "ffn_gate", x)
            return self.linear(prefix + "ffn_down", gate / (1 + np.exp(-gate)) * up)
        # GELU by tanh, as GPT-2 has it.
        gelu = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up ** 3)))
        return self.linear(prefix + "ffn_down", gelu)
