#!/usr/bin/env python3
"""Measures OpenVINO GenAI on the CPU with the options and the output of llama.cpp's benchmarks.

  python openvino_bench.py --export qwen3-0.6b --weights_dtype bfloat16 -m DIR
  python openvino_bench.py -m DIR -t 4 -p 512 -n 0 -r 3 -o json                # as llama-bench
  python openvino_bench.py -m DIR -t 4 -npl 16 -npp 16 -ntg 128                # as llama-batched-bench

Runs in the environment of install_openvino.sh. The first form makes a model of a known shape with
random weights. A prompt is measured until its first token, decoding from the first token to the
last: of prompts of -d or -npp tokens, of at least SHORT_PROMPT. What no option names is at OpenVINO
GenAI's default, keys and values of 8 bits among it.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import random_checkpoint

SHORT_PROMPT = 16
# What its exporter calls them; 16 bits become bfloat16 again, and of int4 the embedding has 8 bits.
FORMATS = {"bfloat16": ["fp16"], "float32": ["fp32"], "int8": ["int8"],
           "int4:128": ["int4", "--group-size", "128"]}
ABOUT = "tlm_bench.json"  # written last: a folder without it is no complete model


def export(shape, weights_dtype, folder):
    """The model directory `folder`, by way of a checkpoint of random weights."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        checkpoint, made = pathlib.Path(scratch) / "checkpoint", pathlib.Path(scratch) / "model"
        weight_bytes = random_checkpoint.write_model(checkpoint, shape)
        subprocess.run([pathlib.Path(sys.executable).parent / "optimum-cli", "export", "openvino",
                        "--model", checkpoint, "--task", "text-generation-with-past",
                        "--weight-format", *FORMATS[weights_dtype], made],
                       check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        about = {"model_type": f"{shape} {weights_dtype}", "weights_dtype": weights_dtype,
                 "model_n_params": weight_bytes // 2}
        (made / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        made.rename(folder)


class Bench:
    """One loaded model. The first use of a shape is not measured."""

    def __init__(self, arguments):
        # Here: exporting and --help do without them.
        import openvino
        import openvino_genai
        self.openvino, self.genai = openvino, openvino_genai
        self.repetitions = arguments.repetitions
        self.about = json.loads((arguments.model / ABOUT).read_text(encoding="utf-8"))
        self.vocabulary = json.loads(
            (arguments.model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        precision = "f32" if self.about["weights_dtype"] == "float32" else "bf16"
        self.pipeline = openvino_genai.LLMPipeline(
            str(arguments.model), "CPU", INFERENCE_NUM_THREADS=arguments.threads,
            INFERENCE_PRECISION_HINT=precision)
        self.random = random.Random(1)

    def generate(self, sequences, prompt, tokens):
        """The seconds until the first tokens, and from then to the last."""
        openvino, genai = self.openvino, self.genai
        shape = openvino.Shape([sequences, prompt])
        ids, mask = (openvino.Tensor(openvino.Type.i64, shape) for _ in range(2))
        ids.data[:] = [[self.random.randrange(self.vocabulary) for _ in range(prompt)]
                       for _ in range(sequences)]
        mask.data[:] = [[1] * prompt for _ in range(sequences)]
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        metrics = self.pipeline.generate(genai.TokenizedInputs(ids, mask), config).perf_metrics
        if metrics.get_num_generated_tokens() != sequences * tokens:
            sys.exit(f"{metrics.get_num_generated_tokens()} tokens, not {sequences} x {tokens}")
        first, last = metrics.get_ttft().mean, metrics.get_generate_duration().mean
        return first / 1e3, (last - first) / 1e3

    def prompt_rates(self, tokens):
        return [tokens / self.generate(1, tokens, 1)[0] for _ in range(self.repetitions + 1)][1:]

    def decode_rates(self, sequences, prompt, tokens):
        prompt = max(prompt, SHORT_PROMPT)
        return [sequences * tokens / self.generate(sequences, prompt, tokens + 1)[1]
                for _ in range(self.repetitions + 1)][1:]


def print_single(bench, arguments):
    results = []
    for prompt, tokens in ((arguments.prompt, 0), (0, arguments.tokens)):
        if prompt + tokens == 0:
            continue
        rates = (bench.prompt_rates(prompt) if prompt else
                 bench.decode_rates(1, arguments.depth, tokens))
        results.append({"n_prompt": prompt, "n_gen": tokens,
                        "n_depth": arguments.depth if tokens else 0, "samples_ts": rates,
                        "build_commit": f"openvino-genai {bench.genai.__version__}",
                        "model_type": bench.about["model_type"],
                        "model_n_params": bench.about["model_n_params"]})
    print(json.dumps(results, indent=1))


def print_batched(bench, arguments):
    for count in arguments.sequences:
        rates = bench.decode_rates(count, arguments.batched_prompt, arguments.batched_tokens)
        print(json.dumps({"pl": count, "pp": arguments.batched_prompt,
                          "tg": arguments.batched_tokens, "speed_tg": statistics.median(rates)}),
              flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="model", type=pathlib.Path, required=True, help="its directory")
    parser.add_argument("--export", choices=sorted(random_checkpoint.SHAPES),
                        help="make the model, measure nothing")
    parser.add_argument("--weights_dtype", choices=FORMATS, default="bfloat16", help="of --export")
    parser.add_argument("-t", dest="threads", type=int, default=1)
    parser.add_argument("-r", dest="repetitions", type=int, default=1)
    parser.add_argument("-p", dest="prompt", type=int, default=0, help="tokens of a prompt")
    parser.add_argument("-n", dest="tokens", type=int, default=0, help="tokens to decode")
    parser.add_argument("-d", dest="depth", type=int, default=0, help="tokens before those of -n")
    parser.add_argument("-npl", dest="sequences", help="comma-separated: that decode together",
                        type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("-npp", dest="batched_prompt", type=int, default=SHORT_PROMPT)
    parser.add_argument("-ntg", dest="batched_tokens", type=int, default=128)
    parser.add_argument("-c", dest="context", type=int, help="has no effect")
    parser.add_argument("-o", "--output-format", dest="output", help="has no effect")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.export:
        export(arguments.export, arguments.weights_dtype, arguments.model)
        return
    if not (arguments.model / ABOUT).is_file():
        sys.exit(f"openvino_bench.py: {arguments.model} is no model of --export")
    try:
        bench = Bench(arguments)
    except ImportError as error:
        sys.exit(f"openvino_bench.py: {error}; install_openvino.sh installs it")
    if arguments.sequences:
        print_batched(bench, arguments)
    else:
        print_single(bench, arguments)


if __name__ == "__main__":
    main()
