// The GEMM kernels: their arguments and launchers.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_KERNELS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_KERNELS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "model/ops/cuda/kernels/gemm/block_format.h"
#include "model/tensor/dtype.h"

namespace tlm {

enum class GemmActivation : int32_t { kNone, kSilu, kRelu, kGeluTanh, kGelu };

// The epilogue of an accumulator a. T is the type of x, or fp32 with out_float32:
//  v = T(a);  v = T(v + bias);  v = T(activation(v));  out = v, or T(silu(v_gate) * v_up)
struct GemmOutput {
  void* out = nullptr;  // [m, outputs] of type T
  int64_t out_stride = 0;
  bool out_float32 = false;
  const float* bias = nullptr;  // [outputs]; null: no bias
  int64_t up_bias = 0;          // gated: distance from a gate's bias to its up's
  GemmActivation activation = GemmActivation::kNone;  // not for a gated product
};

// out[m, n] = x[m, k] w[n, k]^T. x and w have the same type. Gated: w's rows are interleaved as
// MatrixLayout says, 16 gates and their 16 ups, and out is [m, n / 2].
struct GemmArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  const void* w = nullptr;  // rows 16-byte aligned
  int64_t w_stride = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool gated = false;
  bool w_is_written = false;  // by an earlier kernel: it is read only after that kernel has ended
  GemmOutput output;
  int32_t row_tiles = 0;    // covering n
  int32_t token_tiles = 0;  // covering m; row_tiles * token_tiles fits an int
  // Bytes that each thread block prefetches to L2 while earlier kernels run, from the contiguous
  // rows of its first tile: a multiple of 16, at most kMaxPrefetchBytes. Only for tiles of
  // kPrefetchTokens.
  int32_t prefetch_bytes = 0;
};

// Load the kernels of a type and set their shared memory. Call them once on each device, before the
// first launch. dtype is as for the launches; for the epilogue it is the type of the weights.
cudaError_t PrepareGemmMma(DType dtype);
cudaError_t PrepareGemmSimt(DType dtype);
cudaError_t PrepareGemmEpilogue(DType dtype);

// On the tensor cores: `grid` persistent thread blocks with tile `tile` of kMmaTiles; a gated
// product needs a tile of 32 rows or more. dtype kBF16 or kF16, of x and w. x, w and k must be
// whole 16-byte pieces. Every tile gives the same bits. Bytes: the weights once per token tile, x
// once per row tile (from L2), the outputs.
cudaError_t LaunchGemmMma(const GemmArgs& args, DType dtype, int tile, int grid,
                          cudaStream_t stream);

// Few rows of x times rows of a matrix in blocks, whose weights are its elements rounded to
// bfloat16; the same bits as LaunchGemmMma. product.w is unused; n and row_tiles are the rows and
// strips of `matrix`, whose inputs must be in order; m is at most kBlockGemmTokens[shape]. Needs a
// device whose thread blocks may have GemmBlocksSharedBytes.
struct GemmBlocksArgs {
  GemmArgs product;
  BlockMatrixArgs matrix;
};
inline constexpr int kBlockGemmTokens[] = {8, 16, 32};
inline constexpr int kBlockGemmShapes = 3;
size_t GemmBlocksSharedBytes(const StripFormat& format, int shape);
// most_shared_bytes: the limit of a thread block.
cudaError_t PrepareGemmBlocks(const StripFormat& format, size_t most_shared_bytes);
cudaError_t LaunchGemmBlocks(const GemmBlocksArgs& args, int shape, int grid, cudaStream_t stream);

// Computes without tensor cores, for fp32 and for 16-bit weights whose shape these cannot take: one
// thread block for each of row_tiles * token_tiles tiles `tile` of kSimtTiles. Every output is one
// fp32 chain, acc = fma(w[n, i], x[m, i], acc) for i = 0, 1, ... from acc = 0, for every tile. x
// and w have type dtype: kF32, kBF16 or kF16. x need not be aligned; w's rows must be zero from k
// up to a multiple of 16 bytes. Bytes: the weights once per token tile, x once per row tile, the
// outputs.
cudaError_t LaunchGemmSimt(const GemmArgs& args, DType dtype, int tile, cudaStream_t stream);

// The epilogue of a product that the library computed: element by element, with the same roundings
// as the fused epilogue of the own kernels.
//
// output.out [m, n] holds accumulators rounded to its type, and becomes GemmOutput's result. x has
// type dtype. Bytes: m n elements read and written.
struct FinishProductArgs {
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchFinishProduct(const FinishProductArgs& args, DType dtype, cudaStream_t stream);

// Computes output.out [m, n / 2] from gate_up [m, n]: accumulators rounded to `dtype`, with columns
// in the order of a gated matrix's rows. Bytes: m n elements read, half as many written.
struct SwiGluArgs {
  const void* gate_up = nullptr;
  int64_t gate_up_stride = 0;
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchSwiGlu(const SwiGluArgs& args, DType dtype, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_KERNELS_H_
