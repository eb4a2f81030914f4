// The storage format of matrices on a device.
#ifndef TLM_MODEL_OPS_WEIGHT_FORMAT_H_
#define TLM_MODEL_OPS_WEIGHT_FORMAT_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

enum class WeightFormat {
  kAsGiven,  // their type in the checkpoint; F64 as F32
  kInt8,     // 8-bit integers, a float32 scale per group
};

// As flags name them: "auto" for kAsGiven, "int8". INVALID_ARGUMENT lists these for another name.
absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_WEIGHT_FORMAT_H_
