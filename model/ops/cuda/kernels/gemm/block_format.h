// The layout in device memory of weights in blocks (model/tensor/blocks.h): constants and offsets,
// for host and kernels.
//
//   strip    32 rows of the matrix; its cells are stored one after the other
//   cell     256 inputs of a strip. The last cell has 128 if that is enough
//   span     128 inputs of a cell
//   unit     32 inputs
//   step     16 inputs: the K of one mma
//
// In each step and row, a lane of a warp needs four elements of the mma's 16 x 16 operand: inputs
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, with t = lane % 4. A lane's elements are stored together: one
// 16-byte load gives it all its elements of 128 inputs of a row (4 bits) or of 64 inputs (8 bits).
// A cell has these arrays:
//
//   low      the integers, or their low 4 bits.
//            4 bits: [span][row][t] of 16 bytes. Word w has steps 2 w and 2 w + 1 of the span.
//            Nibbles j = 0 .. 3 are inputs 2 t and 2 t + 8 of the first step, then of the second;
//            nibbles j + 4 are the inputs after these, 2 t + 1 and so on.
//            8 bits: [span][half][row][t] of 16 bytes. Word w has the four inputs of step w of the
//            half, in the order above.
//   high     the bits above 4: [span][row][t] of 32 x 1 or 2 bits, one word for 4 or 2 units. Byte
//            b belongs to the two nibbles of byte b in each unit's word of low bits: its low half
//            has the high bits of the lower nibbles, its high half serves the upper nibbles,
//            units ascending.
//   entries  [unit][row]: the scales or factors of 32 inputs
//   heads    [group][row]: the scales of a group of inputs
//   zeros    [group][row]: zero points, a byte each
//
// Every array of a cell begins at a multiple of 16 bytes. Padding rows and inputs have scales of 0.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_FORMAT_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_FORMAT_H_

#include <cstdint>

// For functions that the host also calls, which has no simt.h.
#ifdef __CUDACC__
#define TLM_ON_BOTH __host__ __device__
#else
#define TLM_ON_BOTH
#endif

namespace tlm {

inline constexpr int kStripRows = 32;
inline constexpr int kCellInputs = 256;
inline constexpr int kSpanInputs = 128;
inline constexpr int kUnitInputs = 32;
inline constexpr int kStepInputs = 16;
inline constexpr int kMaxSpans = kCellInputs / kSpanInputs;

// Where the scale, s, min and t of an element (blocks.h) are stored. d, m and dmin are float16.
enum class BlockScales : int32_t {
  kHalf,           // entries: d
  kHalfMin,        // entries: d, -m
  kFactorMin,      // entries: s and t, one byte each; heads: d, dmin
  kTwoFactors,     // entries: s of each 16 inputs, signed bytes; heads: d
  kFloat,          // heads: the scale, in float32; zeros
  kFloatElements,  // heads: the scale, in float32; q has the bits of E4M3 (model/tensor/fp8.h)
};

struct StripFormat {
  int32_t low_bits = 8;   // 4 or 8
  int32_t high_bits = 0;  // 0; 1 and 2 for types of 5 and 6 bits
  BlockScales scales = BlockScales::kHalf;
  int32_t group_log2 = 0;   // inputs per head, 32 to 256, as a logarithm; 0: there are no heads
  int32_t zero = 0;         // the zero point, unless each group has its own
  bool has_values = false;  // q is an index into kIq4NlValues

  TLM_ON_BOTH constexpr int entry_bytes() const {
    if (scales == BlockScales::kFloat || scales == BlockScales::kFloatElements) return 0;
    return scales == BlockScales::kHalfMin ? 4 : 2;
  }
  TLM_ON_BOTH constexpr int head_bytes() const {
    if (group_log2 == 0) return 0;
    return scales == BlockScales::kTwoFactors ? 2 : 4;
  }
  TLM_ON_BOTH constexpr int zero_bytes() const { return scales == BlockScales::kFloat ? 1 : 0; }

  // For low_bits 4: the bit of a word at which the byte with element i (of a lane's four of a step)
  // begins, and the place of the element's high bits within that byte.
  TLM_ON_BOTH static constexpr int BytePlace(int step, int i) { return 8 * (step % 2 + i % 2 * 2); }
  TLM_ON_BOTH constexpr int HighPlace(int step, int i) const {
    return i / 2 * 4 + step / 2 % (4 / high_bits) * high_bits;
  }

