#!/usr/bin/python3
"""How long a server takes from exec until it serves and until its first token, and how much memory
it takes on the way, with its model in the page cache.

  start_time.py [--shape=qwen3-0.6b] [--cache=FOLDER] [--starts=5] [--json=FILE] [-- SERVER FLAGS]

Writes a checkpoint of that shape with random bfloat16 weights and a tokenizer of that size first;
--cache keeps them for the next time, --model takes a directory or GGUF file that is there. Times
are those a client on this machine sees. Memory is that of the whole process, mapped pages of files
included: the peak until the first token (VmHWM), and what is left when the hash of the files is
known.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import tempfile
import time

import random_checkpoint
import scenario

ROOT = scenario.ROOT
sys.path.append(str(ROOT / "tests" / "support"))

from server_process import ServerProcess  # noqa: E402

LIMIT_SECONDS = 300
POLL_SECONDS = 0.0005
MIB = 1 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release",
                        help="build folder, with bin/ and the Python stubs")
    parser.add_argument("--server", type=pathlib.Path, help="another tlm-server than the build's")
    parser.add_argument("--shape", choices=random_checkpoint.SHAPES, default="qwen3-0.6b")
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        help="a tokenizer.json to take instead of a random one")
    parser.add_argument("--cache", type=pathlib.Path, help="keeps the checkpoint here")
    parser.add_argument("--model", type=pathlib.Path,
                        help="a model directory or GGUF file that is there")
    parser.add_argument("--preset", help="random weights instead of a model")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="write everything to this file")
    parser.add_argument("server_flags", nargs="*", metavar="SERVER FLAG", help="behind --")
    return parser.parse_args()


def import_stubs(build):
    """The generated clients: (grpc, health, model service, request builder)."""
    stubs = build / "tests" / "integration" / "python" / "stubs"
    if not (stubs / "stamp").exists():
        sys.exit(f"start_time.py: no Python stubs in {stubs}: {scenario.BUILD_COMMAND} makes them")
    sys.path.insert(0, str(stubs))
    import grpc
    grpc.__path__.append(str(stubs / "grpc"))
    from grpc.health.v1 import health_pb2, health_pb2_grpc
    from tlm.v1 import generate_pb2, language_model_pb2_grpc, model_info_pb2
    return argparse.Namespace(
        grpc=grpc, health=health_pb2, health_stub=health_pb2_grpc.HealthStub,
        generate=generate_pb2, model_info=model_info_pb2,
        model_stub=language_model_pb2_grpc.LanguageModelStub)


def await_serving(stubs, channel, begin):
    health = stubs.health_stub(channel)
    while True:
        response = health.Check(stubs.health.HealthCheckRequest(), wait_for_ready=True,
                                timeout=LIMIT_SECONDS)
        if response.status == stubs.health.HealthCheckResponse.SERVING:
            return
        if time.monotonic() > begin + LIMIT_SECONDS:
            raise RuntimeError("tlm-server did not begin to serve")
        time.sleep(POLL_SECONDS)


def first_token(stubs, model, has_tokenizer):
    """Returns when the first token of a short prompt is there."""
    request = stubs.generate.GenerateRequest()
    if has_tokenizer:
        request.prompt = "Once upon a time"
    else:
        request.prompt_token_ids.ids.extend([1, 2, 3, 4])
    request.stopping.max_new_tokens = 1
    request.stopping.ignore_eos = True
    request.output.token_ids = True
    for event in model.Generate(request, timeout=LIMIT_SECONDS):
        if event.HasField("tokens"):
            break
    else:
        raise RuntimeError("the server gave no token")


def memory_of(pid):
    """The lines of the process's status in bytes, and its anonymous memory in large pages."""
    def bytes_by_name(name):
        lines = pathlib.Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8").splitlines()
        words = (line.split() for line in lines)
        return {word[0].rstrip(":"): int(word[1]) * 1024
                for word in words if len(word) == 3 and word[2] == "kB"}
    status, rollup = bytes_by_name("status"), bytes_by_name("smaps_rollup")
    return {"peak_bytes": status["VmHWM"], "resident_bytes": status["VmRSS"],
            "file_bytes": status["RssFile"], "huge_bytes": rollup["AnonHugePages"]}


def await_hash(stubs, model, begin):
    """Returns when ModelInfo names the hash of the files; at once where there are none."""
    while True:
        info = model.ModelInfo(stubs.model_info.ModelInfoRequest(), timeout=LIMIT_SECONDS)
        if info.identity.weights_sha256 or time.monotonic() > begin + LIMIT_SECONDS:
            return
        time.sleep(0.01)


