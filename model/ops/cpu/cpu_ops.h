// The CPU backend: every operation of Ops on the host's threads.
#ifndef TLM_MODEL_OPS_CPU_CPU_OPS_H_
#define TLM_MODEL_OPS_CPU_CPU_OPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_device.h"
#include "model/ops/cpu/isa.h"
#include "model/ops/cpu/kernels.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/ops.h"
#include "model/sampling/sampler.h"
#include "model/tensor/buffer.h"

namespace tlm {

class CpuOps : public Ops {
 public:
  // threads >= 1; `isa` must be among AvailableIsas(). INVALID_ARGUMENT otherwise.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads, Isa isa);
  // The machine's best instruction set; threads = 0 takes every processor this process may use.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads);

  Device& device() override { return device_; }
  Isa isa() const { return isa_; }

  DType ActivationType(DType) const override { return DType::kF32; }
  DType DefaultKvType(DType) const override { return DType::kF32; }
  bool TakesKvType(DType weights, DType kv) const override;
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(std::span<const TensorView> parts,
                                                     MatrixOrder order = MatrixOrder::kOutputsFirst,
                                                     MatrixUse use = MatrixUse::kPlain) override;
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override;
  size_t ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                      DType activations) const override;
  absl::Status Reserve(const BatchLimits& limits, const ModelShape& shape,
                       DType activations) override;
  void Release() override;
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
  CpuOps(int threads, Isa isa);

  // Calls body(row) for every row, several rows a task when each is little work.
  void ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body);

  void NormRow(const Norm& norm, const float* in, int64_t n, float* out) const;
  // All heads [num_heads, head_dim] of a token.
  void PrepareHeads(const HeadTransform& transform, const float* gain, int64_t position,
                    int64_t num_heads, int64_t head_dim, float* heads) const;

  // Tokens that attend together, at the most: of `rows`, one for each token and kv head, with
  // `heads` queries each.
  int64_t RunLength(int64_t rows, int64_t heads) const;

  const Isa isa_;
  const Kernels& kernels_;
  CpuDevice device_;
  ThreadPool pool_;
  std::vector<Sampler> samplers_;  // one a thread
  Rows gate_up_;                   // what MatMulGated computes first, for max_tokens
  Buffer gate_up_memory_;
  const Batch* batch_ = nullptr;  // the running one
  BatchResult result_;            // of the one ended
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_OPS_H_
