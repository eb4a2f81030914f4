#!/usr/bin/env python3
"""Long prompts: what eight running streams notice of a prompt of 16,384 tokens.

Measured as served by default, and for contrast without the bound on steps that mix prompts and
running streams. The model has random weights: only its shape counts.
"""

import json
import pathlib
import statistics
import sys
import tempfile

import scenario

BAR = 3

# 28 million parameters, a context of 32,768.
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 8192,
          "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
          "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
          "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": True,
          "torch_dtype": "bfloat16", "use_sliding_window": False, "eos_token_id": 0}


def measure(arguments, model, server_flags):
    flags = [f"--streams={arguments.streams}", f"--prompt_tokens={arguments.prompt_tokens}",
             f"--repetitions={arguments.repetitions}", f"--undisturbed={arguments.undisturbed}"]
    return scenario.run(arguments, "long_prompt_bench", flags,
                        [f"--model={model}", "--random_weights=1",
                         f"--kv_cache_bytes={arguments.kv_cache_bytes}", *server_flags])


def ratios(result):
    return [run["worst_ratio"] for run in result["runs"]]


def main():
    parser = scenario.parser(__doc__)
    parser.add_argument("--streams", type=int, default=8, help="that decode")
    parser.add_argument("--prompt_tokens", type=int, default=16384, help="of the prompt")
    parser.add_argument("--repetitions", type=int, default=3, help="of each measurement")
    parser.add_argument("--undisturbed", default="5s", help="measured before the prompt arrives")
    parser.add_argument("--kv_cache_bytes", default="3GiB", help="the server's")
    parser.add_argument("--no_contrast", action="store_true", help="leave the contrast out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlm-benchmark-") as directory:
        (pathlib.Path(directory) / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        results = [measure(arguments, directory, [])]
        if not arguments.no_contrast:
            print("\nwithout the bound:")
            results.append(measure(arguments, directory, ["--max_decode_stretch=0"]))
    verdicts = scenario.Verdicts()
    median = statistics.median(ratios(results[0]))
    verdicts.check("worst gap / undisturbed p99", scenario.spread(ratios(results[0]), "{:.2f}"),
                   f"median <= {BAR}", median <= BAR)
    if not arguments.no_contrast:
        print(f"\nwithout the bound: {scenario.spread(ratios(results[1]), '{:.2f}')}")
    return verdicts.finish(arguments, results)


if __name__ == "__main__":
    sys.exit(main())
