// A matrix of the CPU backend, in any storage format.
#ifndef TLM_MODEL_OPS_CPU_CPU_MATRIX_H_
#define TLM_MODEL_OPS_CPU_CPU_MATRIX_H_

#include <cstdint>

#include "model/ops/ops.h"

namespace tlm {

// Every Matrix that CpuOps packs is one.
class CpuMatrix : public Matrix {
 public:
  // Row `row` as float32, k values; not of a gated matrix.
  virtual void CopyRow(int64_t row, float* out) const = 0;
  // Adds it to `to`.
  virtual void AddRow(int64_t row, float* to) const = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_MATRIX_H_
