"""The stages of a run: what each runs, and how long it may take."""

import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Stage:
    name: str
    seconds: int
    # Of those that were built; "python"; "switches": engine_bench with optimisations off, with each
    # of `arguments` (narrow.py).
    program: str
    arguments: list
    kind: str = "correctness"
    packages: tuple = ()  # that a "python" stage imports and not every machine has

    @property
    def is_gtest(self):
        return any(argument.startswith("--gtest_filter=") for argument in self.arguments)


def gtest(name, seconds, program, tests):
    return Stage(name, seconds, program, [f"--gtest_filter={tests}"])


def quick(out):
    """90 seconds: does it run at all, and where does it break."""
    kernels = "cuda_kernels_test"
    return [
        Stage("ceilings", 25, "ceilings", [f"{out}/ceilings.json"], "speed"),
        Stage("canon-mma", 15, "mma_canon", ["--part=mma", f"--json={out}/canon-mma.json"]),
        gtest("quick-device", 10, kernels, "CudaDeviceTest.TellsWhatItIs:CudaDeviceTest.Replays*"),
        gtest("quick-upload", 10, kernels, "WeightUploadTest.BringsManyPiecesToTheirPlaces"),
        gtest("quick-rows", 10, kernels, "RowKernelsTest.EveryKernelWaitsForTheOneBefore"),
        gtest("quick-gemm", 10, kernels, "GemmTest.EveryShapeOfTileGivesTheSameBits"),
        gtest("quick-blocks", 10, kernels, "BlockProductsTest.RowCountsDoNotMatter"),
        gtest("quick-attention", 10, kernels, "AttentionKernelTest.ChunksSplitsAndGridsGiveTheSameBits:"
              "AttentionKernelTest.EightBitsHaveTheBitsOfTheirValues"),
        gtest("quick-sample", 10, kernels, "SampleEdgesTest.BitsDoNotDependOnTheOtherJobs"),
        gtest("quick-ring", 10, kernels, "*/BatchRingTest.TwoBatchesFly*"),
        Stage("switches", 60, "switches", [])]


