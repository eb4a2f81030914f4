#include "model/ops/weight_format.h"

#include "model/base/errors.h"

namespace tlm {

std::optional<DType> BlockTypeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kAsGiven:
    case WeightFormat::kFloat32:
      break;
    case WeightFormat::kInt8:
      return DType::kI8G256;
    case WeightFormat::kInt4G32:
      return DType::kI4G32;
    case WeightFormat::kInt4G64:
      return DType::kI4G64;
    case WeightFormat::kInt4G128:
      return DType::kI4G128;
    case WeightFormat::kInt4G256:
      return DType::kI4G256;
  }
  return std::nullopt;
}

absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name) {
  if (name == "auto") return WeightFormat::kAsGiven;
  if (name == "float32") return WeightFormat::kFloat32;
  if (name == "int8") return WeightFormat::kInt8;
  if (name == "int4" || name == "int4:32") return WeightFormat::kInt4G32;
  if (name == "int4:64") return WeightFormat::kInt4G64;
  if (name == "int4:128") return WeightFormat::kInt4G128;
  if (name == "int4:256") return WeightFormat::kInt4G256;
  return InvalidArgument(
      "is '{}', it may be auto, float32, int8, int4, int4:32, int4:64, int4:128 or int4:256", name);
}

}  // namespace tlm
