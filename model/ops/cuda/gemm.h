// Matrix products on the device.
//
// Numbers. Every output is one chain: an fp32 accumulator that starts at 0 and takes k ascending,
// then rounding to the activation type T, that of x:
//
//   a = chain              where UsesTensorCores: k by 16, as mma.m16n8k16 sums them; otherwise one
//                          by one, each a fused multiply-add
//   v = T(a)
//   v = T(v + bias[j])     with a bias
//   v = T(activation(v))   with an activation
//   out = T(silu(g) * u)   of a gated product, g and u each such a v
//
// Where out is fp32 (logits), read T as fp32: nothing is rounded. Because every step ends in a
// rounding of its own, one fused kernel has the bits of a product followed by an elementwise
// kernel.
//
// A matrix in blocks means its elements (model/tensor/blocks.h) rounded to T, bfloat16: products
// have the bits of those with a matrix that is stored so.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_H_
#define TLM_MODEL_OPS_CUDA_GEMM_H_

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
#include "model/ops/cuda/block_layout.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/ops/cuda/cuda_matrix.h"
#include "model/ops/cuda/gemm_library.h"
#include "model/ops/cuda/gemm_plan.h"
#include "model/ops/cuda/kernels/gemm_kernels.h"
#include "model/ops/cuda/matrix_layout.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Chooses and starts the kernels, on the device's compute stream. A product's choice depends on the
// number of rows only between kernels with the same bits. Same threading as Device; statuses are
// those of CudaDevice::Check. Where UsesTensorCores, rows of x are 16-byte aligned; the library is
// asked for plain products only where those of out are, too.
class Gemm {
 public:
  // `library` may be null: own kernels alone. Both must outlive this. `properties` are those to
  // plan for, usually the device's.
  Gemm(CudaDevice& device, const CudaProperties& properties, GemmLibrary* library);

  // Loads the kernels that products with a matrix of this layout take, before the first of them,
  // and notes for Reserve that they will be run. `blocks`: those of the matrix's segments, if it is
  // in blocks; the layout is then that of the dequantised matrix. Statuses as CudaDevice::Check.
  absl::Status Prepare(const MatrixLayout& layout, std::span<const BlockLayout> blocks = {});

  // Device memory that Reserve keeps, for the layouts noted so far.
  size_t ReserveBytes(const BatchLimits& limits) const;
  // The same before any is noted: of a model whose gated matrices have so many outputs, 0 for none,
  // and inputs that the library could take.
  size_t ReserveBytes(const BatchLimits& limits, int64_t gated_outputs, DType dtype) const;
  // Bytes of the panel that matrices in blocks are dequantised to, as many rows at a time as it
  // holds: enough for the largest matrix, of so many elements (each row of which counts as a
  // multiple of 8), and kMostPanelBytes at the most.
  static size_t PanelBytes(int64_t elements) {
    return std::min(static_cast<size_t>(elements) * 2, kMostPanelBytes);
  }
  static constexpr size_t kMostPanelBytes = size_t{256} << 20;
  // Takes the workspace and the panel (PanelBytes; 0: no matrix is in blocks), and finds out for
  // every layout noted for which numbers of rows the library has the bits of the own kernels and is
  // faster. For that it takes more memory (inputs and outputs of the largest product, kProbeBytes
  // of output at the most, and twice the L2 cache) and gives it back; a product there is no memory
  // to try goes without the library. Outputs of vocab_size features are taken to be fp32. Nothing
  // is allocated or tried afterwards. RESOURCE_EXHAUSTED as Allocate.
  absl::Status Reserve(const BatchLimits& limits, int64_t vocab_size, size_t panel_bytes = 0);
  // Gives back what Reserve keeps, and goes without the library until the next one.
  void Release();
  static constexpr size_t kProbeBytes = size_t{384} << 20;
  // So many rows and fewer are never the library's: own tiles have each weight pass once there, and
  // nothing is left to gain.
  static constexpr int64_t kOwnRows = 16;

  // Kinds of products that could be the library's, and how many are for some numbers of rows. After
  // Reserve.
  int library_candidates() const { return static_cast<int>(products_.size()); }
  int library_products() const;

  // How products have been computed since the last call: "own skinny", "own tiled", "library",
  // "own plain", or several with " + " between them; "" of none.
  std::string TakeMethods();

