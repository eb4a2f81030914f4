#include "model/ops/cuda/kernels/gemm_mma.h"
#include "model/ops/cuda/kernels/gemm_tiled.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

template <typename T>
TLM_KERNEL __launch_bounds__(kGemmThreads, 2) GemmTiled(const GemmArgs args) {
  simt::MultiplyTiles<T, kTiledMmaTile>(args);
}

constexpr size_t kSharedBytes = kMmaTiles[kTiledMmaTile].shared_bytes();

}  // namespace

cudaError_t PrepareGemmTiled() {
  const cudaError_t error = AllowSharedMemory(GemmTiled<simt::Bf16>, kSharedBytes);
  if (error != cudaSuccess) return error;
  return AllowSharedMemory(GemmTiled<simt::F16>, kSharedBytes);
}

cudaError_t LaunchGemmTiled(const GemmArgs& args, DType dtype, int grid, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(grid)),
                          .block = dim3(kGemmThreads),
                          .shared_bytes = kSharedBytes};
  if (dtype == DType::kBF16) return Launch(GemmTiled<simt::Bf16>, shape, stream, args);
  return Launch(GemmTiled<simt::F16>, shape, stream, args);
}

}  // namespace tlm
