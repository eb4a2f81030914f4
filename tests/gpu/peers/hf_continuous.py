"""Hugging Face transformers with continuous batching: seconds for many requests at once.

  hf_continuous.py [--preset qwen3-8b] [--requests 64] [--prompt 256] [--output 256] [--json FILE]
"""

import argparse
import time

import torch

import qwen3_shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="qwen3-8b", choices=qwen3_shapes.SHAPES)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    from transformers import GenerationConfig
    model = qwen3_shapes.model_of(arguments.preset, arguments.device, "sdpa")
    generation = GenerationConfig(max_new_tokens=arguments.output, do_sample=False,
                                  eos_token_id=-1, pad_token_id=0)
    torch.manual_seed(1)

    def generate():
        prompts = [torch.randint(model.config.vocab_size, (arguments.prompt,)).tolist()
                   for _ in range(arguments.requests)]
        # Kept: what is timed neither makes the cache nor records graphs.
        return model.generate_batch(inputs=prompts, generation_config=generation,
                                    persistent_manager=True)
    generate()
    qwen3_shapes.synchronize(arguments.device)
    begin = time.perf_counter()
    outputs = generate()
    seconds = time.perf_counter() - begin
    model.destroy_cached_continuous_batching_manager()
    tokens = sum(len(output.generated_tokens) for output in outputs.values())
    qwen3_shapes.report([{"peer": "transformers continuous batching", "preset": arguments.preset,
                          "requests": arguments.requests, "prompt": arguments.prompt,
                          "output": arguments.output, "seconds": seconds,
                          "tokens_per_second": tokens / seconds}], arguments.json)


if __name__ == "__main__":
    main()
