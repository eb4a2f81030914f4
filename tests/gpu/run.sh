#!/usr/bin/env bash
# Everything that needs a GPU, in minutes: correctness, then speed as fractions of what the card
# can do, then peers in the same run.
#
#   tests/gpu/run.sh [--bin DIR] [--out DIR] [--python PYTHON] [--only STAGE[,STAGE...]]
#                    [--seconds N]
#
# --bin     what was built: a bundle's folder (tests/gpu/bundle.sh makes one), or a build folder;
#           default: the bundle this script lies in, else build/gpu is built from source, without
#           gRPC where its packages are missing
# --out     logs, JSON and the summary; default gpu-results
# --python  with torch and transformers, for the peers and parity; default python3
# --seconds all stages together, the build apart; those that would begin later are left out, which
#           are the peers' first; default 480
#
# Every stage prints its table even when others fail; the last lines are the summary. Exits with 1
# when a stage of correctness failed or ran into its time limit, 77 when there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,17p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }

bin='' out=gpu-results python=python3 only='' budget=480
while [ $# -gt 0 ]; do
  case "$1" in
    --bin) [ $# -ge 2 ] || usage; bin=$2; shift 2 ;;
    --out) [ $# -ge 2 ] || usage; out=$2; shift 2 ;;
    --python) [ $# -ge 2 ] || usage; python=$2; shift 2 ;;
    --only) [ $# -ge 2 ] || usage; only=,$2,; shift 2 ;;
    --seconds) [ $# -ge 2 ] || usage; budget=$2; shift 2 ;;
    *) usage ;;
  esac
done

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "tests/gpu/run.sh: skipped, nvidia-smi finds no GPU"
  exit 77
fi
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)

if [ -z "$bin" ] && [ -e "$here/../../bin/ceilings" ]; then bin=$here/../../bin; fi
if [ -z "$bin" ]; then
  bin=$here/../../build/gpu
  "$here/build_from_source.sh" "$bin" >"$out/build.log" 2>&1 ||
    { tail -n 40 "$out/build.log"; echo "tests/gpu/run.sh: the build failed"; exit 1; }
fi
bin=$(cd "$bin" && pwd)
# The bundle's own libraries; CUDA's come from the machine.
[ -e "$bin/../run.sh" ] && export LD_LIBRARY_PATH=$bin/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Where a program lies: a bundle has all in one folder, a build has several.
program() {
  local folder
  for folder in "$bin" "$bin/bin" "$bin/tests" "$bin/benchmarks"; do
    [ -x "$folder/$1" ] && { echo "$folder/$1"; return; }
  done
  return 1
}

# The module looks for cuBLASLt, which toolkits and Python packages keep in places of their own.
if ! ldconfig -p 2>/dev/null | grep -q libcublasLt.so.13; then
  for library in /usr/local/cuda*/lib64/libcublasLt.so.13 /usr/local/cuda*/targets/*/lib/libcublasLt.so.13 \
      $("$python" -c 'import site, sys; print(*site.getsitepackages(), sep="\n")' 2>/dev/null |
        sed 's#$#/nvidia/*/lib/libcublasLt.so.13#'); do
    [ -e "$library" ] || continue
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$library")
    export LD_LIBRARY_PATH
    echo "cuBLASLt: $library"
    break
  done
fi
started=$SECONDS

# stage NAME SECONDS PROGRAM ARGUMENT...: runs it under a time limit, shows the end of its output,
# notes how it went. A GPU that a program does not find is a failure: nvidia-smi found it.
stage() {
  local name=$1 limit=$2 path status begin=$SECONDS
  shift 2
  case "$only" in ''|*,$name,*) ;; *) return ;; esac
  printf '\n=== %s\n' "$name"
  if [ "$1" = "$python" ]; then path=$1; else path=$(program "$1") || path=''; fi
  if [ -z "$path" ]; then
    echo "skipped: $1 is not here"
    printf '%s\tskipped\t0\t%s\n' "$name" "$kind" >>"$out/stages.tsv"
    return
  fi
  shift
  local left=$((budget - (SECONDS - started)))
  if [ "$left" -lt 15 ]; then
    echo "skipped: no time is left"
    printf '%s\tskipped\t0\t%s\n' "$name" "$kind" >>"$out/stages.tsv"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  timeout --kill-after=5 "$limit" "$path" "$@" >"$out/$name.log" 2>&1
  status=$?
  tail -n 45 "$out/$name.log"
  if grep -qE '^\[  PASSED  \] 0 tests|skipped[:,] (there is no GPU|the GPU is)' "$out/$name.log"; then
    echo "nothing was tested"
    status=1
  fi
  case $status in
    0) status=passed ;;
    77) status=skipped ;;
    124|137) status=timeout ;;
    *) status=failed ;;
  esac
  echo "--- $name: $status after $((SECONDS - begin)) s"
  printf '%s\t%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - begin))" "$kind" >>"$out/stages.tsv"
}

