#include "model/weights/weights_dtype.h"

#include <string>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {

absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return InvalidArgument("is {}, it may be float32, bfloat16 or float16", Quoted(name));
}

absl::StatusOr<DType> WeightsDTypeOf(std::string_view config_json) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJson(config_json));
  if (!object.is_object()) return InvalidArgument("is {}, not a JSON object", object.type_name());
  for (const char* const key : {"torch_dtype", "dtype"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_string())
      return InvalidArgument("{} is {}, not a text", key, found->type_name());
    const std::string& name = found->get_ref<const std::string&>();
    if (name == "float64") return DType::kF32;
    const absl::StatusOr<DType> dtype = WeightsDTypeFromName(name);
    if (!dtype.ok()) return Unimplemented("{} {}", key, std::string(dtype.status().message()));
    return *dtype;
  }
  return DType::kF32;
}

}  // namespace tlm
