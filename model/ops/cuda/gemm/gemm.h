// Computes matrix products on the device.
//
// Arithmetic. Every output is one chain of additions: an fp32 accumulator starts at 0 and takes k
// ascending. The result is then rounded to the activation type T, the type of x:
//
//  a = chain              if UsesTensorCores: k by 16, as mma.m16n8k16 sums them; otherwise one
//                         by one, each a fused multiply-add
//  v = T(a)
//  v = T(v + bias[j])     with a bias
//  v = T(activation(v))   with an activation
//  out = T(silu(g) * u)   for a gated product; g and u are each such a v
//
// If out is fp32 (logits), T is fp32 and nothing is rounded. Every line above ends with its own
// rounding, so one fused kernel has the same bits as a product followed by an elementwise kernel.
//
// The weights of a matrix in blocks are its elements (model/tensor/blocks.h) rounded to T, which is
// bfloat16: products have the same bits as with a bfloat16 matrix of these values.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_GEMM_H_
#define TLM_MODEL_OPS_CUDA_GEMM_GEMM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/gemm/gemm_library.h"
#include "model/ops/cuda/gemm/gemm_plan.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/weights/block_layout.h"
#include "model/ops/cuda/weights/cuda_matrix.h"
#include "model/ops/cuda/weights/matrix_layout.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Chooses and launches the kernels, on the device's compute stream. The number of rows affects only
// the choice between kernels with the same bits. Threading is as for Device; statuses are those
// that CudaDevice::Check returns. If UsesTensorCores, rows of x must be 16-byte aligned. The
// library gets a plain product only if the rows of out are aligned, too.
class Gemm {
 public:
  // `library` may be null: then the own kernels compute everything. Both must outlive this object.
  // Plans are made for `properties`, usually the device's.
  Gemm(CudaDevice& device, const CudaProperties& properties, GemmLibrary* library);

  // Loads the kernels for products with a matrix of this layout, and notes for Reserve that there
  // will be such products. Call it before the first of them. `blocks` has the layouts of the
  // matrix's segments if it is in blocks; `layout` is then the layout of the dequantised matrix.
  // Statuses are those that CudaDevice::Check returns.
  absl::Status Prepare(const MatrixLayout& layout, std::span<const BlockLayout> blocks = {});

  // Device memory that Reserve keeps, for the layouts prepared so far.
  size_t ReserveBytes(const BatchLimits& limits) const;
  // The same before any layout is prepared, for a model whose gated matrices have at most
  // `gated_outputs` outputs (0: no gated matrices) and shapes that the library could take.
  size_t ReserveBytes(const BatchLimits& limits, int64_t gated_outputs, DType dtype) const;
  // Bytes of the panel for dequantised rows: enough for a whole matrix of `elements` elements (each
  // row counted as a multiple of 8), the model's largest, but at most kMaxPanelBytes. A larger
  // matrix is dequantised in several parts.
  static size_t PanelBytes(int64_t elements) {
    return std::min(static_cast<size_t>(elements) * 2, kMaxPanelBytes);
  }
  static constexpr size_t kMaxPanelBytes = size_t{256} << 20;
  // Allocates the workspace and the panel (PanelBytes; 0: no matrix is in blocks). Then finds out,
  // for every layout prepared, for which row counts the library has the bits of the own kernels and
  // is faster. That takes more memory, which is freed at the end: inputs and outputs of the largest
  // product, at most kProbeBytes of output, and twice the L2 cache. A product for which probing
  // memory is missing is computed without the library. Outputs of vocab_size features are taken to
  // be fp32. Afterwards nothing is allocated or probed. Returns RESOURCE_EXHAUSTED like Allocate.
  absl::Status Reserve(const BatchLimits& limits, int64_t vocab_size, size_t panel_bytes = 0);
  // Frees the memory of Reserve. Products are computed without the library until the next Reserve.
  void Release();
  static constexpr size_t kProbeBytes = size_t{384} << 20;
  // Up to this many rows the library is never used: there the own tiles read each weight once, so
  // it can gain nothing.
  static constexpr int64_t kOwnRows = 16;

  // The number of kinds of products that the library could compute, and how many of these it
  // computes for some row counts. Call after Reserve.
  int library_candidates() const { return static_cast<int>(products_.size()); }
  int library_products() const;

