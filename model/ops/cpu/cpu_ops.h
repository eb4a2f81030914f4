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

namespace tlm {

class CpuOps : public Ops {
 public:
  // threads >= 1; `isa` must be among AvailableIsas(). INVALID_ARGUMENT otherwise.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads, Isa isa);
  // The machine's best instruction set; threads = 0 takes every processor this process may use.
  static absl::StatusOr<std::unique_ptr<CpuOps>> Create(int threads);

  Device& device() override { return device_; }
  Isa isa() const { return isa_; }

  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst) override;
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override;
  absl::Status Embed(const Matrix& table, const int32_t* ids, const Rows& out) override;
  absl::Status GatherRows(const Rows& in, const int32_t* rows, const Rows& out) override;
  absl::Status RmsNorm(const Rows& in, int64_t group, const float* gain, float eps,
                       EpsPlacement placement, const Rows& out) override;
  absl::Status LayerNorm(const Rows& in, const float* gain, const float* bias, float eps,
                         EpsPlacement placement, const Rows& out) override;
  absl::Status MatMul(const Rows& x, const Matrix& w, const float* bias, const Rows& out) override;
  absl::Status Add(const Rows& x, const Rows& y) override;
  absl::Status SwiGlu(const Rows& gate_up, const Rows& out) override;
  absl::Status Activate(Activation activation, const Rows& x) override;
  absl::Status Rope(const Rows& x, int64_t head_dim, RopePairing pairing, const float* table,
                    const int32_t* positions) override;
  absl::Status WriteKv(const Rows& k, const Rows& v, const TokenLayout& layout,
                       const KvLayer& cache) override;
  absl::Status Attention(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                         const KvLayer& cache, const Rows& out) override;

 private:
  CpuOps(int threads, Isa isa);

  // Calls body(row) for every row, several rows a task when each is little work.
  void ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body);

  // Tokens that attend together, at the most: of `rows`, one for each token and kv head, with
  // `heads` queries each.
  int64_t RunLength(int64_t rows, int64_t heads) const;

  const Isa isa_;
  const Kernels& kernels_;
  CpuDevice device_;
  ThreadPool pool_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_OPS_H_
