#!/usr/bin/env bash
# Builds the fuzz targets with libFuzzer and runs each for a while.
#
#   tests/fuzz/run.sh [--seconds N] [TARGET...]     N seconds each (600), all targets or these
#   tests/fuzz/run.sh --minimise [TARGET...]        leaves in found/ the fewest inputs that cover
#                                                   what all of found/ covers
#
# Needs clang with its run-time libraries (Debian: clang, libclang-rt-dev). What is found is kept in
# build/fuzz/tests/fuzz/TARGET/found and is the beginning of the next run; an input that makes a
# target fail is left beside it, and the status is 1. One target runs at a time. pack.sh adds finds
# to the corpora.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() { sed -n '4,12s/^# \{0,1\}//p' tests/fuzz/run.sh >&2; exit 2; }

seconds=600
minimise=false
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) [ $# -ge 2 ] || usage; seconds=$2; shift 2 ;;
    --seconds=*) seconds=${1#*=}; shift ;;
    --minimise) minimise=true; shift ;;
    -*) usage ;;
    *) targets+=("$1"); shift ;;
  esac
done
case "$seconds" in ''|*[!0-9]*) usage ;; esac

command -v clang++ >/dev/null || { echo "run.sh: clang++ is needed (Debian: clang, libclang-rt-dev)" >&2; exit 1; }
deploy/install_packages.sh test
deploy/build.sh fuzz
work=$PWD/build/fuzz/tests/fuzz
if [ "${#targets[@]}" -eq 0 ]; then
  for options in "$work"/*/options; do targets+=("$(basename "$(dirname "$options")")"); done
fi

# The library stops at a time limit only between inputs: -timeout ends one that does not end.
common=(-timeout=20 -rss_limit_mb=2048 -print_final_stats=1)
failed=()
for target in "${targets[@]}"; do
  cd "$work/$target" || exit 2
  program=$work/../fuzz_$target
  read -ra options <options
  IFS=';' read -ra corpora <corpora
  if $minimise; then
    rm -rf fewest && mkdir fewest
    "$program" "${options[@]}" "${common[@]}" -merge=1 -set_cover_merge=1 fewest found "${corpora[@]}"
    rm -rf found && mv fewest found
    continue
  fi
  echo "== $target, $seconds s"
  "$program" "${options[@]}" "${common[@]}" -max_total_time="$seconds" found "${corpora[@]}" \
    >log 2>&1 || failed+=("$target")
  grep -E '^stat::(number_of_executed_units|peak_rss_mb)|^SUMMARY|Test unit written' log || true
  tail -n 1 log
done
[ "${#failed[@]}" -eq 0 ] && exit 0
echo "failed: ${failed[*]} (logs in $work/TARGET/log)"
exit 1
