#!/usr/bin/env bash
# Builds what tests/gpu/run.sh runs, on the machine with the GPU.
#
#   tests/gpu/build_from_source.sh BUILD_DIR [DEPENDENCIES_DIR]
#
# Needs a CUDA toolkit, a C++20 compiler, CMake and the libraries named in README.md without those
# of gRPC: engine and kernel tests; with gRPC the server too. Libraries may come from a folder that
# tests/gpu/dependencies.sh filled elsewhere.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=${1:?usage: build_from_source.sh BUILD_DIR [DEPENDENCIES_DIR]}
dependencies=${2:-$source_dir/tests/gpu/dependencies}
options=(-DCMAKE_BUILD_TYPE=Release -DTLM_CUDA=ON -DTLM_TESTS=ON)
if [ -d "$dependencies/usr" ]; then
  dependencies=$(cd "$dependencies" && pwd)
  # Compilers look into a prefix's folder for one architecture by themselves for /usr alone.
  includes=("$dependencies"/usr/include/*-linux-gnu)
  # Old tags: libraries of that folder that libraries of that folder need are found there too.
  # shellcheck disable=SC2054 # the commas are the linker's
  options+=("-DCMAKE_PREFIX_PATH=$dependencies/usr" "-DCMAKE_CXX_FLAGS=-isystem ${includes[0]}"
            -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
            -DCMAKE_MODULE_LINKER_FLAGS=-Wl,--disable-new-dtags -DTLM_RPC=OFF)
elif ! grpc_cpp_plugin=$(command -v grpc_cpp_plugin) || [ -z "$grpc_cpp_plugin" ]; then
  options+=(-DTLM_RPC=OFF)
fi
command -v ninja >/dev/null && options+=(-G Ninja)
cmake -S "$source_dir" -B "$build_dir" "${options[@]}"
targets=(tlm_cuda ceilings microbench mma_canon cuda_kernels_test
         unit_model_ops_{ops,row_ops,attention,batch}_test golden_determinism_cuda_test
         engine_bench ops_bench weights_loss)
[[ " ${options[*]} " == *" -DTLM_RPC=OFF "* ]] || targets+=(tlm-server tlm serve_bench)
cmake --build "$build_dir" --parallel "$(nproc)" --target "${targets[@]}"
