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

// One block of `type`, I4_Gn or I8_Gn, that means the closest to x [count], 1 <= count <= the
// block's elements; those behind get q = zero. `out` as ReadBlock would fill it.
//
//   I8  zero is 128, scale = max |x| / 127, q = 128 + x * (127 / max |x|) rounded to the nearest,
//       ties to even: the same rule as of activations
//   I4  zero is 8, scale = max |x| / 7, q likewise
//
// A block without a magnitude of kSmallestQuantised or more means zeros, with scale 0. False, with
// the scale NaN, if a value is not finite. `importance` [count], or null, weighs the squares of the
// errors: finite, >= 0. The result depends on the arguments alone, not on the machine.
bool QuantiseBlock(DType type, const float* x, int64_t count, const float* importance,
                   BlockValues* out);

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_QUANTISE_H_
