#include "model/tensor/blocks.h"

#include "model/base/errors.h"
#include "model/base/float16.h"

namespace tlm {
namespace {

float HalfAt(const uint8_t* at) { return F16ToFloat(static_cast<uint16_t>(at[0] | at[1] << 8)); }

// The 4 bits of element j of 32.
int NibbleOf(const uint8_t* q, size_t j) { return j < 16 ? q[j] & 15 : q[j - 16] >> 4; }

// Bit j of a little-endian bit set.
int BitOf(const uint8_t* bits, size_t j) { return bits[j / 8] >> (j % 8) & 1; }

// One block each; 32 elements.

void Q8_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (size_t j = 0; j < 32; ++j) {
    out[j] = static_cast<float>(static_cast<int8_t>(block[2 + j])) * d;
  }
}

void Q4_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(NibbleOf(block + 2, j) - 8) * d;
}

void Iq4Nl(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (size_t j = 0; j < 32; ++j) {
    out[j] = static_cast<float>(kIq4NlValues[NibbleOf(block + 2, j)]) * d;
  }
}

void Q4_1(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(NibbleOf(block + 4, j)) * d + m;
}

void Q5_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (size_t j = 0; j < 32; ++j) {
    const int q = NibbleOf(block + 6, j) | BitOf(block + 2, j) << 4;
    out[j] = static_cast<float>(q - 16) * d;
  }
}

void Q5_1(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (size_t j = 0; j < 32; ++j) {
    const int q = NibbleOf(block + 8, j) | BitOf(block + 4, j) << 4;
    out[j] = static_cast<float>(q) * d + m;
  }
}

// 256 elements. Q4_K and Q5_K differ in the fifth bits alone; null: there are none.
void FourOrFiveBits(const uint8_t* block, const uint8_t* fifth_bits, const uint8_t* nibbles,
                    float* out) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  for (size_t g = 0; g < 8; ++g) {
    const PackedScale packed = UnpackScale(block + 4, g);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    const uint8_t* const q = nibbles + g / 2 * 32;
    for (size_t i = 0; i < 32; ++i) {
      int value = g % 2 == 0 ? q[i] & 15 : q[i] >> 4;
      if (fifth_bits != nullptr) value |= (fifth_bits[i] >> g & 1) << 4;
      out[g * 32 + i] = static_cast<float>(value) * scale - min;
    }
  }
}

void Q4K(const uint8_t* block, float* out) { FourOrFiveBits(block, nullptr, block + 16, out); }

void Q5K(const uint8_t* block, float* out) { FourOrFiveBits(block, block + 16, block + 48, out); }

void Q6K(const uint8_t* block, float* out) {
  const auto* const scales = reinterpret_cast<const int8_t*>(block + 192);
  const float d = HalfAt(block + 208);
  for (size_t j = 0; j < 256; ++j) {
    const size_t half = j / 128;        // of the block
    const size_t quarter = j / 32 % 4;  // of the half
    const size_t i = j % 32;
    const uint8_t low = block[half * 64 + quarter % 2 * 32 + i];
    const uint8_t high = block[128 + half * 32 + i];
    const int q = (quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4;
    out[j] = static_cast<float>(q - 32) * (d * static_cast<float>(scales[j / 16]));
  }
}

using Decoder = void (*)(const uint8_t* block, float* out);

Decoder DecoderOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return Q8_0;
    case DType::kQ4_0:
      return Q4_0;
    case DType::kQ4_1:
      return Q4_1;
    case DType::kQ5_0:
      return Q5_0;
    case DType::kQ5_1:
      return Q5_1;
    case DType::kQ4K:
      return Q4K;
    case DType::kQ5K:
      return Q5K;
    case DType::kQ6K:
      return Q6K;
    case DType::kIq4Nl:
      return Iq4Nl;
    default:
      break;
  }
  TLM_CHECK(false);
}

}  // namespace

PackedScale UnpackScale(const uint8_t* scales, size_t g) {
  if (g < 4) {
    return {static_cast<uint8_t>(scales[g] & 63), static_cast<uint8_t>(scales[g + 4] & 63)};
  }
  const uint8_t low = scales[g + 4];
  return {static_cast<uint8_t>((low & 15) | (scales[g - 4] >> 6) << 4),
          static_cast<uint8_t>(low >> 4 | (scales[g] >> 6) << 4)};
}

void Dequantise(DType type, const std::byte* from, size_t blocks, float* out) {
  const Decoder decoder = DecoderOf(type);
  const DTypeBlock block = BlockOf(type);
  const auto* at = reinterpret_cast<const uint8_t*>(from);
  for (size_t i = 0; i < blocks; ++i) {
    decoder(at, out);
    at += block.bytes;
    out += block.elements;
  }
}

}  // namespace tlm
