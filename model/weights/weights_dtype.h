// The element type of weights in a configuration or a flag.
#ifndef TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_
#define TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

// The type `torch_dtype` or `dtype` of a config.json names (float64 counts as float32), float32
// where neither does. INVALID_ARGUMENT for a text that is no JSON object or a name that is no text,
// UNIMPLEMENTED for another type.
absl::StatusOr<DType> WeightsDTypeOf(std::string_view config_json);

// "float32", "bfloat16" or "float16"; INVALID_ARGUMENT lists these for another name.
absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_WEIGHTS_DTYPE_H_
