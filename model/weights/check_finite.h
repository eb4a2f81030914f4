// Checks that weights are finite.
#ifndef TLM_MODEL_WEIGHTS_CHECK_FINITE_H_
#define TLM_MODEL_WEIGHTS_CHECK_FINITE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Returns OK if every element is finite; an F64 must also be finite as a float. Otherwise
// INVALID_ARGUMENT names the tensor, which is also its FieldOf(), the flat index of the first bad
// element as stored, and its value. Elements that are not F64, F32, BF16, F16 or in blocks also
// give INVALID_ARGUMENT. The data are on the host; floats are aligned to the element size. Reads
// the data once, at about memory speed, with its own threads if the tensor is large.
absl::Status CheckFinite(const TensorView& tensor, const std::string& name);

// Returns the flat index of the first element that is not finite, or tensor.elements(); uses only
// the calling thread. The elements are F64, F32, BF16, F16 or in blocks.
int64_t FirstNonFinite(const TensorView& tensor);

struct LargestElement {
  int64_t index = 0;  // flat
  double value = 0;
};

// Returns the first element of the largest magnitude in a tensor that CheckFinite accepts; looks at
// one element at a time.
LargestElement FindLargest(const TensorView& tensor);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_CHECK_FINITE_H_
