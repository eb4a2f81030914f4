// Matrices of 8-bit weights; see kernels.h for what all kernels have in common.
//
// Element (n, k) is scale[n, g] * q[n, k], q from -127 to 127, g = k / kInt8Group. A row of
// activations is quantised likewise, a scale for each group: scale = max |x| / 127,
// q = x * (127 / max |x|) rounded to the nearest, ties to even. Then
//   sum = fma(float(sum over the group of q_x q_w), scale_x * scale_w, sum), groups ascending
// from 0, and then EpilogueArgs. Sums within a group are below 2^23, exact in int32 and in float:
// whatever instructions compute them agree, and so do the quantised rows of all tables.
//
// A group without a value of kInt8Smallest or more has scale 0 and counts as zeros. A group with a
// value that is not finite has the scale NaN, which makes the sums of its row NaN.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_INT8_H_
#define TLM_MODEL_OPS_CPU_KERNELS_INT8_H_

#include <cstdint>

#include "model/ops/cpu/kernels/matmul.h"

namespace tlm {

// Inputs that share a scale; the last group of a row may be shorter.
inline constexpr int64_t kInt8Group = 256;
// Inputs that a row is padded to a multiple of, in memory, with zeros.
inline constexpr int64_t kInt8InputStep = 64;
// The smallest magnitude that is not taken for zero: its reciprocal is far from overflow.
inline constexpr float kInt8Smallest = 0x1p-100f;
// Weights are stored as q + 128: products of unsigned by signed bytes are what processors have.
inline constexpr int kInt8Offset = 128;

constexpr int64_t Int8PaddedInputs(int64_t k) {
  return (k + kInt8InputStep - 1) / kInt8InputStep * kInt8InputStep;
}
constexpr int64_t Int8Groups(int64_t k) { return (k + kInt8Group - 1) / kInt8Group; }

// A panel of 16 outputs is its groups one after the other, each of
//   uint8  [inputs of the group / 4][16 outputs][4 inputs], q + kInt8Offset, padding included
//   float  [16 outputs], the scales
// in lines of 64 bytes: 16 lines of elements are a tile of 64 inputs. Outputs past the end have
// scale 0.
constexpr int64_t Int8GroupBytes(int64_t inputs) {
  return inputs * kPanel + kPanel * static_cast<int64_t>(sizeof(float));
}
constexpr int64_t Int8PanelBytes(int64_t k) {
  return Int8PaddedInputs(k) * kPanel +
         Int8Groups(k) * kPanel * static_cast<int64_t>(sizeof(float));
}

// Rows of activations as the products take them.
struct Int8Rows {
  int8_t* values = nullptr;    // [rows, Int8PaddedInputs(k)], zeros past k; at a border of 64 bytes
  int64_t stride = 0;          // values from one row to the next, a multiple of kInt8InputStep
  float* scales = nullptr;     // [rows, Int8Groups(k)]
  int32_t* offsets = nullptr;  // [rows, Int8Groups(k)], -kInt8Offset * the sum of q: what makes
                               // products with q + kInt8Offset those with q
};

// Quantises rows [begin, end) of x [rows, k] to the rows of the same number: activations, and
// weights that are being packed.
struct Int8QuantizeArgs {
  const void* x = nullptr;
  Storage x_type = Storage::kF32;  // or kBF16, kF16
  int64_t x_stride = 0;            // elements
  int64_t k = 0;
  int64_t begin = 0;
  int64_t end = 0;
  Int8Rows rows;
};

// The panels [panel_begin, panel_end) of rows [0, row_count). Gated: both are even. Row r of x is
// row first_row + r of epilogue.out.
struct Int8MatMulArgs {
  Int8Rows x;
  int64_t row_count = 0;
  int64_t first_row = 0;
  const void* w = nullptr;  // packed, from panel 0
  int64_t k = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  EpilogueArgs epilogue;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_INT8_H_
