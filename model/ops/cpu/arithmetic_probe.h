// A digest of products whose order of additions the processor chooses.
#ifndef TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_
#define TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/device.h"

namespace tlm {

// Returns 16 hexadecimal digits that hash the bits of products of bfloat16 rows and weights:
// ordinary values, cancelling ones, and subnormal products. Kernels with the same digest count as
// giving the same bits, others do not. Allocates memory of `device` meanwhile. Returns
// RESOURCE_EXHAUSTED like Allocate.
absl::StatusOr<std::string> ArithmeticProbe(const Kernels& kernels, Device& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_