  // Ops::MatMul.
  absl::Status Run(const Rows& x, const CudaMatrix& w, const Epilogue& epilogue, const Rows& out);
  // Ops::MatMulGated.
  absl::Status RunGated(const Rows& x, const CudaMatrix& w, const float* bias, const Rows& out);

 private:
  struct Known {
    MatrixLayout layout;
    bool in_blocks = false;
  };
  absl::Status LoadProductKernels(const MatrixLayout& layout);
  absl::Status LoadBlockKernels(const StripFormat& format);
  // Rows of weights as kernels take them.
  struct Weights {
    const void* data = nullptr;
    MatrixLayout layout;      // of these rows
    int64_t of_n = 0;         // of the matrix
    bool is_written = false;  // by the kernel before
  };
  // A kind of product the library may compute, m rows of x at a time.
  struct LibraryProduct {
    LibraryGemm gemm;
    bool gated = false;
    int plan = -1;  // of the library; -1: own kernels
  };

  // The kinds that the layouts noted make. Gated ones write their sums to the workspace.
  std::vector<LibraryProduct> LibraryProducts(const BatchLimits& limits, int64_t vocab_size) const;
  const LibraryProduct* FindProduct(const MatrixLayout& layout, DType out) const;
  // What a product is tried on: inputs, the own kernels' output, and one to write.
  struct ProbeMemory {
    std::unique_ptr<CudaMatrix> w;
    Buffer x, own, out;
    Buffer gated;  // outputs behind SwiGLU; empty for a plain product
    Buffer count;  // of differences
    Buffer flush;  // what is written to it leaves nothing else in the L2 cache
  };
  absl::StatusOr<ProbeMemory> AllocateProbe(const LibraryProduct& product);
  absl::Status Probe(LibraryProduct& product);
  // Writes what to try `gemm` on, and waits for it.
  absl::Status FillProbe(const LibraryGemm& gemm, const Rows& x, void* w);
  // GemmProbe::agrees.
  absl::StatusOr<bool> Agrees(const LibraryProduct& product, const ProbeMemory& memory, int64_t m,
                              const GemmProbe::Product& run);
  // Milliseconds `run` takes once, with nothing but `flush` in the L2 cache.
  absl::StatusOr<float> TimeOnce(const Buffer& flush, const GemmProbe::Product& run);

  // Rows of a matrix in blocks that are dequantised at a time: all, or a multiple of 128.
  int64_t PanelRows(const MatrixLayout& layout) const;
  // Where w is in blocks, from these as they are (RunBlocks) or panel by panel. `library`: where it
  // has the product, it may run it.
  absl::Status RunAny(const Rows& x, const CudaMatrix& w, const GemmOutput& output, bool library);
  // Whether a product of so many rows has a kernel that reads w's blocks; and runs it.
  bool HasBlockKernel(int64_t rows, const CudaMatrix& w) const;
  absl::Status RunBlocks(const Rows& x, const CudaMatrix& w, const GemmOutput& output);
  // Rows [first, first + rows) of w, as layout() says, to the panel.
  absl::Status Dequantise(const CudaMatrix& w, int64_t first, int64_t rows);
  absl::Status RunRows(const Rows& x, const Weights& w, const GemmOutput& output, bool library);
  absl::Status RunOwn(const Rows& x, const Weights& w, const GemmOutput& output);
  // Chunk by chunk: the library's sums, then what is left to do to them.
  absl::Status RunLibrary(const LibraryProduct& product, const Rows& x, const Weights& w,
                          const GemmOutput& output);
  // `sums`: those of a gated product.
  absl::Status FinishChunk(const LibraryProduct& product, const void* sums, int64_t rows,
                           const GemmOutput& output);

  CudaDevice& device_;
  const GemmDevice planned_for_;
  const size_t l2_bytes_;
  GemmLibrary* const library_;
  std::vector<Known> layouts_;            // each kind once
  std::vector<DType> block_types_;        // those whose kernels are loaded
  std::vector<LibraryProduct> products_;  // once reserved
  Buffer workspace_;                      // sums of a chunk of a gated product
  uint32_t methods_ = 0;                  // those used; see TakeMethods
  Buffer panel_;                          // dequantised rows
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_H_
