// The storage format of matrices on a device.
#ifndef TLM_MODEL_OPS_WEIGHT_FORMAT_H_
#define TLM_MODEL_OPS_WEIGHT_FORMAT_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

enum class WeightFormat {
  kAsGiven,   // their type in the checkpoint; F64 as F32
  kFloat32,   // as float32, whatever their type: products without any rounding of activations
  kBFloat16,  // of matrices, not of a model: rounded, beside others in blocks
  kInt8,      // kI8G256 (see model/tensor/blocks.h); matrices that are in blocks stay as they are
  kInt4,      // of a model: feed-forward networks as kInt4G32, the others as kInt8; see FormatIn
  kInt4G32,   // kI4G32 and so on; likewise
  kInt4G64,
  kInt4G128,
  kInt4G256,
};

// The place of a matrix in a model.
enum class MatrixPlace { kTable, kAttention, kFeedForward };

// The format of a matrix of a model that is stored in `format`: never kInt4.
//
// The embedding table (and head) and the projections of attention are a small part of a large
// model, but most of the loss of 4 bits is theirs.
WeightFormat FormatIn(MatrixPlace place, WeightFormat format);

// The type that matrices of floats are quantised to; none where they stay floats. Of kInt4 that
// of feed-forward networks.
std::optional<DType> BlockTypeOf(WeightFormat format);
// Whether there are matrices of 4 bits, whose scales are chosen by their errors.
constexpr bool IsInt4(WeightFormat format) { return format >= WeightFormat::kInt4; }

// As flags name those of models: "auto" for kAsGiven, "float32", "int8", "int4", "int4:32" to
// "int4:256".
const char* WeightFormatName(WeightFormat format);
// INVALID_ARGUMENT lists these for another name.
absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_WEIGHT_FORMAT_H_