  TLM_ON_BOTH constexpr int groups(int spans) const {
    return group_log2 == 0 ? 0 : (spans * kSpanInputs + (1 << group_log2) - 1) >> group_log2;
  }
  // Byte offsets of the arrays in a cell of `spans` spans.
  TLM_ON_BOTH constexpr int high_at(int spans) const {
    return spans * kStripRows * kSpanInputs / 8 * low_bits;
  }
  TLM_ON_BOTH constexpr int entries_at(int spans) const {
    return high_at(spans) + spans * kStripRows * kSpanInputs / 8 * high_bits;
  }
  TLM_ON_BOTH constexpr int heads_at(int spans) const {
    return entries_at(spans) + spans * (kSpanInputs / kUnitInputs) * kStripRows * entry_bytes();
  }
  TLM_ON_BOTH constexpr int zeros_at(int spans) const {
    return heads_at(spans) + groups(spans) * kStripRows * head_bytes();
  }
  TLM_ON_BOTH constexpr int cell_bytes(int spans) const {
    return zeros_at(spans) + groups(spans) * kStripRows * zero_bytes();
  }
};

// Returns the format with these fields. `group_log2` matters only for float32 scales; the rest
// follows.
TLM_ON_BOTH constexpr StripFormat StripFormatOf(int low_bits, int high_bits, BlockScales scales,
                                                bool has_values, int group_log2) {
  const bool is_signed = scales == BlockScales::kHalf || scales == BlockScales::kTwoFactors;
  const bool has_factors = scales == BlockScales::kTwoFactors || scales == BlockScales::kFactorMin;
  const bool has_floats = scales == BlockScales::kFloat || scales == BlockScales::kFloatElements;
  return {low_bits,
          high_bits,
          scales,
          has_factors  ? 8
          : has_floats ? group_log2
                       : 0,
          !is_signed                    ? 0
          : low_bits == 8 || has_values ? 128
                                        : 8 << high_bits,
          has_values};
}

// The formats that kernels are compiled for: low_bits, high_bits, scales, has_values. Templates
// take the index.
struct StripKind {
  int low_bits;
  int high_bits;
  BlockScales scales;
  bool has_values = false;
};
inline constexpr StripKind kStripKinds[] = {
    {8, 0, BlockScales::kHalf},           // 0: Q8_0
    {8, 0, BlockScales::kFloat},          // 1: I8
    {8, 0, BlockScales::kFloatElements},  // 2: F8
    {4, 0, BlockScales::kHalf},           // 3: Q4_0
    {4, 0, BlockScales::kHalf, true},     // 4: IQ4_NL
    {4, 0, BlockScales::kHalfMin},        // 5: Q4_1
    {4, 0, BlockScales::kFactorMin},      // 6: Q4_K
    {4, 0, BlockScales::kFloat},          // 7: I4
    {4, 1, BlockScales::kHalf},           // 8: Q5_0
    {4, 1, BlockScales::kHalfMin},        // 9: Q5_1
    {4, 1, BlockScales::kFactorMin},      // 10: Q5_K
    {4, 2, BlockScales::kTwoFactors},     // 11: Q6_K
};
inline constexpr int kStripKindCount = sizeof(kStripKinds) / sizeof(kStripKinds[0]);

TLM_ON_BOTH constexpr StripFormat FormatOfKind(const StripKind& kind, int group_log2) {
  return StripFormatOf(kind.low_bits, kind.high_bits, kind.scales, kind.has_values, group_log2);
}
// The index of a format's kind.
constexpr int KindOf(const StripFormat& format) {
  int place = 0;
  for (const StripKind& kind : kStripKinds) {
    if (kind.low_bits == format.low_bits && kind.high_bits == format.high_bits &&
        kind.scales == format.scales && kind.has_values == format.has_values) {
      break;
    }
    ++place;
  }
  return place;
}

// A matrix, or consecutive rows of one, in the form that kernels take.
struct BlockMatrixArgs {
  const unsigned char* data = nullptr;  // the first strip; 16-byte aligned
  int64_t strip_bytes = 0;
  StripFormat format;
  int32_t spans = 0;                     // spans of a row
  int32_t k = 0;                         // inputs of a row
  const int32_t* input_order = nullptr;  // [k]: stored input i is input input_order[i]; null: i
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_FORMAT_H_
