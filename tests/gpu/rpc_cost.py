"""What gRPC adds to a decode step of 64 streams: the time between a stream's messages, as a client
of its own process sees it, against the engine's step of the same size.

  rpc_cost.py [--preset qwen3-8b] [--streams 64] [--json FILE]
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import served


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="qwen3-8b")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    prompt, output = 512, 512
    with tempfile.TemporaryDirectory(prefix="tlm-gpu-") as folder:
        engine_json, load_json = pathlib.Path(folder) / "engine", pathlib.Path(folder) / "load"
        # Half way through their outputs streams have prompt + output / 2 tokens.
        subprocess.run([served.program("engine_bench"), "--backend=cuda",
                        f"--preset={arguments.preset}", "--prompts=", "--decode=64",
                        f"--sequences={arguments.streams}",
                        f"--depths={prompt + output // 2 - 32}", "--repetitions=3", "--long_depth=0",
                        f"--json={engine_json}"], check=True)
        with served.Server(f"--preset={arguments.preset}", "--random_weights=0",
                           f"--max_running_requests={arguments.streams}",
                           "--prefix_cache=false") as server:
            subprocess.run([served.program("serve_bench"), f"--target={server.target}",
                            f"--concurrency={arguments.streams}",
                            f"--requests={2 * arguments.streams}", f"--prompt_tokens={prompt}",
                            f"--output_tokens={output}", "--temperature=0", "--warmup=1s",
                            f"--json={load_json}"], check=True)
        step = json.loads(engine_json.read_text())["tests"][0]["seconds"]
        latencies = json.loads(load_json.read_text())["points"][0]["latency_s"]
    gap = latencies["inter_token"]["p50"]
    result = {"preset": arguments.preset, "streams": arguments.streams, "step_seconds": step,
              "gap_seconds": gap, "overhead_percent": 100 * (gap / step - 1)}
    print(f"engine step {1e3 * step:.3f} ms, between messages {1e3 * gap:.3f} ms: gRPC adds "
          f"{result['overhead_percent']:.1f} %")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
