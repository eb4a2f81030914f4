#!/usr/bin/env bash
# Configures and builds a preset of CMakePresets.json: deploy/build.sh [PRESET] [TARGET...]
#
# Further CMake options come from the environment variable TLM_CMAKE_OPTIONS.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # the options are words
cmake --preset "$preset" ${TLM_CMAKE_OPTIONS:-} >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
targets=()
if [ $# -gt 0 ]; then targets=(--target "$@"); fi
cmake --build --preset "$preset" "${targets[@]}"
