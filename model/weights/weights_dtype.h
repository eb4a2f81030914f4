// The element type of weights in a configuration or a flag.
#ifndef TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_
#define TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

// "float32", "bfloat16" or "float16"; INVALID_ARGUMENT lists these for another name.
absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_
