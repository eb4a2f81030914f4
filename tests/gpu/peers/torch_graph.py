"""The decode step written in plain PyTorch and replayed as one CUDA graph: what a careful user gets
without a kernel of their own. Milliseconds a step.

  torch_graph.py [--preset qwen3-8b] [--batch 1 64] [--context 1024] [--json FILE]
"""

import argparse

import torch
from torch.nn import functional

import qwen3_shapes


class Decoder:
    """Random weights of a Qwen3's shape and a cache full of random keys and values."""

    def __init__(self, config, batch, context, device):
        self.config, self.batch, self.context = config, batch, context
        width, heads, kv_heads = (config.hidden_size, config.num_attention_heads,
                                  config.num_key_value_heads)
        dim, ffn = config.head_dim, config.intermediate_size
        torch.manual_seed(0)

        def random(*shape, scale=0.02):
            return (torch.randn(*shape, device=device) * scale).to(torch.bfloat16)
        self.embedding = random(config.vocab_size, width)
        self.head = self.embedding if config.tie_word_embeddings else random(config.vocab_size,
                                                                              width)
        self.norm = torch.ones(width, device=device, dtype=torch.bfloat16)
        self.head_norm = torch.ones(dim, device=device, dtype=torch.bfloat16)
        self.layers = [dict(qkv=random((heads + 2 * kv_heads) * dim, width),
                            output=random(width, heads * dim), gate_up=random(2 * ffn, width),
                            down=random(width, ffn),
                            keys=random(batch, kv_heads, context, dim, scale=1.0),
                            values=random(batch, kv_heads, context, dim, scale=1.0))
                       for _ in range(config.num_hidden_layers)]
        angles = (context - 1) / config_theta(config) ** (
            torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
        self.cosine = torch.cat([angles.cos()] * 2).to(torch.bfloat16)
        self.sine = torch.cat([angles.sin()] * 2).to(torch.bfloat16)
        self.ids = torch.randint(config.vocab_size, (batch,), device=device)

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-high, low], -1) * self.sine

    def rms(self, x, gain):
        return functional.rms_norm(x, gain.shape, gain, self.config.rms_norm_eps)

    def step(self):
        config = self.config
        heads, kv_heads, dim = (config.num_attention_heads, config.num_key_value_heads,
                                config.head_dim)
        x = self.embedding[self.ids]
        for layer in self.layers:
            qkv = functional.linear(self.rms(x, self.norm), layer["qkv"])
            q, k, v = qkv.view(self.batch, heads + 2 * kv_heads, dim).split(
                [heads, kv_heads, kv_heads], 1)
            q = self.rotate(self.rms(q, self.head_norm))
            layer["keys"][:, :, -1] = self.rotate(self.rms(k, self.head_norm))
            layer["values"][:, :, -1] = v
            attended = functional.scaled_dot_product_attention(
                q.unsqueeze(2), layer["keys"], layer["values"], enable_gqa=True)
            x = x + functional.linear(attended.reshape(self.batch, heads * dim), layer["output"])
            gate, up = functional.linear(self.rms(x, self.norm), layer["gate_up"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        logits = functional.linear(self.rms(x, self.norm), self.head)
        self.ids.copy_(logits.argmax(-1))


def config_theta(config):
    parameters = getattr(config, "rope_parameters", None) or {}
    return parameters.get("rope_theta", None) or getattr(config, "rope_theta", 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="qwen3-8b", choices=qwen3_shapes.SHAPES)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    rows = []
    for batch in arguments.batch:
        with torch.no_grad():
            decoder = Decoder(qwen3_shapes.config_of(arguments.preset), batch, arguments.context,
                              arguments.device)
            replay = decoder.step
            if arguments.device == "cuda":
                side = torch.cuda.Stream()
                with torch.cuda.stream(side):
                    for _ in range(3):
                        decoder.step()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    decoder.step()
                replay = graph.replay
            seconds = qwen3_shapes.median_seconds(replay, arguments.steps, arguments.device)
        rows.append({"peer": "torch CUDA graph", "preset": arguments.preset, "batch": batch,
                     "context": arguments.context, "step_ms": 1e3 * seconds,
                     "tokens_per_second": batch / seconds})
        del decoder
    qwen3_shapes.report(rows, arguments.json)


if __name__ == "__main__":
    main()
