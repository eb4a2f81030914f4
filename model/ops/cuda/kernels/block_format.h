// How weights in blocks (model/tensor/blocks.h) lie in device memory: constants and places, which
// host and kernels share.
//
//   strip    32 rows of the matrix; a strip is its cells, one after the other
//   cell     256 inputs of a strip; the last may have 128, and has no more where that is enough
//   span     128 inputs of a cell
//   unit     32 inputs
//   step     16 inputs: those of one mma
//
// A lane of a warp holds of every step and row four elements of the mma's 16 x 16 operand: inputs
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, t = lane % 4. They stand together, so that one load of 16
// bytes brings a lane all that it has of a row's 128 inputs (4 bits) or 64 (8 bits):
//
//   low      4 bits: [span][row][t] of 16 bytes; word w has steps 2 w and 2 w + 1 of the span, the
//            nibbles j = 0 .. 3 inputs 2 t, 2 t + 8 of the first, then of the second, the nibbles
//            j + 4 their neighbours 2 t + 1 and so on
//            8 bits: [span][half][row][t] of 16 bytes; word w has the four inputs of step w of the
//            half, in the order above
//   high     the bits above 4: [span][row][t] of 32 x 1 or 2 bits, a word for every 4 or 2 units.
//            Byte b has those of the two nibbles of byte b of either unit's word of low bits: of
//            the lower nibbles in its low half, of the upper ones in its high half, units ascending
//   entries  [unit][row]: what 32 inputs share
//   heads    [group][row]: what a group of inputs shares
//   zeros    [group][row] of a byte
//
// Every array of a cell begins at a multiple of 16 bytes. Rows and inputs that do not exist have
// scales of 0.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_FORMAT_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_FORMAT_H_

#include <cstdint>

// Of functions that the host calls as well, which has no simt.h.
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
inline constexpr int kMostSpans = kCellInputs / kSpanInputs;

// Where scale, s, min and t of an element are; d, m and dmin are binary16.
enum class BlockScales : int32_t {
  kHalf,           // entries: d
  kHalfMin,        // entries: d, -m
  kFactorMin,      // entries: s and t, a byte each; heads: d, dmin
  kTwoFactors,     // entries: s of either 16 inputs, signed bytes; heads: d
  kFloat,          // heads: the scale, in float32; zeros
  kFloatElements,  // heads: the scale, in float32; q are the bits of E4M3 (model/tensor/fp8.h)
};

struct StripFormat {
  int32_t low_bits = 8;   // 4 or 8
  int32_t high_bits = 0;  // 0; of 5 and 6 bits 1 and 2
  BlockScales scales = BlockScales::kHalf;
  int32_t group_log2 = 0;   // of the inputs of a head, 32 to 256; 0: there are none
  int32_t zero = 0;         // unless each group has its own
  bool has_values = false;  // q counts the values of kIq4NlValues

  TLM_ON_BOTH constexpr int entry_bytes() const {
    if (scales == BlockScales::kFloat || scales == BlockScales::kFloatElements) return 0;
    return scales == BlockScales::kHalfMin ? 4 : 2;
  }
  TLM_ON_BOTH constexpr int head_bytes() const {
    if (group_log2 == 0) return 0;
    return scales == BlockScales::kTwoFactors ? 2 : 4;
  }
  TLM_ON_BOTH constexpr int zero_bytes() const { return scales == BlockScales::kFloat ? 1 : 0; }

  // Where a word has element i of a lane's four of a step, of low_bits 4: the first bit of its
  // byte, and of its high bits within that byte.
  TLM_ON_BOTH static constexpr int BytePlace(int step, int i) { return 8 * (step % 2 + i % 2 * 2); }
  TLM_ON_BOTH constexpr int HighPlace(int step, int i) const {
    return i / 2 * 4 + step / 2 % (4 / high_bits) * high_bits;
  }

  TLM_ON_BOTH constexpr int groups(int spans) const {
    return group_log2 == 0 ? 0 : (spans * kSpanInputs + (1 << group_log2) - 1) >> group_log2;
  }
  // Bytes from a cell of `spans` spans to its arrays.
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

// What all matrices of these fields have: all of a format but the groups of float32 scales, which
// are `group_log2`.
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

// The formats that there are, which kernels are compiled for: low_bits, high_bits, scales,
// has_values; the places are arguments of templates.
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
// The place of a format's kind.
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

// A matrix, or consecutive rows of one, as kernels take it.
struct BlockMatrixArgs {
  const unsigned char* data = nullptr;  // of the first strip; 16-byte aligned
  int64_t strip_bytes = 0;
  StripFormat format;
  int32_t spans = 0;                     // of a row
  int32_t k = 0;                         // inputs of a row
  const int32_t* input_order = nullptr;  // [k]: stored input i is input input_order[i]; null: i
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_FORMAT_H_
