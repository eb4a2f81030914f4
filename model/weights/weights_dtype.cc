#include "model/weights/weights_dtype.h"

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {

absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return InvalidArgument("is {}, it may be float32, bfloat16 or float16", Quoted(name));
}

}  // namespace tlm
