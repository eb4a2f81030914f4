#!/usr/bin/env bash
# Compiles as told and keeps what the checks of tests/gpu/static read, at no further cost:
#
#   keep_device_code.sh NVCC ARGUMENTS... -o DIR/X.cu.o
#
# leaves in DIR/X.cu.device ptxas.txt, the report that -Xptxas=-v asks for, *.ptx, one file for each
# virtual architecture, and *.cubin, one for each real one. Of the report only what is no plain
# information is shown.
set -euo pipefail

object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
case "$object" in
  *.cu.o) ;;
  *) exec "$@" ;;
esac

kept=${object%.o}.device
rm -rf "$kept"
mkdir -p "$kept/all"
if ! "$@" --keep --keep-dir "$kept/all" 2>"$kept/report"; then
  cat "$kept/report" >&2
  rm -rf "$kept"
  exit 1
fi
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame' "$kept/report" >&2 || true
mv "$kept"/all/*.ptx "$kept"/all/*.cubin "$kept/"
rm -rf "$kept/all"
mv "$kept/report" "$kept/ptxas.txt"
