// The storage formats of matrices on a device.
#ifndef TLM_MODEL_OPS_WEIGHT_FORMAT_H_
#define TLM_MODEL_OPS_WEIGHT_FORMAT_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

enum class WeightFormat {
  kAsGiven,   // the type in the checkpoint; F64 as F32
  kFloat32,   // float32, whatever the type: products without any rounding of activations
  kBFloat16,  // for matrices, not for a model: rounded, next to others in blocks
  kInt8,      // kI8G256 (see model/tensor/blocks.h); matrices already in blocks are unchanged
  kInt4,      // for a model: feed-forward networks as kInt4G32, others as kInt8; see FormatIn
  kInt4G32,   // kI4G32, and so on; matrices already in blocks are unchanged
  kInt4G64,
  kInt4G128,
  kInt4G256,
};

// The place of a matrix in a model.
enum class MatrixPlace { kTable, kAttention, kFeedForward };

// Returns the format of a matrix in a model stored as `format`: never kInt4.
//
// The embedding table (and head) and the projections of attention are a small part of a large
// model, but cause most of the loss with 4 bits.
WeightFormat FormatIn(MatrixPlace place, WeightFormat format);

// Returns the type that float matrices are quantised to; nullopt if they stay floats. For kInt4,
// returns the type for feed-forward networks.
std::optional<DType> BlockTypeOf(WeightFormat format);
// Whether there are 4-bit matrices, whose scales are chosen by their errors.
constexpr bool IsInt4(WeightFormat format) { return format >= WeightFormat::kInt4; }

// The names that flags use for a model's format: "auto" for kAsGiven, "float32", "int8", "int4",
// "int4:32" to "int4:256".
const char* WeightFormatName(WeightFormat format);
// Parses such a name; INVALID_ARGUMENT lists the names.
absl::StatusOr<WeightFormat> WeightFormatFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_WEIGHT_FORMAT_H_
