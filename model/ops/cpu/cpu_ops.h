// The CPU backend: every operation of Ops on the host's threads.
#ifndef TLM_MODEL_OPS_CPU_CPU_OPS_H_
#define TLM_MODEL_OPS_CPU_CPU_OPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/ops/cpu/attention.h"
#include "model/ops/cpu/cpu_device.h"
#include "model/ops/cpu/cpu_options.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/matmul.h"
#include "model/ops/cpu/quant_matmul.h"
#include "model/ops/cpu/row_ops.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/ops.h"
#include "model/sampling/sampler.h"
#include "model/tensor/buffer.h"

namespace tlm {

class CpuOps : public Ops {
 public:
  // threads >= 1, and `isa` must be among AvailableIsas(); otherwise returns INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads, Isa isa);
  // Uses the machine's best instruction set; threads = 0: one per processor that this process may
  // use.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads);
  // Returns INVALID_ARGUMENT for an invalid number of threads, and for an unknown or unsupported
  // instruction set; the message names the supported ones.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(const CpuOptions& options);
  // Uses `kernels`, which compute like `isa`'s and can run on this machine; they outlive the
  // result.
  static std::unique_ptr<CpuOps> CreateWith(int threads, Isa isa, const Kernels& kernels,
                                            bool pin_threads = false);

  Device& device() override { return device_; }
  Isa isa() const { return isa_; }

  DType ActivationType(DType weights) const override;
  DType DefaultKvType(DType weights) const override;
  bool TakesFloatRows() const override { return true; }
  bool TakesKvType(DType weights, DType kv) const override;
  bool TakesWeights(WeightFormat) const override { return true; }
  bool TakesBlocks(std::span<const TensorView> parts, MatrixUse use) const override;
  size_t BlockMatrixBytes(DType type, int64_t n, int64_t k) const override {
    return QuantMatrix::BytesFor(type, n, k);
  }
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst,
      MatrixUse use = MatrixUse::kPlain, WeightFormat format = WeightFormat::kAsGiven,
      std::span<const float> importance = {}) override;
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override;
  bool ChecksFinite() const override { return true; }
  size_t ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                      DType activations) const override {
    const size_t quant =
        shape.has_blocks ? CpuQuantMatMul::ScratchBytes(limits.max_tokens, shape.inputs) : 0;
    return quant + matmul_.ReserveBytes(shape.inputs) + attention_.ReserveBytes(shape.head_dim);
  }
  absl::Status Reserve(const BatchLimits& limits, const ModelShape& shape,
                       DType activations) override {
    TLM_RETURN_IF_ERROR(attention_.Reserve(device_, shape.head_dim));
    TLM_RETURN_IF_ERROR(matmul_.Reserve(shape.inputs));
    return shape.has_blocks ? quant_matmul_.Reserve(limits.max_tokens, shape.inputs)
                            : absl::OkStatus();
  }
  bool TakesSeveralModels() const override { return true; }
  void Release() override {
    quant_matmul_.Release();
    matmul_.Release();
    attention_.Release();
  }
  std::string Report() const override;
  int64_t RowStride(int64_t cols, DType dtype) const override;
  int64_t PaddedRows(int64_t rows) const override { return rows; }
  int max_batches() const override { return 1; }
  absl::StatusOr<DeviceBatch> BeginBatch(const Batch& batch) override;
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
  CpuOps(int threads, Isa isa, const Kernels& kernels, bool pin_threads);

  // Packs parts of floats.
  absl::StatusOr<std::unique_ptr<CpuMatrix>> PackFloats(std::span<const TensorView> parts,
                                                        MatrixOrder order, MatrixUse use,
                                                        WeightFormat format,
                                                        std::span<const float> importance);
  absl::Status MatMulPieces(const Rows& x, const StackedMatrix& w, Epilogue epilogue,
                            const Rows& out);

  const Isa isa_;
  const Kernels& kernels_;
  CpuDevice device_;
  ThreadPool pool_;
  RowOps rows_;
  CpuMatMul matmul_;
  CpuQuantMatMul quant_matmul_;
  CpuAttention attention_;
  std::vector<Sampler> samplers_;  // one per thread
  const Batch* batch_ = nullptr;   // the running batch
  BatchResult result_;             // results of the last ended batch
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_OPS_H_
