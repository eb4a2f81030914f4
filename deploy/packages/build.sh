#!/usr/bin/env bash
# Builds the Debian packages, and the wheel of the Python client.
#
#   deploy/packages/build.sh [--of=BUILD] [FOLDER]
#
# FOLDER (build/packages) then holds tlm-server_*.deb, tlm-dev_*.deb, tlm_client-*.whl and, if a
# CUDA toolkit is found, tlm-server-cuda_*.deb. --of packs a finished build as it is. The packages
# depend on the libraries of the distribution that they are built on.
#
# Environment: DEBEMAIL and DEBFULLNAME, the maintainer; SOURCE_DATE_EPOCH, the time of all files,
# by default that of the last commit; TLM_CMAKE_OPTIONS, further CMake options. Equal sources,
# compilers and times give equal packages.
set -euo pipefail
umask 022
root=$(cd "$(dirname "$0")/../.." && pwd)

build=
case "${1:-}" in
  --of=*) build=$(cd "${1#--of=}" && pwd); shift ;;
  -*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
out=${1:-$root/build/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)
fi
export SOURCE_DATE_EPOCH

if [ -z "$build" ]; then
  "$root/deploy/install_packages.sh" packages
  build=$out/build
  # shellcheck disable=SC2086 # the options are words
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTLM_TESTS=OFF \
    -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$root=. -ffile-prefix-map=$build=." \
    ${DEBEMAIL:+"-DTLM_PACKAGE_CONTACT=${DEBFULLNAME:-tlm maintainers} <$DEBEMAIL>"} \
    ${TLM_CMAKE_OPTIONS:-}
  cmake --build "$build"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -f "$out"/tlm*.deb "$out"/tlm_client-*.whl
cpack --config "$build/CPackConfig.cmake" -B "$work/deb" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
cp "$work"/deb/*.deb "$out"

# Of a copy: setuptools writes beside the sources, and packs what earlier builds left there.
mkdir -p "$work/client"
cp -r "$root/LICENSE" "$root/proto" "$work"
tar -C "$root/client" --exclude=build --exclude='*.egg-info' --exclude=__pycache__ \
  --exclude='*.pyi' --exclude=schema.binpb --exclude=options.json --exclude=answers.py -c python |
  tar -C "$work/client" -x
/usr/bin/python3 -m pip --disable-pip-version-check wheel --quiet --no-index --no-build-isolation \
  --no-deps --wheel-dir="$out" "$work/client/python"
ls -1 "$out"/tlm*.deb "$out"/tlm_client-*.whl
