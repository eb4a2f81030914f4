// The matrix kernels: their arguments, and the functions that start them.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_KERNELS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_KERNELS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "model/ops/cuda/kernels/block_format.h"
#include "model/tensor/dtype.h"

namespace tlm {

enum class GemmActivation : int32_t { kNone, kSilu, kRelu, kGeluTanh, kGelu };

// What becomes of an accumulator a, T being the type of x, or fp32 with out_float32:
//   v = T(a);  v = T(v + bias);  v = T(activation(v));  out = v, or T(silu(v_gate) * v_up)
struct GemmOutput {
  void* out = nullptr;  // of T
  int64_t out_stride = 0;
  bool out_float32 = false;
  const float* bias = nullptr;  // by output; null: none
  int64_t up_bias = 0;          // of a gated product: from a gate's bias to its up's
  GemmActivation activation = GemmActivation::kNone;  // not of a gated product
};

// out[m, n] = x[m, k] w[n, k]^T. x, w of one type. Gated: w's rows are interleaved as MatrixLayout
// says, 16 gates and their 16 ups, and out is [m, n / 2].
struct GemmArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  const void* w = nullptr;  // rows 16-byte aligned
  int64_t w_stride = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool gated = false;
  bool w_is_written = false;  // by a kernel before: it is not read before that has ended
  GemmOutput output;
  int32_t row_tiles = 0;    // covering n
  int32_t token_tiles = 0;  // covering m; their product is an int, too
  // Of the rows of a block's first tile, one behind the other, brought to L2 while earlier kernels
  // run: a multiple of 16, at most kMostPrefetchBytes. Tiles of kPrefetchTokens only.
  int32_t prefetch_bytes = 0;
};

// Let the kernels of a type have their shared memory and bring them to the device; once on each,
// before the first launch. dtype as for the launches; of the epilogue the weights'.
cudaError_t PrepareGemmMma(DType dtype);
cudaError_t PrepareGemmSimt(DType dtype);
cudaError_t PrepareGemmEpilogue(DType dtype);

// On the tensor cores: `grid` blocks of tile `tile` of kMmaTiles; one of 32 rows or more for a
// gated product. dtype kBF16 or kF16, of x and w; x, w and k in pieces of 16 bytes. The same bits
// with every tile. Bytes: the weights once for each token tile, x once for each row tile (from L2),
// the outputs.
cudaError_t LaunchGemmMma(const GemmArgs& args, DType dtype, int tile, int grid,
                          cudaStream_t stream);

// Few rows of x with rows of a matrix in blocks, which means its elements rounded to bfloat16, with
// the bits of LaunchGemmMma. product.w is none; n, row_tiles: rows and strips of `matrix`, whose
// inputs are in order; m at most kBlockGemmTokens[shape]. On devices that let a block have
// GemmBlocksSharedBytes.
struct GemmBlocksArgs {
  GemmArgs product;
  BlockMatrixArgs matrix;
};
inline constexpr int kBlockGemmTokens[] = {8, 16, 32};
inline constexpr int kBlockGemmShapes = 3;
size_t GemmBlocksSharedBytes(const StripFormat& format, int shape);
// most_shared_bytes: that the device lets a block have.
cudaError_t PrepareGemmBlocks(const StripFormat& format, size_t most_shared_bytes);
cudaError_t LaunchGemmBlocks(const GemmBlocksArgs& args, int shape, int grid, cudaStream_t stream);

// Without tensor cores, for fp32 and for 16-bit weights whose shape these cannot take: a block for
// each of row_tiles * token_tiles tiles `tile` of kSimtTiles. Every output is one fp32 chain,
// acc = fma(w[n, i], x[m, i], acc) for i = 0, 1, ... from acc = 0, whatever the tile. dtype kF32,
// kBF16 or kF16, of x and w; x may lie anywhere; what follows k in w's rows, up to a multiple of 16
// bytes, is zero. Bytes: the weights once for each token tile, x once for each row tile, the
// outputs.
cudaError_t LaunchGemmSimt(const GemmArgs& args, DType dtype, int tile, cudaStream_t stream);

// The epilogue of a product that no kernel of ours made: element by element, with the roundings of
// the kernels that do it at once.
//
// output.out [m, n], which holds accumulators rounded to its type, becomes what GemmOutput says.
// dtype: of x. Bytes: m n elements read and written.
struct FinishProductArgs {
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchFinishProduct(const FinishProductArgs& args, DType dtype, cudaStream_t stream);

// output.out [m, n / 2] from gate_up [m, n], accumulators rounded to `dtype`, columns in the order
// of a gated matrix's rows. Bytes: m n elements read, half as many written.
struct SwiGluArgs {
  const void* gate_up = nullptr;
  int64_t gate_up_stride = 0;
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchSwiGlu(const SwiGluArgs& args, DType dtype, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_KERNELS_H_
