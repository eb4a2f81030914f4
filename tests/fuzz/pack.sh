#!/usr/bin/env bash
# Adds inputs to the archive of a target, each by the name found-HASH of its content:
#
#   tests/fuzz/pack.sh TARGET FILE...
#
# The same inputs give the same archive: sorted, without times or owners.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
archive=$(cd "$(dirname "$0")" && pwd)/corpus/$1.tar
shift

inputs=$(mktemp -d)
trap 'rm -rf "$inputs"' EXIT
if [ -f "$archive" ]; then tar -xf "$archive" -C "$inputs"; fi
for file in "$@"; do
  hash=$(sha1sum <"$file")
  cp "$file" "$inputs/found-${hash:0:12}"
done
cd "$inputs"
printf '%s\0' * | LC_ALL=C sort -z |
  tar --format=ustar --blocking-factor=1 --mtime=@0 --mode=0644 --owner=0 --group=0 --numeric-owner \
    --null --files-from=- -cf "$archive"
