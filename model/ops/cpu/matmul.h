// Computes matrix products on the threads of a pool.
#ifndef TLM_MODEL_OPS_CPU_MATMUL_H_
#define TLM_MODEL_OPS_CPU_MATMUL_H_

#include "absl/status/status.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/packed_matrix.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Converts the epilogue of Ops::MatMul into `out`, F32 or BF16, to the kernels' form.
EpilogueArgs EpilogueArgsOf(const Epilogue& epilogue, const Rows& out);
// Converts the epilogue of Ops::MatMulGated likewise.
EpilogueArgs GatedEpilogueArgsOf(const float* bias, const Rows& out);

// Cuts products into stripes of panels; one thread computes each. Threading is as for Ops.
class CpuMatMul {
 public:
  // All arguments outlive this object.
  CpuMatMul(const Kernels& kernels, Device& device, ThreadPool& pool)
      : kernels_(kernels), device_(device), pool_(pool) {}

  // The bytes that products with matrices of up to `inputs` inputs need in addition to the
  // operands.
  size_t ReserveBytes(int64_t inputs) const;
  // Allocates this memory, unless there is enough. Call before the first such product. Returns
  // RESOURCE_EXHAUSTED like Device::Allocate.
  absl::Status Reserve(int64_t inputs);
  void Release();

  // Implements Ops::MatMul.
  void MatMul(const Rows& x, const PackedMatrix& w, const Epilogue& epilogue, const Rows& out);
  // Implements Ops::MatMulGated.
  void MatMulGated(const Rows& x, const PackedMatrix& w, const float* bias, const Rows& out);

 private:
  static size_t RowsBytes(int64_t inputs);
  size_t WidenedBytes(int64_t inputs) const;
  void Run(const Rows& x, const PackedMatrix& w, const EpilogueArgs& epilogue);
  // Multiplies all rows of `args` at once; sets its other fields.
  void RunBlock(MatMulArgs args, const MatMulNeeds& needs, int64_t panels);
  // Packs the rows of `args` for the kernels.
  const uint32_t* Pack(const MatMulArgs& args);

  const Kernels& kernels_;
  Device& device_;
  ThreadPool& pool_;
  int64_t reserved_inputs_ = 0;
  Buffer packed_rows_;
  Buffer widened_;  // one part per worker
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_MATMUL_H_
