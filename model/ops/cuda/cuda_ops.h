// The CUDA backend: every operation of Ops as kernels on one stream of a GPU.
#ifndef TLM_MODEL_OPS_CUDA_CUDA_OPS_H_
#define TLM_MODEL_OPS_CUDA_CUDA_OPS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cuda/arithmetic_check.h"
#include "model/ops/cuda/batch/batch_pipeline.h"
#include "model/ops/cuda/batch/batch_shape.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/device/cuda_options.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "model/ops/cuda/gemm/gemm_library.h"
#include "model/ops/cuda/weights/cuda_matrix.h"
#include "model/ops/cuda/weights/weight_upload.h"
#include "model/ops/ops.h"

namespace tlm {

// Activations, keys and values have the type of the matrices (float32 for float64), or bfloat16 for
// a model with matrices in blocks (gemm.h). Decoding batches are padded and run as CUDA graphs
// (batch_shape.h).
class CudaOps : public Ops {
 public:
  using MakeLibrary = absl::StatusOr<std::unique_ptr<GemmLibrary>>(CudaDevice& device);

  // Opens a device; returns the same statuses as CudaDevice::Create. `make_library` makes the
  // library that options.library asks for; null: no library. If it fails, the backend works without
  // a library.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const CudaOptions& options,
                                                         MakeLibrary* make_library);
  ~CudaOps() override;

  CudaDevice& device() override { return *device_; }

  DType ActivationType(DType weights) const override;
  DType DefaultKvType(DType weights) const override { return ActivationType(weights); }
  bool TakesKvType(DType weights, DType kv) const override {
    return kv == ActivationType(weights) || kv == DType::kF8E4M3;
  }
  bool TakesWeights(WeightFormat) const override { return true; }
  // True if all parts are in blocks and, for a gated matrix, also agree in type and in the order of
  // their inputs.
  bool TakesBlocks(std::span<const TensorView> parts, MatrixUse use) const override;
  size_t BlockMatrixBytes(DType type, int64_t n, int64_t k) const override;
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst,
      MatrixUse use = MatrixUse::kPlain, WeightFormat format = WeightFormat::kAsGiven,
      std::span<const float> importance = {}) override;
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override;
  bool ChecksFinite() const override { return true; }
  size_t ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                      DType activations) const override;
  absl::Status Reserve(const BatchLimits& limits, const ModelShape& shape,
                       DType activations) override;
  void Release() override;
  std::string Report() const override;
  std::string TakeProductMethods() override { return gemm_.TakeMethods(); }
  // Rows are a multiple of 32 elements, so that 16-byte loads and copies fit at every element size.
  int64_t RowStride(int64_t cols, DType) const override { return (cols + 31) / 32 * 32; }
  int64_t PaddedRows(int64_t rows) const override { return PaddedRowCount(rows); }
  int max_batches() const override { return BatchPipeline::kBatches; }
  bool TakesPendingTokens() const override { return pipeline_->TakesPendingTokens(); }
  absl::StatusOr<DeviceBatch> BeginBatch(const Batch& batch) override;
  int64_t common_steps() const override;
  DeviceBatch CommonStep(int64_t index) override;
  absl::Status Sample(const Rows& logits) override;
  absl::Status EndBatch(const Rows& logits) override;
  absl::StatusOr<BatchResult> AwaitBatch() override;
  absl::Status Embed(const Matrix& table, const Matrix* positions_table, const DeviceBatch& batch,
                     const Rows& out) override;
  absl::Status AddNorm(const Rows& x, const Rows& delta, const Norm& norm,
                       const Rows& out) override;
  absl::Status GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                             const Norm& norm, const Rows& out) override;
  absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                      const Rows& out) override;
  absl::Status MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                           const Rows& out) override;
  absl::Status PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                const TokenLayout& layout, const KvLayer& cache) override;
  absl::Status Attention(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                         const KvLayer& cache, const Rows& out) override;

 private:
  CudaOps(std::unique_ptr<CudaDevice> device, std::unique_ptr<GemmLibrary> library);

  // A segment in blocks of `type`, with the rows of all `parts`.
  absl::StatusOr<CudaMatrix::Segment> PackSegment(std::span<const TensorView> parts,
                                                  MatrixOrder order, DType type,
                                                  std::span<const float> importance,
                                                  const MatrixLayout& rows);
  absl::StatusOr<std::unique_ptr<Matrix>> PackBlocks(std::span<const TensorView> parts,
                                                     MatrixOrder order, MatrixUse use,
                                                     std::optional<DType> type,
                                                     std::span<const float> importance);
  // out = rows of `table`, or out += these rows; see LaunchEmbedBlocks.
  absl::Status EmbedBlocks(const CudaMatrix& table, const int32_t* rows, const int32_t* others,
                           bool adds, const Rows& out);
  // Loads the kernels of pipeline_'s model, except those of gemm_. A kernel that is not loaded
  // cannot be captured.
  absl::Status LoadKernels(const ModelShape& shape, DType activations);
  absl::Status CheckArithmeticOf(const ModelShape& shape, DType activations);
  // Launches a kernel on this device; returns the launch's status.
  template <typename Launch>
  absl::Status Queue(std::string_view name, const Launch& launch);

  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<GemmLibrary> library_;  // may be null
  std::string without_library_;                 // the reason why library_ is null
  std::optional<ArithmeticQuestion> asked_;
  ArithmeticCheck arithmetic_;  // the result for asked_
  Gemm gemm_;
  WeightUpload upload_;
  std::unique_ptr<BatchPipeline> pipeline_;  // while reserved
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_OPS_H_
