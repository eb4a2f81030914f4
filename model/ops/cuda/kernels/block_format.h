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
  StripFormat format{low_bits, high_bits, scales, 0, 0, has_values};
  switch (scales) {
    case BlockScales::kHalf:
      format.zero = low_bits == 8 || has_values ? 128 : 8 << high_bits;
      break;
    case BlockScales::kHalfMin:
      break;
    case BlockScales::kTwoFactors:
      format.zero = 8 << high_bits;
      format.group_log2 = 8;
      break;
    case BlockScales::kFactorMin:
      format.group_log2 = 8;
      break;
    case BlockScales::kFloat:
    case BlockScales::kFloatElements:
      format.group_log2 = group_log2;
      break;
  }
  return format;
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
