"""Hugging Face transformers with a static cache and torch.compile: milliseconds a decode step.

  hf_static.py [--preset qwen3-8b] [--batch 1 64] [--context 1024] [--json FILE]
"""

import argparse

import torch

import qwen3_shapes


def decode_step(model, batch, context, device, compiled):
    """A closure that decodes one token of every sequence over `context` positions."""
    from transformers import StaticCache
    cache = StaticCache(config=model.config, max_cache_len=context + 64)
    vocabulary = model.config.vocab_size
    with torch.no_grad():
        # A short prompt makes the cache's tensors; the steps then stand at the end of the context.
        prompt = torch.randint(vocabulary, (batch, 8), device=device)
        model(prompt, past_key_values=cache, use_cache=True)
    for layer in cache.layers:  # which counts its positions itself
        layer.cumulative_length.fill_(context)
    ids = torch.randint(vocabulary, (batch, 1), device=device)
    position = torch.tensor([context], device=device)
    mask = torch.zeros((batch, 1, 1, context + 64), device=device, dtype=torch.bfloat16)
    mask[..., context + 1:] = torch.finfo(torch.bfloat16).min

    def forward(ids, position):
        logits = model(ids, past_key_values=cache, use_cache=True,
                       position_ids=position.expand(batch, 1), attention_mask=mask).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    run = torch.compile(forward, mode="reduce-overhead", fullgraph=True) if compiled else forward

    def step():
        with torch.no_grad():
            run(ids, position)
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="qwen3-8b", choices=qwen3_shapes.SHAPES)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no_compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    model = qwen3_shapes.model_of(arguments.preset, arguments.device)
    rows = []
    for batch in arguments.batch:
        torch._dynamo.reset()
        step = decode_step(model, batch, arguments.context, arguments.device,
                           not arguments.no_compile)
        seconds = qwen3_shapes.median_seconds(step, arguments.steps, arguments.device)
        rows.append({"peer": "transformers static cache" +
                             ("" if arguments.no_compile else " + torch.compile"),
                     "preset": arguments.preset, "batch": batch, "context": arguments.context,
                     "step_ms": 1e3 * seconds, "tokens_per_second": batch / seconds})
    qwen3_shapes.report(rows, arguments.json)


if __name__ == "__main__":
    main()
