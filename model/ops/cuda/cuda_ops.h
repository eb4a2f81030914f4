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
#include "model/ops/cuda/batch_pipeline.h"
#include "model/ops/cuda/batch_shape.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/ops/cuda/cuda_matrix.h"
#include "model/ops/cuda/cuda_options.h"
#include "model/ops/cuda/gemm.h"
#include "model/ops/cuda/gemm_library.h"
#include "model/ops/cuda/weight_upload.h"
#include "model/ops/ops.h"

namespace tlm {

// Activations, keys and values have the type of the matrices, float64 counting as float32; of a
// model with matrices in blocks bfloat16, to which their elements are rounded (gemm.h). Batches
// that decode are padded and recorded (batch_shape.h).
class CudaOps : public Ops {
 public:
  using MakeLibrary = absl::StatusOr<std::unique_ptr<GemmLibrary>>(CudaDevice& device);

  // Opens a device; statuses as CudaDevice::Create. `make_library` makes what options.library is
  // about; null where there is no library, and one that cannot be made is done without.
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
  // All in blocks; of a gated one, of one type and with their inputs in the same order.
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
  // Whole runs of wide loads and copies, at every element size.
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

  // A matrix whose rows in blocks of `type` are those of all `parts`.
  absl::StatusOr<CudaMatrix::Segment> PackSegment(std::span<const TensorView> parts,
                                                  MatrixOrder order, DType type,
                                                  std::span<const float> importance,
                                                  const MatrixLayout& rows);
  absl::StatusOr<std::unique_ptr<Matrix>> PackBlocks(std::span<const TensorView> parts,
                                                     MatrixOrder order, MatrixUse use,
                                                     std::optional<DType> type,
                                                     std::span<const float> importance);
  // out = rows of `table`, or that more; see LaunchEmbedBlocks.
  absl::Status EmbedBlocks(const CudaMatrix& table, const int32_t* rows, const int32_t* others,
                           bool adds, const Rows& out);
  // Of pipeline_'s model, all but those of gemm_: steps are recorded, and a kernel that is not on
  // the device yet cannot be.
  absl::Status LoadKernels(const ModelShape& shape, DType activations);
  absl::Status CheckArithmeticOf(const ModelShape& shape, DType activations);
  // Starts a kernel on this device: the launch's status.
  template <typename Launch>
  absl::Status Queue(std::string_view name, const Launch& launch);

  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<GemmLibrary> library_;  // may be null
  std::string without_library_;                 // why it is
  std::optional<ArithmeticQuestion> asked_;
  ArithmeticCheck arithmetic_;  // the answer
  Gemm gemm_;
  WeightUpload upload_;
  std::unique_ptr<BatchPipeline> pipeline_;  // while reserved
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_OPS_H_
