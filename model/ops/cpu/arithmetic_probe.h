// What a processor makes of products whose order of additions it chooses itself.
#ifndef TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_
#define TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/device.h"

namespace tlm {

// 16 hexadecimal digits of the bits of products of bfloat16 rows and weights: of ordinary values,
// of such as cancel, and of some whose products are subnormal. Kernels that agree on them may be
// taken for each other's equals, others may not. Takes memory of `device` meanwhile.
// RESOURCE_EXHAUSTED as Allocate.
absl::StatusOr<std::string> ArithmeticProbe(const Kernels& kernels, Device& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_ARITHMETIC_PROBE_H_
