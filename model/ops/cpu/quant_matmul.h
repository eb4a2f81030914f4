// Computes products with matrices of integer weights on the threads of a pool.
#ifndef TLM_MODEL_OPS_CPU_QUANT_MATMUL_H_
#define TLM_MODEL_OPS_CPU_QUANT_MATMUL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/quant_matrix.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Rows are quantised once per product, into memory that Reserve allocates. Threading is as for Ops.
class CpuQuantMatMul {
 public:
  // All arguments outlive this object.
  CpuQuantMatMul(const Kernels& kernels, Device& device, ThreadPool& pool)
      : kernels_(kernels), device_(device), pool_(pool) {}

  // The bytes for quantised rows of up to `inputs` values: `rows` of them, or fewer within a limit.
  static size_t ScratchBytes(int64_t rows, int64_t inputs);
  // Allocates these bytes, unless there is enough. Returns RESOURCE_EXHAUSTED like Allocate.
  absl::Status Reserve(int64_t rows, int64_t inputs);
  void Release() { scratch_ = Buffer(); }

  // Implement Ops::MatMul and Ops::MatMulGated; x is float32, its rows within the reserved inputs.
  void MatMul(const Rows& x, const QuantMatrix& w, const Epilogue& epilogue, const Rows& out);
  void MatMulGated(const Rows& x, const QuantMatrix& w, const float* bias, const Rows& out);

 private:
  void Run(const Rows& x, const QuantMatrix& w, const EpilogueArgs& epilogue);
  void Quantize(const Rows& x, const QuantMatrix& w, int64_t first, const QuantRows& rows,
                int64_t count);
  void Multiply(const QuantRows& rows, int64_t first, int64_t count, const QuantMatrix& w,
                const EpilogueArgs& epilogue);

  const Kernels& kernels_;
  Device& device_;
  ThreadPool& pool_;
  Buffer scratch_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_QUANT_MATMUL_H_