def everything(out, scratch):
    kernels = "cuda_kernels_test"

    def engine(name, seconds, preset, *flags):
        return Stage(name, seconds, "engine_bench",
                     ["--backend=cuda", f"--preset={preset}", "--long_depth=0", "--repetitions=3",
                      *flags, f"--json={out}/{name}.json"], "speed")

    def script(name, seconds, path, *flags, kind="speed", packages=()):
        return Stage(name, seconds, "python", [str(HERE / path), *flags], kind, packages)
    torch, transformers = ("torch",), ("numpy", "torch", "transformers")
    decode = ("--depths=1024", "--decode=64")
    requests = ("--prompts=", "--decode=0", "--requests=256", "--request_prompt=1024",
                "--request_output=1024")
    long = ("--prompts=", "--sequences=1", "--depths=8192,32768", "--decode=32")
    int8, int4, fp8 = "--weights=int8", "--weights=int4", "--kv_cache_dtype=fp8"

    def operations(name, *flags):
        return Stage(name, 60, "ops_bench", ["--backend=cuda", "--preset=qwen3-8b", *flags,
                                             f"--json={out}/{name}.json"], "speed")
    return [
        # Denominators.
        Stage("ceilings", 60, "ceilings", [f"{out}/ceilings.json"], "speed"),
        Stage("microbench", 30, "microbench", [f"{out}/microbench.json"], "speed"),
        # Whether products agree bit for bit over all methods. A fault leaves a device useless to
        # its process, so each part has its own, as each group of kernels has.
        *(Stage(f"canon-{part}", seconds, "mma_canon",
                [f"--part={part}", f"--json={out}/canon-{part}.json"])
          for part, seconds in (("mma", 20), ("own", 45), ("library", 45), ("blocks", 60))),
        gtest("kernels-rows", 30, kernels,
              "RowKernelsTest.*:SwiGluTest.*:EmbedKernelTest.*:PrepareAttentionKernelTest.*"),
        gtest("kernels-gemm", 60, kernels, "Gemm*:BlockProductsTest.*"),
        gtest("kernels-attention", 90, kernels,
              "AttentionKernelTest.*:*/AttentionFoldTest.*:*/AttentionInvarianceTest.*"),
        gtest("kernels-sample", 60, kernels,
              "*/SampleTest.*:*/LargeVocabularyTest.*:SampleEdgesTest.*"),
        gtest("kernels-device", 30, kernels, "CudaDeviceTest.*:*/BatchRingTest.*:"
              "WeightUploadTest.*:ArithmeticCheckTest.*"),
        *(gtest(f"ops-{name}", 60, f"unit_model_ops_{name}_test", "*/cuda_*")
          for name in ("ops", "row_ops", "attention", "batch")),
        gtest("determinism", 180, "golden_determinism_cuda_test", "*"),
        Stage("switches-blocks", 60, "switches", [int8, int4, fp8]),
        script("server", 60, "server_check.py", kind="correctness"),
        script("losses", 60, "losses.py", f"--json={out}/losses.json", kind="correctness"),
        script("parity", 120, "../peers/parity/compare.py", "--backend=cuda", "--rounds=1", "qwen3",
               "llama", "gpt2", kind="correctness", packages=transformers),
        # The slowest.
        *(script(tool, 120, "sanitize.py", tool, f"--scratch={scratch}", kind="correctness")
          for tool in ("memcheck", "racecheck")),
        operations("kernels", "--rows=1,8,16,64,256,2048"),
        operations("kernels-int8", int8, "--head=false", "--rows=1,8,16,32,33,64,256"),
        operations("kernels-fp8", fp8, "--head=false", "--rows=1,8,16,32,33,64,256"),
        engine("engine-0.6b", 40, "qwen3-0.6b", "--prompts=1024,8192", "--sequences=1,64,256",
               *decode),
        engine("engine-1.7b", 40, "qwen3-1.7b", "--prompts=1024", "--sequences=1", *decode),
        engine("engine-8b", 90, "qwen3-8b", "--prompts=1024,8192", "--sequences=1,16,64,256",
               *decode),
        engine("engine-8b-fp8", 90, "qwen3-8b", fp8, "--prompts=8192", "--sequences=1,64,256",
               *decode),
        engine("engine-8b-requests", 120, "qwen3-8b", *requests),
        engine("engine-8b-fp8-requests", 120, "qwen3-8b", fp8, *requests),
        engine("engine-8b-int8", 90, "qwen3-8b", int8, "--prompts=1024,8192",
               "--sequences=1,16,64", *decode),
        engine("engine-8b-int4", 90, "qwen3-8b", int4, "--prompts=1024", "--sequences=1,16,64",
               *decode),
        engine("engine-8b-long", 60, "qwen3-8b", *long),
        engine("engine-8b-long-fp8", 60, "qwen3-8b", fp8, *long),
        script("rpc", 90, "rpc_cost.py", f"--json={out}/rpc.json"),
        script("serve-8b", 90, "serve_load.py", f"--json={out}/serve-8b.json"),
        # Others, on the same card.
        script("peer-graph", 60, "peers/torch_graph.py", f"--json={out}/peer-graph.json",
               packages=torch),
        script("peer-static", 90, "peers/hf_static.py", "--batch", "1",
               f"--json={out}/peer-static.json", packages=transformers),
        script("peer-continuous", 120, "peers/hf_continuous.py",
               f"--json={out}/peer-continuous.json", packages=transformers),
        # Near the end of a card's memory.
        engine("engine-14b-int4-fp8", 120, "qwen3-14b", int4, fp8, "--prompts=1024",
               "--sequences=1,64", *decode),
        # The last, since it writes 16 GB first.
        script("start", 120, "start_time.py", f"--directory={scratch}/qwen3-8b",
               f"--json={out}/start.json")]