def start_once(stubs, program, flags, from_files):
    """One start: seconds, memory, and what ModelInfo says."""
    server = ServerProcess(program, *flags, start_seconds=LIMIT_SECONDS)
    with contextlib.closing(server):
        begin = time.monotonic()
        try:
            server.start()
            return measure(stubs, server, begin, from_files)
        except (RuntimeError, stubs.grpc.RpcError) as error:
            sys.exit(f"start_time.py: {error}\n{server.log()}")


def measure(stubs, server, begin, from_files):
    with stubs.grpc.insecure_channel(server.target) as channel:
        await_serving(stubs, channel, begin)
        serving = time.monotonic() - begin
        model = stubs.model_stub(channel)
        info = model.ModelInfo(stubs.model_info.ModelInfoRequest(), timeout=LIMIT_SECONDS)
        asked = time.monotonic()
        first_token(stubs, model, info.capabilities.tokenizer)
        token = serving + time.monotonic() - asked
        result = {"serving_s": serving, "first_token_s": token, **memory_of(server.pid)}
        if from_files:
            await_hash(stubs, model, begin)
        result["settled"] = memory_of(server.pid)
    weights = sum(part.bytes for part in info.memory.weights)
    kv = (info.memory.kv_bytes_per_token * info.memory.kv_block_tokens
          * info.memory.kv_blocks_total)
    result |= {"weight_bytes": weights, "kv_bytes": kv, "device": info.identity.device_name,
               "peak_ratio": result["peak_bytes"] / weights}
    return result


def files_of(model):
    """All files of a model directory, or of the model in a GGUF file, the first of them or the only
    one."""
    if not model.is_file():
        return sorted(path for path in model.iterdir() if path.is_file())
    parts = re.fullmatch(r"(.*)-00001-of-(\d+)\.gguf", model.name)
    if parts is None:
        return [model]
    return sorted(path for path in model.parent.iterdir() if path.name.startswith(parts[1])
                  and path.name.endswith(f"-of-{parts[2]}.gguf"))


def warm_page_cache(model):
    for path in files_of(model):
        with open(path, "rb") as file:
            while file.read(16 * MIB):
                pass


def model_flags(arguments, temporary):
    """How the server finds its model."""
    if arguments.preset:
        return [f"--preset={arguments.preset}", "--random_weights=0"]
    folder = arguments.model
    if folder is None:
        folder = (arguments.cache or pathlib.Path(temporary)) / arguments.shape
        random_checkpoint.write_model(folder, arguments.shape, arguments.tokenizer or True)
    warm_page_cache(folder)
    return [f"--model={folder}"]


def table(results):
    def row(name, values, form):
        middle = statistics.median(values)
        return (f"{name:<34}{form.format(middle):>10}   "
                + " ".join(form.format(value) for value in values))

    def column(name):
        return [result[name] for result in results]

    def mib(values):
        return [value / MIB for value in values]
    settled = [result["settled"] for result in results]
    return "\n".join([
        f"{'':<34}{'median':>10}   all starts",
        row("exec to SERVING, s", column("serving_s"), "{:.3f}"),
        row("exec to first token, s", column("first_token_s"), "{:.3f}"),
        row("weights, MiB", mib(column("weight_bytes")), "{:.0f}"),
        row("KV cache, MiB (touched as used)", mib(column("kv_bytes")), "{:.0f}"),
        row("peak until first token, MiB", mib(column("peak_bytes")), "{:.0f}"),
        row("peak / weights", column("peak_ratio"), "{:.3f}"),
        row("resident after first token, MiB", mib(column("resident_bytes")), "{:.0f}"),
        row("  of these in large pages, MiB", mib(column("huge_bytes")), "{:.0f}"),
        row("peak until hash known, MiB", mib(s["peak_bytes"] for s in settled), "{:.0f}"),
        row("resident then, MiB", mib(s["resident_bytes"] for s in settled), "{:.0f}")])


def main():
    arguments = parse_arguments()
    stubs = import_stubs(arguments.build)
    server = scenario.server_of(arguments)
    with tempfile.TemporaryDirectory(prefix="tlm-start-model-") as temporary:
        flags = [*model_flags(arguments, temporary), *arguments.server_flags]
        results = [start_once(stubs, server, flags, not arguments.preset)
                   for _ in range(arguments.starts)]
    print(f"{results[0]['device']}, {os.cpu_count()} processors, {platform.release()}")
    print(table(results))
    if arguments.json is not None:
        document = {"server_flags": flags, "device": results[0]["device"],
                    "kernel": platform.release(), "processors": os.cpu_count(), "starts": results}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
