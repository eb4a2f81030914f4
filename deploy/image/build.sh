#!/usr/bin/env bash
# Compiles the programs of the container image and stages it in /stage: one step of the Dockerfile.
#
#   deploy/image/build.sh [CMAKE_OPTION...]
#
# Environment: JOBS, processes at once; SOURCE_DATE_EPOCH, the time of everything staged.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=/build
# Of programs and of the module. DT_RPATH and not DT_RUNPATH: dependencies of the libraries are
# searched there, too.
rpath='$ORIGIN/../lib/tlm;$ORIGIN'
rpath_kind=-Wl,--disable-new-dtags
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTLM_TESTS=OFF \
  -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$PWD=. -ffile-prefix-map=$build=." \
  -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH="$rpath" \
  -DCMAKE_EXE_LINKER_FLAGS="$rpath_kind" -DCMAKE_MODULE_LINKER_FLAGS="$rpath_kind" "$@"
targets=(tlm-server tlm tlm-keys tlm-openai)
grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" && targets+=(tlm_cuda)
cmake --build "$build" ${JOBS:+--parallel "$JOBS"} --target "${targets[@]}"
python3 -B deploy/image/stage.py "$build" /stage
