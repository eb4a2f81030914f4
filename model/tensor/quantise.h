// Floats to blocks of this program's own types (I4_Gn and I8_Gn; see blocks.h).
#ifndef TLM_MODEL_TENSOR_QUANTISE_H_
#define TLM_MODEL_TENSOR_QUANTISE_H_

#include <cstdint>

#include "model/tensor/blocks.h"
#include "model/tensor/dtype.h"

namespace tlm {

// The smallest largest magnitude of a block that does not count as zeros: its reciprocal is far
// from overflow.
inline constexpr float kSmallestQuantised = 0x1p-100f;

// One block of `type`, I4_Gn or I8_Gn, for x [count], 1 <= count <= the block's elements; those
// behind get q = zero. `out` as ReadBlock would fill it.
//
//   I8  zero is 128, scale = max |x| / 127, q = 128 + x * (127 / max |x|) rounded to the nearest,
//       ties to even: the same rule as of activations
//   I4  scale and zero (0 to 15) by a search for the least sum of importance * error^2: ranges
//       around all values, wider and narrower, and then the best scale for the integers found.
//       Never worse than zero = 8, scale = max |x| / 7, but for the rounding of these sums
//
// A block without a magnitude of kSmallestQuantised or more means zeros, with scale 0. False, with
// the scale NaN, if a value is not finite. `importance` [count], finite and >= 0, matters to I4
// alone; null, or nothing but zeros: 1 for all. The result depends on the arguments alone: machines
// agree in every bit.
bool QuantiseBlock(DType type, const float* x, int64_t count, const float* importance,
                   BlockValues* out);

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_QUANTISE_H_
