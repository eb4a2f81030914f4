#include "model/ops/weight_format.h"

#include <cstddef>
#include <iterator>

#include "model/base/errors.h"

namespace tlm {
namespace {

// Indexed by WeightFormat.
struct FormatRow {
  const char* name;
  std::optional<DType> blocks;
};
constexpr FormatRow kFormats[] = {
    {"auto", std::nullopt},     {"float32", std::nullopt},    {"bfloat16", std::nullopt},
    {"int8", DType::kI8G256},   {"int4", DType::kI4G32},      {"int4:32", DType::kI4G32},
    {"int4:64", DType::kI4G64}, {"int4:128", DType::kI4G128}, {"int4:256", DType::kI4G256},
};
static_assert(std::size(kFormats) == static_cast<size_t>(WeightFormat::kInt4G256) + 1);

}  // namespace

WeightFormat FormatIn(MatrixPlace place, WeightFormat format) {
  if (format != WeightFormat::kInt4) return format;
  return place == MatrixPlace::kFeedForward ? WeightFormat::kInt4G32 : WeightFormat::kInt8;
}

std::optional<DType> BlockTypeOf(WeightFormat format) {
  return kFormats[static_cast<size_t>(format)].blocks;
}

const char* WeightFormatName(WeightFormat format) {
  return kFormats[static_cast<size_t>(format)].name;
}

absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (name == kFormats[i].name && format != WeightFormat::kBFloat16) return format;
  }
  return InvalidArgument(
      "is '{}', it may be auto, float32, int8, int4, int4:32, int4:64, int4:128 or int4:256", name);
}

}  // namespace tlm
