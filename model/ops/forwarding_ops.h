// A backend that forwards every call to another one; the base of backends that observe or change
// single operations.
#ifndef TLM_MODEL_OPS_FORWARDING_OPS_H_
#define TLM_MODEL_OPS_FORWARDING_OPS_H_

#include <memory>
#include <span>

#include "model/ops/ops.h"

namespace tlm {

class ForwardingOps : public Ops {
 public:
  // `ops` outlives this object.
  explicit ForwardingOps(Ops& ops) : ops_(ops) {}

  Device& device() override { return ops_.device(); }
  DType ActivationType(DType weights) const override { return ops_.ActivationType(weights); }
  bool TakesFloatRows() const override { return ops_.TakesFloatRows(); }
  DType DefaultKvType(DType weights) const override { return ops_.DefaultKvType(weights); }
  bool TakesKvType(DType weights, DType kv) const override { return ops_.TakesKvType(weights, kv); }
  bool TakesWeights(WeightFormat format) const override { return ops_.TakesWeights(format); }
  bool TakesBlocks(std::span<const TensorView> parts, MatrixUse use) const override {
    return ops_.TakesBlocks(parts, use);
  }
  size_t BlockMatrixBytes(DType type, int64_t n, int64_t k) const override {
    return ops_.BlockMatrixBytes(type, n, k);
  }
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst,
      MatrixUse use = MatrixUse::kPlain, WeightFormat format = WeightFormat::kAsGiven,
      std::span<const float> importance = {}) override {
    return ops_.PackMatrix(parts, order, use, format, importance);
  }
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override {
    return ops_.PackVector(parts);
  }
  bool ChecksFinite() const override { return ops_.ChecksFinite(); }
  size_t ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                      DType activations) const override {
    return ops_.ReserveBytes(limits, shape, activations);
  }
  absl::Status Reserve(const BatchLimits& limits, const ModelShape& shape,
                       DType activations) override {
    return ops_.Reserve(limits, shape, activations);
  }
  std::string Report() const override { return ops_.Report(); }
  bool TakesSeveralModels() const override { return ops_.TakesSeveralModels(); }
  void Release() override { ops_.Release(); }
  int64_t RowStride(int64_t cols, DType dtype) const override {
    return ops_.RowStride(cols, dtype);
  }
  int64_t PaddedRows(int64_t rows) const override { return ops_.PaddedRows(rows); }
  int max_batches() const override { return ops_.max_batches(); }
  bool TakesPendingTokens() const override { return ops_.TakesPendingTokens(); }
  absl::StatusOr<DeviceBatch> BeginBatch(const Batch& batch) override {
    return ops_.BeginBatch(batch);
  }
  int64_t common_steps() const override { return ops_.common_steps(); }
  DeviceBatch CommonStep(int64_t index) override { return ops_.CommonStep(index); }
  absl::Status Sample(const Rows& logits) override { return ops_.Sample(logits); }
  absl::Status EndBatch(const Rows& logits) override { return ops_.EndBatch(logits); }
  absl::StatusOr<BatchResult> AwaitBatch() override { return ops_.AwaitBatch(); }
  absl::Status Embed(const Matrix& table, const Matrix* positions_table, const DeviceBatch& batch,
                     const Rows& out) override {
    return ops_.Embed(table, positions_table, batch, out);
  }
  absl::Status AddNorm(const Rows& x, const Rows& delta, const Norm& norm,
                       const Rows& out) override {
    return ops_.AddNorm(x, delta, norm, out);
  }
  absl::Status GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                             const Norm& norm, const Rows& out) override {
    return ops_.GatherAddNorm(x, delta, rows, norm, out);
  }
  absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                      const Rows& out) override {
    return ops_.MatMul(x, w, epilogue, out);
  }
  absl::Status MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                           const Rows& out) override {
    return ops_.MatMulGated(x, w, bias, out);
  }
  absl::Status PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                const TokenLayout& layout, const KvLayer& cache) override {
    return ops_.PrepareAttention(qkv, transform, layout, cache);
  }
  absl::Status Attention(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                         const KvLayer& cache, const Rows& out) override {
    return ops_.Attention(q, scale, window, layout, cache, out);
  }

 protected:
  Ops& ops_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_FORWARDING_OPS_H_
