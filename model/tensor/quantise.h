// Quantises floats to blocks of this program's own types (I4_Gn and I8_Gn; see blocks.h).
#ifndef TLM_MODEL_TENSOR_QUANTISE_H_
#define TLM_MODEL_TENSOR_QUANTISE_H_

#include <cstdint>

#include "model/tensor/blocks.h"
#include "model/tensor/dtype.h"

namespace tlm {

// A block whose largest magnitude is below this counts as zeros; the reciprocal of this is far from
// overflow.
inline constexpr float kSmallestQuantised = 0x1p-100f;

// Quantises x [count], 1 <= count <= the block's elements, to one block of `type`, I4_Gn or I8_Gn;
// the elements after `count` get q = zero. `out` is as ReadBlock would fill it.
//
//   I8  zero is 128, scale = max |x| / 127, q = 128 + x * (127 / max |x|) rounded to the nearest,
//       ties to even: the rule for activations
//   I4  scale and zero (0 to 15) by a search for the least sum of importance * error^2: ranges
//       around all values, wider and narrower, and then the best scale for the integers found.
//       Never worse than zero = 8, scale = max |x| / 7, except by the rounding of these sums
//
// A block without a magnitude of kSmallestQuantised or more means zeros, with scale 0. Returns
// false, with the scale NaN, if a value is not finite. `importance` [count], finite and >= 0,
// affects only I4; null, or all zeros, means 1 for all. The result depends on the arguments alone:
// machines agree in every bit.
bool QuantiseBlock(DType type, const float* x, int64_t count, const float* importance,
                   BlockValues* out);

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_QUANTISE_H_