  // The methods of the products since the last call: "own skinny", "own tiled", "library", "own
  // plain" (SIMT), or several joined by " + "; "" without products.
  std::string TakeMethods();

  // Computes Ops::MatMul.
  absl::Status Run(const Rows& x, const CudaMatrix& w, const Epilogue& epilogue, const Rows& out);
  // Computes Ops::MatMulGated.
  absl::Status RunGated(const Rows& x, const CudaMatrix& w, const float* bias, const Rows& out);

 private:
  struct Known {
    MatrixLayout layout;
    bool in_blocks = false;
  };
  absl::Status LoadProductKernels(const MatrixLayout& layout);
  absl::Status LoadBlockKernels(const StripFormat& format);
  // Rows of weights in the form that kernels take.
  struct Weights {
    const void* data = nullptr;
    MatrixLayout layout;      // layout of these rows
    int64_t of_n = 0;         // n of the complete matrix
    bool is_written = false;  // by the previous kernel
  };
  // A kind of product that the library may compute, m rows of x at a time.
  struct LibraryProduct {
    LibraryGemm gemm;
    bool gated = false;
    int plan = -1;  // the library's number; -1: own kernels
  };

  // The kinds of products that the prepared layouts have. Gated ones write their sums to the
  // workspace.
  std::vector<LibraryProduct> LibraryProducts(const BatchLimits& limits, int64_t vocab_size) const;
  const LibraryProduct* FindProduct(const MatrixLayout& layout, DType out) const;
  // Memory to probe a product with: inputs, the own kernels' output, and an output to compare.
  struct ProbeMemory {
    std::unique_ptr<CudaMatrix> w;
    Buffer x, own, out;
    Buffer gated;  // outputs after SwiGLU; empty for a plain product
    Buffer count;  // number of differences
    Buffer flush;  // writing to it flushes the L2 cache
  };
  absl::StatusOr<ProbeMemory> AllocateProbe(const LibraryProduct& product);
  absl::Status Probe(LibraryProduct& product);
  // GemmProbe::agrees.
  absl::StatusOr<bool> Agrees(const LibraryProduct& product, const ProbeMemory& memory, int64_t m,
                              const GemmProbe::Product& run);
  // Milliseconds that one `run` takes, with only `flush` in the L2 cache.
  absl::StatusOr<float> TimeOnce(const Buffer& flush, const GemmProbe::Product& run);

  // Rows of a matrix in blocks that are dequantised at a time: all of them, or a multiple of 128.
  int64_t PanelRows(const MatrixLayout& layout) const;
  // Dispatches a product. If w is in blocks, either RunBlocks, or panel by panel. `library`: the
  // library may compute it, if it has a plan for it.
  absl::Status RunAny(const Rows& x, const CudaMatrix& w, const GemmOutput& output, bool library);
  // Whether there is a kernel that reads w's blocks for this number of rows, and the product with
  // that kernel.
  bool HasBlockKernel(int64_t rows, const CudaMatrix& w) const;
  absl::Status RunBlocks(const Rows& x, const CudaMatrix& w, const GemmOutput& output);
  // Dequantises rows [first, first + rows) of w, in the order of layout(), into the panel.
  absl::Status Dequantise(const CudaMatrix& w, int64_t first, int64_t rows);
  absl::Status RunRows(const Rows& x, const Weights& w, const GemmOutput& output, bool library);
  absl::Status RunOwn(const Rows& x, const Weights& w, const GemmOutput& output);
  // Works chunk by chunk: the library's sums, then the epilogue.
  absl::Status RunLibrary(const LibraryProduct& product, const Rows& x, const Weights& w,
                          const GemmOutput& output);
  // `sums` are the sums of a gated product.
  absl::Status FinishChunk(const LibraryProduct& product, const void* sums, int64_t rows,
                           const GemmOutput& output);

  CudaDevice& device_;
  const GemmDevice planned_for_;
  const size_t l2_bytes_;
  GemmLibrary* const library_;
  std::vector<Known> layouts_;            // each kind once
  std::vector<DType> block_types_;        // types whose kernels are loaded
  std::vector<LibraryProduct> products_;  // after Reserve
  Buffer workspace_;                      // sums of a chunk of a gated product
  uint32_t methods_ = 0;                  // bit set of the methods used since the last TakeMethods
  Buffer panel_;                          // dequantised rows
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_GEMM_H_
