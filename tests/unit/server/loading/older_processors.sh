#!/usr/bin/env bash
# Runs the tests of model_loader_test.cc in program $1 on processors without AVX-512 and without AVX, which QEMU
# plays: an instruction they do not have, anywhere outside the kernels made for it, ends it. Exits
# with 77 (skipped) where there is no QEMU.
set -euo pipefail
if ! command -v qemu-x86_64 >/dev/null; then
  echo "skipped: no qemu-x86_64 (Debian package qemu-user)"
  exit 77
fi
for processor in Nehalem Haswell; do
  echo "== $processor"
  qemu-x86_64 -cpu "$processor" "$1" --file=model_loader_test.cc 2>&1 | tee "/dev/stderr" | grep -q '  PASSED  '
done
