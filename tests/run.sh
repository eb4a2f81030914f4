#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every CPU test through CTest.
#
#   tests/run.sh [--profile release|asan|tsan|fuzz] [--build-only] [-L LABEL] [-R NAME] [-j JOBS]
#
# -L and -R select tests as CTest's options of the same name do, -LE and -E leave some out; labels:
# unit, golden, integration, fleet, layers, cuda, benchmark, fuzz, deploy, package; and, skipped
# unless asked for by their environment variables, image (deploy), peers (tests/peers) and soak
# (tests/soak). The tsan profile builds and runs the layers without gRPC only, the fuzz profile the
# fuzz targets under libFuzzer, some seconds each; it needs clang (tests/fuzz).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }

profile=release
build_only=false
jobs=$(nproc)
filters=()
while [ $# -gt 0 ]; do
  case "$1" in
    --profile) [ $# -ge 2 ] || usage; profile=$2; shift 2 ;;
    --profile=*) profile=${1#*=}; shift ;;
    --build-only) build_only=true; shift ;;
    -L|-R|-LE|-E) [ $# -ge 2 ] || usage; filters+=("$1" "$2"); shift 2 ;;
    -j) [ $# -ge 2 ] || usage; jobs=$2; shift 2 ;;
    *) usage ;;
  esac
done
case "$profile" in
  release|asan|tsan) ;;
  fuzz)
    command -v clang++ >/dev/null ||
      { echo "run.sh: clang++ is needed (Debian: clang, libclang-rt-dev)" >&2; exit 1; }
    filters+=(-L fuzz) ;;
  *) usage ;;
esac

deploy/install_packages.sh test
# Objects of an earlier build are found again, in whatever folder it was.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
# Warnings are errors where the compiler is known: in continuous integration.
TLM_CMAKE_OPTIONS="-DTLM_TESTS=ON -DTLM_CUDA=AUTO -DTLM_WERROR=${CI:+ON} -DCMAKE_CXX_COMPILER_LAUNCHER=ccache" \
  deploy/build.sh "$profile"
$build_only && exit 0

# gRPC's client side keeps one name-resolution object for the life of the process.
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0"
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
status=0
ctest --test-dir "build/$profile" --output-on-failure --no-tests=error -j "$jobs" "${filters[@]}" ||
  status=$?
log=build/$profile/Testing/Temporary/LastTest.log
printf 'slowest tests, in seconds:\n'
sed -nE 's/^[0-9]+\/[0-9]+ Testing: /name /p; s/^Test time = +([0-9.]+) sec/time \1/p' "$log" |
  awk '$1 == "name" { name = $2 } $1 == "time" { printf "%9.2f  %s\n", $2, name }' |
  sort -rn | head -n 15
# What did not run must not look like what passed.
skipped=$(sed -n 's/^\[  SKIPPED \] \([^ ]*\) (.*/  \1/p' \
  "$log" | sort -u)
if [ -n "$skipped" ]; then
  printf 'skipped for want of files beside the checkout, a backend or a package:\n%s\n' "$skipped"
fi
exit "$status"
