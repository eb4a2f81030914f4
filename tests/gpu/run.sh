#!/usr/bin/env bash
# Everything that needs a GPU, in minutes: correctness, then speed as fractions of what the card
# can do, then peers in the same run.
#
#   tests/gpu/run.sh [--bin DIR] [--out DIR] [--python PYTHON] [--only STAGE[,STAGE...]]
#
# --bin     what was built: a bundle's folder (tests/gpu/bundle.sh makes one), or a build folder;
#           default: the bundle this script lies in, else build/gpu is built from source, without
#           gRPC where its packages are missing
# --out     logs, JSON and the summary; default gpu-results
# --python  with torch and transformers, for the peers and parity; default python3
#
# Every stage prints its table even when others fail; the last lines are the summary. Exits with 1
# when a stage of correctness failed, 77 when there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }

bin='' out=gpu-results python=python3 only=''
while [ $# -gt 0 ]; do
  case "$1" in
    --bin) [ $# -ge 2 ] || usage; bin=$2; shift 2 ;;
    --out) [ $# -ge 2 ] || usage; out=$2; shift 2 ;;
    --python) [ $# -ge 2 ] || usage; python=$2; shift 2 ;;
    --only) [ $# -ge 2 ] || usage; only=,$2,; shift 2 ;;
    *) usage ;;
  esac
done

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "tests/gpu/run.sh: skipped, nvidia-smi finds no GPU"
  exit 77
fi
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
started=$SECONDS

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

# stage NAME SECONDS PROGRAM ARGUMENT...: runs it under a time limit, shows the end of its output,
# notes how it went.
stage() {
  local name=$1 limit=$2 path status begin=$SECONDS
  shift 2
  case "$only" in ''|*,$name,*) ;; *) return ;; esac
  printf '\n=== %s\n' "$name"
  if [ "$1" = "$python" ]; then path=$1; else path=$(program "$1") || path=''; fi
  if [ -z "$path" ]; then
    echo "skipped: $1 is not here"
    printf '%s\tskipped\t0\n' "$name" >>"$out/stages.tsv"
    return
  fi
  shift
  timeout --kill-after=5 "$limit" "$path" "$@" >"$out/$name.log" 2>&1
  status=$?
  tail -n 45 "$out/$name.log"
  case $status in
    0) status=passed ;;
    77) status=skipped ;;
    124|137) status=timeout ;;
    *) status=failed ;;
  esac
  echo "--- $name: $status after $((SECONDS - begin)) s"
  printf '%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - begin))" >>"$out/stages.tsv"
}

: >"$out/stages.tsv"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,memory.total --format=csv,noheader |
  tee "$out/gpu.txt"
export TLM_BIN_DIR=$bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
model=$out/qwen3-8b

# Denominators, and whether products agree bit for bit whoever computes them.
stage ceilings 60 ceilings "$out/ceilings.json"
stage canon 60 mma_canon --json="$out/canon.json"

# Correctness.
stage ops 60 ops_test --gtest_filter='*Cuda*' --gtest_brief=1
stage attention 60 attention_invariance_test --gtest_brief=1
stage determinism 90 determinism_cuda_test --gtest_brief=1
stage memcheck 60 "$python" "$here/sanitize.py" memcheck
stage racecheck 60 "$python" "$here/sanitize.py" racecheck
stage parity 90 "$python" "$here/../peers/parity/compare.py" --backend=cuda --rounds=1 qwen3 llama gpt2

# Speed.
stage kernels 60 ops_bench --backend=cuda --preset=qwen3-8b --rows=1,8,16,64,256,2048 \
  --json="$out/kernels.json"
stage engine-0.6b 40 engine_bench --backend=cuda --preset=qwen3-0.6b --prompts=1024,8192 \
  --sequences=1,64,256 --depths=1024 --decode=64 --repetitions=3 --json="$out/engine-0.6b.json"
stage engine-1.7b 40 engine_bench --backend=cuda --preset=qwen3-1.7b --prompts=1024 \
  --sequences=1 --depths=1024 --decode=64 --repetitions=3 --json="$out/engine-1.7b.json"
stage engine-8b 120 engine_bench --backend=cuda --preset=qwen3-8b --prompts=1024,8192 \
  --sequences=1,64,256 --depths=1024 --decode=64 --repetitions=3 --requests=256 \
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
! grep -qE '^(ops|attention|determinism|memcheck|racecheck|parity)	(failed|timeout)' "$out/stages.tsv"
