// Checks that weights are finite.
#ifndef TLM_MODEL_WEIGHTS_CHECK_FINITE_H_
#define TLM_MODEL_WEIGHTS_CHECK_FINITE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// OK if no element is NaN or infinite, or an F64 that is so as a float. INVALID_ARGUMENT names the
// tensor, which is also its FieldOf(), the flat index of the first such element as stored and its
// value; also when the elements are not F64, F32, BF16, F16 or in blocks. The data are on the host,
// of floats aligned to the element size. Reads them once, at about memory speed, with threads of
// its own where they are many.
absl::Status CheckFinite(const TensorView& tensor, const std::string& name);

// The flat index of the first element that is not finite, tensor.elements() if there is none, found
// by the calling thread alone. The elements are F64, F32, BF16, F16 or in blocks.
int64_t FirstNonFinite(const TensorView& tensor);

struct LargestElement {
  int64_t index = 0;  // counted flat
  double value = 0;
};

// The first element of the largest magnitude, of a tensor that CheckFinite accepts; one by one.
LargestElement FindLargest(const TensorView& tensor);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_CHECK_FINITE_H_
