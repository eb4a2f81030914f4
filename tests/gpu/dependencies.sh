#!/usr/bin/env bash
# Collects the libraries that tests/gpu/build_from_source.sh needs, from this machine's packages, for
# a machine that has a CUDA toolkit and a compiler only: headers, libraries, CMake files.
#
#   tests/gpu/dependencies.sh [DIR]      default tests/gpu/dependencies, which git ignores
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-tests/gpu/dependencies}
packages=(libabsl-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libssl-dev libpcre2-dev
          libutf8proc-dev prometheus-cpp-dev libcivetweb-dev libsystemd-dev libgtest-dev
          libgmock-dev libbenchmark-dev)
rm -rf "$out"
mkdir -p "$out"
for package in "${packages[@]}"; do
  dpkg-query -L "$package"
done | grep -E '^/usr/(include|lib|src|share)/' |
  grep -vE '^/usr/share/(doc|lintian|man)/|/lib(crypto|ssl|pcre2-(16|32|posix))\.a$|/pkgconfig/' |
  sort -u | while read -r file; do
    if [ -d "$file" ] && [ ! -L "$file" ]; then continue; fi
    printf '%s\n' "$file"
    # A library's links lead to files of other packages.
    while [ -L "$file" ]; do
      file=$(realpath -s "$(dirname "$file")/$(readlink "$file")")
      printf '%s\n' "$file"
    done
  done | sort -u | sed 's#^/##' | tar -C / -cf - --files-from=- | tar -C "$out" -xf -
echo "$out: $(($(du -sb "$out" | cut -f1) >> 20)) MiB"
