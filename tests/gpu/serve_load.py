"""256 streams of a server of 8B with fp8 keys and values, as its users see them: first tokens, and
times between tokens. The first wave apart, in which steps are recorded.

  serve_load.py [--preset qwen3-8b] [--streams 256] [--prompt 512] [--output 256] [--json FILE]
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import served
from server_check import samples


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="qwen3-8b")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    result = {"streams": arguments.streams}
    with tempfile.TemporaryDirectory(prefix="tlm-gpu-") as folder, served.Server(
            f"--preset={arguments.preset}", "--random_weights=0", "--kv_cache_dtype=fp8",
            f"--max_running_requests={arguments.streams}", "--prefix_cache=false",
            ports=("metrics",)) as server:
        for name, waves in (("cold", 1), ("warm", 2)):
            path = pathlib.Path(folder) / name
            subprocess.run([served.program("serve_bench"), f"--target={server.target}",
                            f"--concurrency={arguments.streams}", "--warmup=0s",
                            f"--requests={waves * arguments.streams}", "--temperature=0",
                            f"--prompt_tokens={arguments.prompt}",
                            f"--output_tokens={arguments.output}", f"--json={path}"], check=True)
            point = json.loads(path.read_text(encoding="utf-8"))["points"][0]
            result[name] = {"output_tokens_per_second": point["per_second"]["output_tokens"],
                            "ttft": point["latency_s"]["ttft"],
                            "inter_token": point["latency_s"]["inter_token"]}
            for figure, value in samples(server).items():
                if figure.startswith("tlm_gpu_"):
                    print(f"  {figure} {value:g}")
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
