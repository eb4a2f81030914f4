// The types that are quantised in blocks: the types of GGUF files, as the ggml library defines
// them, and this program's own.
//
// A block holds consecutive elements of a row. Except in F8_Gn, every element is an integer q of 4
// to 8 bits with a scale, and in some types a minimum; sub-blocks may multiply these by integer
// factors s and t:
//
//   element = (q - zero) * (scale * s) - min * t
//
// in float32, each operation rounded to nearest in this order. Numbers of several bytes are
// little-endian; d, m and dmin are binary16:
//
//   type    bytes of a block                                scale  s     min   t     zero
//   Q8_0    d, q[32] of 8 bits, signed                      d      1     -           128 (q + 128)
//   Q4_0    d, q[32] of 4 bits                              d      1     -           8
//   IQ4_NL  d, q[32] of 4 bits                              d      1     -           128; q is
//                                                                              kIq4NlValues + 128
//   Q4_1    d, m, q[32] of 4 bits                           d      1     -m    1     0
//   Q5_0    d, q's fifth bits, q[32] of 4 bits              d      1     -           16
//   Q5_1    d, m, q's fifth bits, q[32] of 4 bits           d      1     -m    1     0
//   Q4_K    d, dmin, factors[12], q[256] of 4 bits          d      0-63  dmin  0-63  0
//   Q5_K    d, dmin, factors[12], q's fifth bits, q[256]    d      0-63  dmin  0-63  0
//   Q6_K    low 4 bits of q[256], high 2 bits, s[16], d     d      int8  -           32
//   I4_Gn   scale in float32, zero, n / 2 bytes of q        scale  1     -           0 to 255
//   I8_Gn   scale in float32, zero, n bytes of q            scale  1     -           0 to 255
//
// and in F8_Gn
//
//   element = q * scale     scale in float32, n bytes of q: e4m3, of which 0x7f and 0xff are NaN
//
// Byte i of 32 elements has elements i (low half) and i + 16 (high half); bit j of the fifth bits
// belongs to element j. In Q4_K and Q5_K every 64 elements take 32 bytes: byte i has elements i and
// i + 32 of these; bit g of byte i of the fifth bits belongs to element 32 g + i. s and t have 6
// bits for each 32 elements. In Q6_K, s has 8 bits, signed, for each 16 elements, and every 128
// elements take 64 bytes of low bits and 32 bytes of high bits. In I4, byte i has elements 2 i (low
// half) and 2 i + 1.
#ifndef TLM_MODEL_TENSOR_BLOCKS_H_
#define TLM_MODEL_TENSOR_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/tensor/dtype.h"

namespace tlm {

inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

inline constexpr size_t kMaxBlockElements = 256;

// The layout that all blocks of a type share.
struct BlockFormat {
  int bits = 8;       // bits of q: 4, 5, 6 or 8; 8 for IQ4_NL
  int sub_block = 0;  // elements that share s and t: 16 or 32; 0: s and t are 1
  bool has_min = false;
  bool has_half_scales = true;  // scale and min are binary16, else float32
  int zero = 0;                 // -1: each block has its own
  bool has_floats = false;      // q has the bits of E4M3
};
BlockFormat FormatOf(DType type);

// The parts of one block.
struct BlockValues {
  alignas(64) uint8_t q[kMaxBlockElements];
  int8_t s[kMaxBlockElements / 16];   // s of each sub-block, if the type has sub-blocks
  uint8_t t[kMaxBlockElements / 16];  // likewise, with has_min
  float scale;
  float min;  // 0 without has_min
  int zero;
};
// Reads one block, at any address, of a type for which IsBlockQuantised.
void ReadBlock(DType type, const std::byte* from, BlockValues* out);

// A bound on the magnitudes of a block's elements and of all intermediate values of their
// computation; NaN or an infinity if the block has one.
float LargestMagnitude(DType type, const BlockValues& values);

// The offset of the zero, which is one byte, in I4 and I8 blocks.
inline constexpr size_t kOwnZeroAt = sizeof(float);

// Writes an I4 or I8 block: q (I4: below 16), scale and zero.
void WriteBlock(DType type, const BlockValues& values, std::byte* to);

// Writes an F8_Gn block of e4m3 elements; q has the block's number of elements.
void WriteF8Block(float scale, std::span<const uint8_t> q, std::byte* to);

// Computes the elements of blocks. `from` holds `blocks` blocks, at any address; `out` takes blocks
// * BlockOf(type).elements floats.
void Dequantise(DType type, const std::byte* from, size_t blocks, float* out);

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_BLOCKS_H_
