// The types that are quantised in blocks, as GGUF files and the ggml library define them.
//
// A block holds 32 or 256 elements that follow each other in a row, all integers q with a scale,
// some with a minimum. Numbers of several bytes are little-endian, d, m and dmin binary16:
//
//   type    bytes of a block                                   element j
//   Q8_0    d, q[32] of 8 bits, signed                         q * d
//   Q4_0    d, q[32] of 4 bits                                 (q - 8) * d
//   IQ4_NL  d, q[32] of 4 bits                                 kIq4NlValues[q] * d
//   Q4_1    d, m, q[32] of 4 bits                              q * d + m
//   Q5_0    d, q's fifth bits, q[32] of 4 bits                 (q - 16) * d
//   Q5_1    d, m, q's fifth bits, q[32] of 4 bits              q * d + m
//   Q4_K    d, dmin, scales[12], q[256] of 4 bits              q * (d * s) - dmin * t
//   Q5_K    d, dmin, scales[12], q's fifth bits, q[256]        q * (d * s) - dmin * t
//   Q6_K    low 4 bits of q[256], high 2 bits, s[16], d        (q - 32) * (d * s)
//
// Of 32 elements byte i has elements i (low half) and i + 16 (high half); bit j of the fifth bits
// is element j's. Of Q4_K and Q5_K every 64 elements are 32 bytes: byte i has elements i and i + 32
// of these; fifth bits: bit g of byte i is that of element 32 g + i. s and t are 6 bits for each 32
// elements. Of Q6_K s is 8 bits, signed, for each 16 elements, and every 128 elements are 64 bytes
// of low bits and 32 bytes of high ones.
#ifndef TLM_MODEL_TENSOR_BLOCKS_H_
#define TLM_MODEL_TENSOR_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

// The elements that the file means: each operation above is one of float32, rounded to nearest, in
// the order of the formula. `type` is one of blocks. `from` holds `blocks` blocks, at any address;
// `out` takes blocks * BlockOf(type).elements floats.
void Dequantise(DType type, const std::byte* from, size_t blocks, float* out);

// The scales s and t of group g < 8 of 32 elements, of the 12 bytes that Q4_K and Q5_K pack them
// in.
struct PackedScale {
  uint8_t scale;
  uint8_t min;
};
PackedScale UnpackScale(const uint8_t* scales, size_t g);

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_BLOCKS_H_
