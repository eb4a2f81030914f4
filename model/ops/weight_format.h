// The storage format of matrices on a device.
#ifndef TLM_MODEL_OPS_WEIGHT_FORMAT_H_
#define TLM_MODEL_OPS_WEIGHT_FORMAT_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

enum class WeightFormat {
  kAsGiven,  // their type in the checkpoint; F64 as F32
  kFloat32,  // as float32, whatever their type: products without any rounding of activations
  kInt8,     // kI8G256 (see model/tensor/blocks.h); matrices that are in blocks stay as they are
  kInt4G32,  // kI4G32 and so on; likewise
  kInt4G64,
  kInt4G128,
  kInt4G256,
};

// The type that matrices of floats are quantised to; none for kAsGiven and kFloat32.
std::optional<DType> BlockTypeOf(WeightFormat format);

// As flags name them: "auto" for kAsGiven, "float32", "int8", "int4:32" to "int4:256".
const char* WeightFormatName(WeightFormat format);
// Also "int4" for kInt4G32. INVALID_ARGUMENT lists these for another name.
absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_WEIGHT_FORMAT_H_
