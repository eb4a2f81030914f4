#include "model/ops/weight_format.h"

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kAsGiven,  WeightFormat::kFloat32,
                                     WeightFormat::kInt8,     WeightFormat::kInt4,
                                     WeightFormat::kInt4G32,  WeightFormat::kInt4G64,
                                     WeightFormat::kInt4G128, WeightFormat::kInt4G256};

}  // namespace

WeightFormat FormatIn(MatrixPlace place, WeightFormat format) {
  if (format != WeightFormat::kInt4) return format;
  return place == MatrixPlace::kFeedForward ? WeightFormat::kInt4G32 : WeightFormat::kInt8;
}

std::optional<DType> BlockTypeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kAsGiven:
    case WeightFormat::kFloat32:
    case WeightFormat::kBFloat16:
      break;
    case WeightFormat::kInt8:
      return DType::kI8G256;
    case WeightFormat::kInt4:
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

const char* WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kAsGiven:
      return "auto";
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
    case WeightFormat::kInt4G32:
      return "int4:32";
    case WeightFormat::kInt4G64:
      return "int4:64";
    case WeightFormat::kInt4G128:
      return "int4:128";
    case WeightFormat::kInt4G256:
      return "int4:256";
  }
  return "?";
}

absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name) {
  for (const WeightFormat format : kFormats) {
    if (name == WeightFormatName(format)) return format;
  }
  return InvalidArgument(
      "is '{}', it may be auto, float32, int8, int4, int4:32, int4:64, int4:128 or int4:256", name);
}

}  // namespace tlm
