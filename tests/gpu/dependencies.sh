#!/usr/bin/env bash
# Collects the libraries that tests/gpu/build_from_source.sh needs, from this machine's packages, for
# a machine that has a CUDA toolkit and a compiler only: headers, static libraries, CMake files.
#
#   tests/gpu/dependencies.sh [DIR]      default tests/gpu/dependencies, which git ignores
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-tests/gpu/dependencies}
packages=(libabsl-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libssl-dev libpcre2-dev
          libutf8proc-dev libgtest-dev libgmock-dev libbenchmark-dev)
rm -rf "$out"
mkdir -p "$out"
for package in "${packages[@]}"; do
  dpkg-query -L "$package" 2>/dev/null || echo "dependencies.sh: $package is not installed" >&2
done | grep -E '^/usr/(include|lib|src|share)/' | grep -vE '^/usr/share/(doc|lintian|man)/' |
  sort -u | while read -r file; do
    if [ -f "$file" ]; then printf '%s\n' "$file"; fi
  done >"$out/files"
tar -C / --dereference --ignore-failed-read -cf - --files-from=<(sed 's#^/##' "$out/files") |
  tar -C "$out" -xf -
rm "$out/files"
# Programs look shared libraries up by the names these call themselves.
find "$out" -name '*.so' | while read -r library; do
  soname=$(readelf -d "$library" 2>/dev/null | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
  [ -z "$soname" ] || [ -e "$(dirname "$library")/$soname" ] ||
    cp "$library" "$(dirname "$library")/$soname"
done
echo "$out: $(($(du -sb "$out" | cut -f1) >> 20)) MiB"
