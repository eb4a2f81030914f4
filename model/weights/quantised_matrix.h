// Matrices as AWQ, GPTQ, compressed-tensors and FP8 checkpoints store them, and their conversion to
// blocks.
//
// The module NAME of a matrix [n, k] (outputs, inputs) has several tensors. G is the number of
// groups of inputs that share a scale; "/" rounds up; 32-bit integers hold 32 / bits elements, the
// first in the lowest bits, along the dimension marked with "*":
//
//   format          integers                     scales                    zeros
//   kAwq            NAME.qweight [k, n*]         NAME.scales [G, n]        NAME.qzeros [G, n*]
//   kGptq           NAME.qweight [k*, n]         NAME.scales [G, n]        NAME.qzeros [G, n*]
//   kPackQuantised  NAME.weight_packed [n, k*]   NAME.weight_scale [n, G]  NAME.weight_zero_point
//                                                                          [n*, G]
//   kIntQuantised   NAME.weight int8 [n, k]      NAME.weight_scale [n, G]  NAME.weight_zero_point
//                                                                          int8 [n, G]
//
//   element = (integer - zero) * scale
//
// or 8-bit floats, e4m3, where each tile of g outputs and h inputs has a scale
//
//   format          floats                       scales
//   kFloat8         NAME.weight [n, k]           NAME.weight_scale [n / g, k / h], or one element
//   kFloat8Blocks   NAME.weight [n, k]           NAME.weight_scale_inv [n / g, k / h]
//
//   element = float * scale
//
// in float32; scales are F16, BF16 or F32. An AWQ integer's eight elements are in the order 0, 2,
// 4, 6, 1, 3, 5, 7. With zeros_less_one, kGptq stores z for a zero of (z + 1) mod 2^bits. Elements
// and zeros of compressed-tensors are signed; packed ones are stored plus 2^(bits - 1). Input i
// belongs to group i / group size, or to the group in NAME.g_idx or NAME.weight_g_idx [k]: int32 or
// int64, with equally many inputs in each group; all of them -1 means no such tensor.
// NAME.weight_shape, int32 or int64, has n, k.
#ifndef TLM_MODEL_WEIGHTS_QUANTISED_MATRIX_H_
#define TLM_MODEL_WEIGHTS_QUANTISED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/checkpoint.h"
#include "model/weights/name_map.h"

namespace tlm {

// Elements of an integer tensor at (input or group, output): the byte at the sum of the two places'
// offsets, shifted right by the sum of their shifts.
class PackedIntegers {
 public:
  struct Place {
    int64_t offset = 0;
    int shift = 0;
  };
  struct Axis {
    int64_t stride = 0;           // bytes between stored integers along the axis
    int elements = 1;             // elements of one stored integer along the axis
    bool is_interleaved = false;  // elements are in AWQ's order
  };

  PackedIntegers() = default;
  // A stored x means (x + add) mod 2^bits.
  PackedIntegers(const void* data, int bits, int add, Axis inputs, Axis outputs)
      : data_(static_cast<const uint8_t*>(data)),
        bits_(bits),
        add_(add),
        inputs_(inputs),
        outputs_(outputs) {}

  Place OfInput(int64_t index) const { return PlaceOf(inputs_, index); }
  Place OfOutput(int64_t index) const { return PlaceOf(outputs_, index); }
  uint8_t At(const Place& input, const Place& output) const {
    const uint8_t byte = data_[input.offset + output.offset];
    return static_cast<uint8_t>(((byte >> (input.shift + output.shift)) + add_) &
                                ((1 << bits_) - 1));
  }
  bool empty() const { return data_ == nullptr; }

 private:
  Place PlaceOf(const Axis& axis, int64_t index) const;

  const uint8_t* data_ = nullptr;
  int bits_ = 8;
  int add_ = 0;
  Axis inputs_, outputs_;
};

// Views of a checkpoint's tensors. Any thread may read.
struct QuantisedMatrix {
  // Writes the blocks of outputs [first, first + count) to `out`, where output `first` begins. The
  // stored tensors are in memory. Returns INVALID_ARGUMENT for a scale that makes elements
  // non-finite.
  absl::Status Convert(int64_t first, int64_t count, std::byte* out) const;

  // In blocks of 256, 128, 64 or 32 elements, the largest that divides a group; floats have blocks
  // of 128 or 32. Has no input_order. The data pointer is the pointer of the integers.
  TensorView view;
  std::vector<int32_t> input_order;  // input of each element of view; empty: natural order
  std::vector<TensorView> stored;    // the tensors with the values
  std::vector<std::string> names;    // names of all its tensors

  int64_t group_size = 0;
  int64_t group_outputs = 1;
  const uint8_t* floats = nullptr;  // 8-bit floats; null: the elements are integers
  PackedIntegers integers;
  PackedIntegers zeros;  // by group; empty: all are `zero`
  int zero = 0;
  TensorView scales;  // [groups, outputs], or [outputs / group_outputs, groups] if not by group
  bool scales_by_group = false;
  std::string scales_name;

 private:
  absl::Status ConvertFloats(int64_t first, int64_t count, std::byte* out) const;
  absl::Status BadScale(int64_t index, float scale) const;
};

// Finds the quantised matrix of `spec`, whose float tensor is called "NAME.weight" or by its other
// name (see name_map.h). Returns nullopt if the checkpoint has it in no format of
// config.quantisation. Checks all shapes and types, and reads the small tensors of shapes and
// groups. INVALID_ARGUMENT names the tensor (FieldOf), its value and what config and shape require.
absl::StatusOr<std::optional<QuantisedMatrix>> FindQuantisedMatrix(const ModelConfig& config,
                                                                   const TensorSpec& spec,
                                                                   const Checkpoint& checkpoint);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_QUANTISED_MATRIX_H_
