#!/usr/bin/env bash
# Builds check_kernels for ARM64 in the folder $1 and runs it. Exits with 77 (skipped) where no
# compiler for ARM64 is there, or nothing that runs its programs.
set -euo pipefail
sources=$(cd "$(dirname "$0")/../../../../../.." && pwd)
folder=$1
if [ "$(uname -m)" = aarch64 ]; then
  compiler=${CXX:-c++}
  emulator=
else
  compiler=aarch64-linux-gnu-g++
  emulator=qemu-aarch64
fi
for tool in "$compiler" $emulator; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: no $tool (Debian packages g++-aarch64-linux-gnu and qemu-user)"
    exit 77
  fi
done
mkdir -p "$folder"
"$compiler" -std=c++20 -O2 -fno-math-errno -ffp-contract=off -Wall -Wextra -Wno-unused-parameter \
  -Werror -static -I"$sources" -o "$folder/check_kernels" \
  "$sources/tests/unit/model/ops/cpu/arm64/check_kernels.cc" \
  "$sources/model/ops/cpu/kernels/portable.cc" "$sources/model/sampling/scan_portable.cc"
$emulator "$folder/check_kernels"