: >"$out/stages.tsv"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,memory.total --format=csv,noheader |
  tee "$out/gpu.txt"
export TLM_BIN_DIR=$bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
model=$out/qwen3-8b

kind=speed
# Denominators.
stage ceilings 60 ceilings "$out/ceilings.json"

kind=correctness
# Whether products agree bit for bit over all methods.
stage canon 60 mma_canon --json="$out/canon.json"
# Kernel by kernel, each group in a process of its own: a fault leaves a device useless to its
# process. Then operations, then the engine.
stage kernels-rows 30 cuda_kernels_test --gtest_brief=1 \
  --gtest_filter='RowKernelsTest.*:EmbedKernelTest.*:PrepareAttentionKernelTest.*'
stage kernels-gemm 60 cuda_kernels_test --gtest_filter='Gemm*' --gtest_brief=1
stage kernels-attention 90 cuda_kernels_test --gtest_brief=1 \
  --gtest_filter='AttentionKernelTest.*:*/AttentionInvarianceTest.*'
stage kernels-sample 60 cuda_kernels_test --gtest_brief=1 \
  --gtest_filter='*/SampleTest.*:*/LargeVocabularyTest.*:SampleEdgesTest.*'
stage kernels-device 30 cuda_kernels_test --gtest_brief=1 \
  --gtest_filter='CudaDeviceTest.*:*/BatchRingTest.*:WeightUploadTest.*'
for name in ops row_ops attention batch; do
  stage "ops-$name" 60 "unit_model_ops_${name}_test" --gtest_filter='*/cuda_*' --gtest_brief=1
done
stage determinism 90 golden_determinism_cuda_test --gtest_brief=1
stage memcheck 60 "$python" "$here/sanitize.py" memcheck
stage racecheck 60 "$python" "$here/sanitize.py" racecheck
stage parity 90 "$python" "$here/../peers/parity/compare.py" --backend=cuda --rounds=1 qwen3 llama gpt2

kind=speed
stage kernels 60 ops_bench --backend=cuda --preset=qwen3-8b --rows=1,8,16,64,256,2048 \
  --json="$out/kernels.json"
stage engine-0.6b 40 engine_bench --backend=cuda --preset=qwen3-0.6b --prompts=1024,8192 \
  --sequences=1,64,256 --depths=1024 --decode=64 --long_depth=0 --repetitions=3 \
  --json="$out/engine-0.6b.json"
stage engine-1.7b 40 engine_bench --backend=cuda --preset=qwen3-1.7b --prompts=1024 \
  --sequences=1 --depths=1024 --decode=64 --long_depth=0 --repetitions=3 \
  --json="$out/engine-1.7b.json"
stage engine-8b 120 engine_bench --backend=cuda --preset=qwen3-8b --prompts=1024,8192 \
  --sequences=1,64,256 --depths=1024 --decode=64 --long_depth=0 --repetitions=3 --requests=256 \
  --request_prompt=1024 --request_output=1024 --json="$out/engine-8b.json"
stage rpc 60 "$python" "$here/rpc_cost.py" --json="$out/rpc.json"
stage start 90 "$python" "$here/start_time.py" --directory="$model" --json="$out/start.json"

# Others, on the same card.
stage peer-graph 60 "$python" "$here/peers/torch_graph.py" --json="$out/peer-graph.json"
stage peer-static 90 "$python" "$here/peers/hf_static.py" --batch 1 --json="$out/peer-static.json"
stage peer-continuous 60 "$python" "$here/peers/hf_continuous.py" --json="$out/peer-continuous.json"

rm -rf "$model"
printf '\n=== summary after %s s\n' "$((SECONDS - started))"
"$python" "$here/summary.py" "$out" | tee "$out/summary.txt"
! grep -qE '	(failed|timeout)	[0-9]+	correctness$' "$out/stages.tsv"
