#include "model/ops/weight_format.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name) {
  if (name == "auto") return WeightFormat::kAsGiven;
  if (name == "int8") return WeightFormat::kInt8;
  return InvalidArgument("is '{}', it may be auto or int8", name);
}

}  // namespace tlm
