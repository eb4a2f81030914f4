// Products with matrices of integer weights; kernels.h describes what all kernels share.
//
// Weight (n, k) is (q - zero) * (scale * s) - min * t, like a block's element
// (model/tensor/blocks.h): q has 4, 5, 6 or 8 bits; a group of inputs has scale, min and zero;
// sub-blocks of 16 or 32 inputs have the factors s and t. A row of activations is quantised in the
// same groups: scale_x = max |x| / 127, x' = x * (127 / max |x|) rounded to the nearest, ties to
// even. Then, for the groups of an output ascending, from sum = 0:
//   sum = fma(float(sum over the group of s (q - zero) x'), scale_x * scale, sum)
//   sum = fma(float(sum over the group of t x'), -(scale_x * min), sum)    if there are minima
// and then EpilogueArgs. Sums of integers are below 2^31 and so exact: all instructions that
// compute them agree, for any number of rows, and so do the quantised rows of all tables.
//
// A group of activations without a value of kQuantSmallest or more has scale 0 and counts as zeros.
// A group with a value that is not finite has the scale NaN, which makes the sums of its row NaN.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_QUANT_H_
#define TLM_MODEL_OPS_CPU_KERNELS_QUANT_H_

#include <cstdint>

#include "model/ops/cpu/kernels/matmul.h"

namespace tlm {

// The format that all weights of a matrix share.
struct QuantLayout {
  int bits = 8;              // bits of q: 4, 5, 6 or 8
  int group = 256;           // inputs: 32, 64, 128 or 256; the last group of a row may be shorter
  int sub_block = 0;         // inputs: 16 or 32, and k is a multiple of group = 256; 0: no factors
  bool has_min = false;      // if so, zero is 0; with factors, s is below 64 and bits are at most 5
  bool half_scales = false;  // scale and min are binary16, else float32
  int zero = 128;            // -1: each group of an output has its own, without factors
};

// Inputs of a panel that are stored together. The last chunk may have fewer: a multiple of
// kQuantStep, padded with q = zero.
inline constexpr int64_t kQuantChunk = 256;
inline constexpr int64_t kQuantStep = 64;
// Smaller magnitudes count as zero; the reciprocal of this is far from overflow.
inline constexpr float kQuantSmallest = 0x1p-100f;

constexpr int64_t QuantPaddedInputs(int64_t k) {
  return (k + kQuantStep - 1) / kQuantStep * kQuantStep;
}
constexpr int64_t QuantGroups(const QuantLayout& layout, int64_t inputs) {
  return (inputs + layout.group - 1) / layout.group;
}

// A panel of 16 outputs is its chunks one after the other. A chunk is, in this order,
//   q        8 bits: [inputs / 4][16 outputs][4 inputs].
//            Fewer: the low 4 bits in lines of 64 bytes, with 8 inputs each; a byte has the bits of
//            one of the first four inputs in its low half, of one of the others in its high half.
//            Then the fifth bits, a line for 32 inputs: bit b of a byte belongs to one of inputs
//            4 b to 4 b + 3. Or the two high bits of six, a line for 16 inputs, in bits 2 b and
//            2 b + 1 likewise.
//   scale    [groups][16 outputs]
//   min      [groups][16 outputs], if there are minima
//   s        int8 [sub-blocks][16 outputs], if there are factors
//   t        uint8 [sub-blocks / 2][16 outputs][2 sub-blocks], if there are minima, too
//   zero     uint8 [groups][16 outputs], if each group has its own
// Missing outputs have scale 0 and min 0.
struct QuantPlaces {
  int64_t high, scale, min, s, t, zero, bytes;  // offsets in the chunk; bytes: whole lines
};
constexpr QuantPlaces PlacesOf(const QuantLayout& layout, int64_t inputs) {
  const int64_t scale_bytes = layout.half_scales ? 2 : 4;
  const int64_t groups = QuantGroups(layout, inputs) * kPanel;
  const int64_t sub_blocks = layout.sub_block > 0 ? inputs / layout.sub_block * kPanel : 0;
  QuantPlaces at{};
  at.high = inputs * kPanel / 2;
  at.scale = inputs * kPanel * layout.bits / 8;
  at.min = at.scale + groups * scale_bytes;
  at.s = at.min + (layout.has_min ? groups * scale_bytes : 0);
  at.t = at.s + sub_blocks;
  at.zero = at.t + (layout.has_min ? sub_blocks : 0);
  const int64_t end = at.zero + (layout.zero < 0 ? groups : 0);
  at.bytes = (end + 63) / 64 * 64;
  return at;
}
constexpr int64_t QuantPanelBytes(const QuantLayout& layout, int64_t k) {
  const int64_t padded = QuantPaddedInputs(k);
  const int64_t rest = padded % kQuantChunk;
  return padded / kQuantChunk * PlacesOf(layout, kQuantChunk).bytes +
         (rest > 0 ? PlacesOf(layout, rest).bytes : 0);
}

// Quantised rows of activations, as the products read them.
struct QuantRows {
  int8_t* values = nullptr;  // [rows, QuantPaddedInputs(k)], zeros after k; aligned to 64 bytes
  int64_t stride = 0;        // values from one row to the next, a multiple of kQuantStep
  float* scales = nullptr;   // [rows, groups]
  int32_t* group_sums = nullptr;  // [rows, groups], sums of values
  int16_t* sums16 = nullptr;      // [rows, QuantPaddedInputs(k) / 16], sums of 16 values
  int16_t* sums32 = nullptr;      // [rows, QuantPaddedInputs(k) / 32], sums of 32 values
};

// Quantises rows [begin, end) of x [rows, k] to the rows with the same numbers.
struct QuantizeArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;                  // elements
  const int32_t* input_order = nullptr;  // [k]: value i is x[input_order[i]]; null: x[i]
  int64_t k = 0;
  int64_t group = 0;
  int64_t begin = 0;
  int64_t end = 0;
  QuantRows rows;
};

// Multiplies rows [0, row_count) by panels [panel_begin, panel_end). Gated: both are even. Row r of
// x is row first_row + r of epilogue.out.
struct QuantMatMulArgs {
  QuantRows x;
  int64_t row_count = 0;
  int64_t first_row = 0;
  const void* w = nullptr;  // packed, from panel 0
  QuantLayout layout;
  int64_t k = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  EpilogueArgs epilogue;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_QUANT_H_
