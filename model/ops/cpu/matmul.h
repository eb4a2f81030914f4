// Matrix products on the threads of a pool.
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

// The epilogue of Ops::MatMul into `out`, F32 or BF16, as the kernels take it.
EpilogueArgs EpilogueArgsOf(const Epilogue& epilogue, const Rows& out);
// That of Ops::MatMulGated.
EpilogueArgs GatedEpilogueArgsOf(const float* bias, const Rows& out);

// Cuts products into stripes of panels, each of which one thread computes. Same threading as Ops.
class CpuMatMul {
 public:
  // All outlive this.
  CpuMatMul(const Kernels& kernels, Device& device, ThreadPool& pool)
      : kernels_(kernels), device_(device), pool_(pool) {}

  // Bytes that products with matrices of up to `inputs` inputs need beside the operands.
  size_t ReserveBytes(int64_t inputs) const;
  // Takes them, unless it has as many, before the first such product. RESOURCE_EXHAUSTED as
  // Device::Allocate.
  absl::Status Reserve(int64_t inputs);
  void Release();

  // As Ops::MatMul.
  void MatMul(const Rows& x, const PackedMatrix& w, const Epilogue& epilogue, const Rows& out);
  // As Ops::MatMulGated.
  void MatMulGated(const Rows& x, const PackedMatrix& w, const float* bias, const Rows& out);

 private:
  static size_t RowsBytes(int64_t inputs);
  size_t WidenedBytes(int64_t inputs) const;
  void Run(const Rows& x, const PackedMatrix& w, const EpilogueArgs& epilogue);
  // All rows of `args` at once; fills in the rest of them.
  void RunBlock(MatMulArgs args, const MatMulNeeds& needs, int64_t panels);
  // The rows of `args` as kernels read them.
  const uint32_t* Pack(const MatMulArgs& args);

  const Kernels& kernels_;
  Device& device_;
  ThreadPool& pool_;
  int64_t reserved_inputs_ = 0;
  Buffer packed_rows_;
  Buffer widened_;  // of every worker
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_MATMUL_H_
