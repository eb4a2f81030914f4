#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_mma.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

// Few rows of x, bound by the weights' bytes. Three thread blocks per SM: two at work, and one of
// the next product that prefetches.
template <typename T, int kTile>
TLM_KERNEL __launch_bounds__(kGemmThreads, 3) GemmSkinny(const GemmArgs args) {
  simt::MultiplyTiles<T, kTile>(args);
}

// Many rows of x: two thread blocks per SM.
template <typename T>
TLM_KERNEL __launch_bounds__(kGemmThreads, 2) GemmTiled(const GemmArgs args) {
  simt::MultiplyTiles<T, kTiledMmaTile>(args);
}

using Kernel = void (*)(GemmArgs);

template <typename T>
Kernel KernelOf(int tile) {
  static constexpr Kernel kKernels[] = {
      GemmSkinny<T, 0>, GemmSkinny<T, 1>, GemmSkinny<T, 2>, GemmSkinny<T, 3>, GemmSkinny<T, 4>,
      GemmSkinny<T, 5>, GemmSkinny<T, 6>, GemmSkinny<T, 7>, GemmTiled<T>,
  };
  static_assert(sizeof(kKernels) / sizeof(kKernels[0]) == kMmaTileCount);
  return kKernels[tile];
}
Kernel KernelOf(DType dtype, int tile) {
  return dtype == DType::kBF16 ? KernelOf<simt::Bf16>(tile) : KernelOf<simt::F16>(tile);
}

}  // namespace

cudaError_t PrepareGemmMma(DType dtype) {
  for (int tile = 0; tile < kMmaTileCount; ++tile) {
    const cudaError_t error =
        AllowSharedMemory(KernelOf(dtype, tile), kMmaTiles[tile].shared_bytes());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchGemmMma(const GemmArgs& args, DType dtype, int tile, int grid,
                          cudaStream_t stream) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(grid)),
      .block = dim3(kGemmThreads),
      .shared_bytes = static_cast<size_t>(kMmaTiles[tile].shared_bytes()),
      .overlaps_previous = !args.w_is_written,
  };
  return Launch(KernelOf(dtype, tile), shape, stream, args);
}

}  // namespace tlm
