// CpuMatMul of 8-bit weights by instructions that a processor may have beyond those of its table.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_INT8_VNNI_H_
#define TLM_MODEL_OPS_CPU_KERNELS_INT8_VNNI_H_

#include "model/ops/cpu/kernels/isa.h"
#include "model/ops/cpu/kernels/kernels.h"

namespace tlm {

// `table`, that of `isa`, or one that computes the same bits faster: sums of integers are the same
// however they are added up, so that these instructions need no instruction set of their own.
const Kernels& WithVnniInt8(const Kernels& table, Isa isa);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_INT8_VNNI_H_
