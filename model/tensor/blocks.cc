#include "model/tensor/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/fp8.h"

namespace tlm {
namespace {

static_assert(std::endian::native == std::endian::little);

float HalfAt(const uint8_t* at) { return F16ToFloat(static_cast<uint16_t>(at[0] | at[1] << 8)); }

// Unpacks the 4 bits of 32 elements.
void Nibbles(const uint8_t* from, uint8_t* q) {
  for (size_t i = 0; i < 16; ++i) {
    q[i] = from[i] & 15;
    q[i + 16] = from[i] >> 4;
  }
}

// Unpacks 32 elements with their fifth bits.
void FiveBits(const uint8_t* bits, const uint8_t* nibbles, uint8_t* q) {
  Nibbles(nibbles, q);
  uint32_t fifth;
  std::memcpy(&fifth, bits, sizeof(fifth));
  for (size_t i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>((fifth >> i & 1) << 4);
}

void ReadQ8_0(const uint8_t* block, BlockValues& out) {
  out.scale = HalfAt(block);
  for (size_t i = 0; i < 32; ++i) out.q[i] = block[2 + i] ^ 0x80;
}

void ReadQ4_0(const uint8_t* block, BlockValues& out) {
  out.scale = HalfAt(block);
  Nibbles(block + 2, out.q);
}

void ReadIq4Nl(const uint8_t* block, BlockValues& out) {
  ReadQ4_0(block, out);
  for (size_t i = 0; i < 32; ++i) out.q[i] = static_cast<uint8_t>(kIq4NlValues[out.q[i]] + 128);
}

void ReadQ4_1(const uint8_t* block, BlockValues& out) {
  out.scale = HalfAt(block);
  out.min = -HalfAt(block + 2);
  Nibbles(block + 4, out.q);
}

void ReadQ5_0(const uint8_t* block, BlockValues& out) {
  out.scale = HalfAt(block);
  FiveBits(block + 2, block + 6, out.q);
}

void ReadQ5_1(const uint8_t* block, BlockValues& out) {
  out.scale = HalfAt(block);
  out.min = -HalfAt(block + 2);
  FiveBits(block + 4, block + 8, out.q);
}

// Unpacks the eight 6-bit factors s and t that Q4_K and Q5_K pack into 12 bytes.
void ReadFactors(const uint8_t* from, BlockValues& out) {
  for (size_t g = 0; g < 4; ++g) {
    const uint8_t low = from[g + 8];
    out.s[g] = static_cast<int8_t>(from[g] & 63);
    out.t[g] = from[g + 4] & 63;
    out.s[g + 4] = static_cast<int8_t>((low & 15) | from[g] >> 6 << 4);
    out.t[g + 4] = static_cast<uint8_t>(low >> 4 | from[g + 4] >> 6 << 4);
  }
}

void ReadQ4K(const uint8_t* block, const uint8_t* nibbles, BlockValues& out) {
  out.scale = HalfAt(block);
  out.min = HalfAt(block + 2);
  ReadFactors(block + 4, out);
  for (size_t g = 0; g < 8; g += 2) {
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t byte = nibbles[g * 16 + i];
      out.q[g * 32 + i] = byte & 15;
      out.q[g * 32 + 32 + i] = byte >> 4;
    }
  }
}

void ReadQ5K(const uint8_t* block, BlockValues& out) {
  ReadQ4K(block, block + 48, out);
  for (size_t g = 0; g < 8; ++g) {
    for (size_t i = 0; i < 32; ++i) {
      out.q[g * 32 + i] |= static_cast<uint8_t>((block[16 + i] >> g & 1) << 4);
    }
  }
}

void ReadQ6K(const uint8_t* block, BlockValues& out) {
  std::memcpy(out.s, block + 192, 16);
  out.scale = HalfAt(block + 208);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* const low = block + half * 64;
    const uint8_t* const high = block + 128 + half * 32;
    uint8_t* const q = out.q + half * 128;
    for (size_t i = 0; i < 32; ++i) {
      q[i] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
      q[i + 32] = static_cast<uint8_t>((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
      q[i + 64] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
      q[i + 96] = static_cast<uint8_t>(low[i + 32] >> 4 | (high[i] >> 6) << 4);
    }
  }
}

// Bytes before q in a block of this program's own types.
constexpr size_t kOwnHeaderBytes = kOwnZeroAt + 1;

void ReadOwn(DType type, const uint8_t* block, BlockValues& out) {
  std::memcpy(&out.scale, block, sizeof(out.scale));
  out.zero = block[kOwnZeroAt];
  const DTypeBlock size = BlockOf(type);
  const uint8_t* const q = block + kOwnHeaderBytes;
  if (FormatOf(type).bits == 8) {
    std::memcpy(out.q, q, size.elements);
    return;
  }
  for (size_t i = 0; i < size.elements / 2; ++i) {
    out.q[2 * i] = q[i] & 15;
    out.q[2 * i + 1] = q[i] >> 4;
  }
}

void ReadFloats(DType type, const uint8_t* block, BlockValues& out) {
  std::memcpy(&out.scale, block, sizeof(out.scale));
  std::memcpy(out.q, block + sizeof(out.scale), BlockOf(type).elements);
}

}  // namespace

BlockFormat FormatOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kIq4Nl:
      return {.bits = 8, .zero = 128};
    case DType::kQ4_0:
      return {.bits = 4, .zero = 8};
    case DType::kQ4_1:
      return {.bits = 4, .has_min = true};
    case DType::kQ5_0:
      return {.bits = 5, .zero = 16};
    case DType::kQ5_1:
      return {.bits = 5, .has_min = true};
    case DType::kQ4K:
      return {.bits = 4, .sub_block = 32, .has_min = true};
    case DType::kQ5K:
      return {.bits = 5, .sub_block = 32, .has_min = true};
    case DType::kQ6K:
      return {.bits = 6, .sub_block = 16, .zero = 32};
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kI4G128:
    case DType::kI4G256:
      return {.bits = 4, .has_half_scales = false, .zero = -1};
    case DType::kI8G32:
    case DType::kI8G64:
    case DType::kI8G128:
    case DType::kI8G256:
      return {.bits = 8, .has_half_scales = false, .zero = -1};
    case DType::kF8G32:
    case DType::kF8G128:
      return {.bits = 8, .has_half_scales = false, .has_floats = true};
    default:
      break;
  }
  TLM_CHECK(false);
}

void ReadBlock(DType type, const std::byte* from, BlockValues* out) {
  const auto* const block = reinterpret_cast<const uint8_t*>(from);
  out->min = 0.0f;
  out->zero = FormatOf(type).zero;
  switch (type) {
    case DType::kQ8_0:
      return ReadQ8_0(block, *out);
    case DType::kQ4_0:
      return ReadQ4_0(block, *out);
    case DType::kQ4_1:
      return ReadQ4_1(block, *out);
    case DType::kQ5_0:
      return ReadQ5_0(block, *out);
    case DType::kQ5_1:
      return ReadQ5_1(block, *out);
    case DType::kQ4K:
      return ReadQ4K(block, block + 16, *out);
    case DType::kQ5K:
      return ReadQ5K(block, *out);
    case DType::kQ6K:
      return ReadQ6K(block, *out);
    case DType::kIq4Nl:
      return ReadIq4Nl(block, *out);
    case DType::kF8G32:
    case DType::kF8G128:
      return ReadFloats(type, block, *out);
    default:
      return ReadOwn(type, block, *out);
  }
}

float LargestMagnitude(DType type, const BlockValues& values) {
  const BlockFormat format = FormatOf(type);
  if (format.has_floats) {
    const uint8_t* const end = values.q + BlockOf(type).elements;
    const bool has_nan =
        std::any_of(values.q, end, [](uint8_t q) { return (q & 0x7f) == kFp8NaN; });
    return has_nan ? NAN : std::fabs(values.scale) * kFp8Largest;
  }
  // Takes the largest possible q - zero, s and t.
  return std::fabs(values.scale) * (format.sub_block > 0 ? 64.0f * 128.0f : 255.0f) +
         std::fabs(values.min) * 64.0f;
}

void WriteBlock(DType type, const BlockValues& values, std::byte* to) {
  auto* const block = reinterpret_cast<uint8_t*>(to);
  const BlockFormat format = FormatOf(type);
  const DTypeBlock size = BlockOf(type);
  TLM_CHECK(format.zero < 0);
  std::memcpy(block, &values.scale, sizeof(values.scale));
  block[kOwnZeroAt] = static_cast<uint8_t>(values.zero);
  uint8_t* const q = block + kOwnHeaderBytes;
  if (format.bits == 8) {
    std::memcpy(q, values.q, size.elements);
    return;
  }
  for (size_t i = 0; i < size.elements / 2; ++i) {
    q[i] = static_cast<uint8_t>(values.q[2 * i] | values.q[2 * i + 1] << 4);
  }
}

void WriteF8Block(float scale, std::span<const uint8_t> q, std::byte* to) {
  std::memcpy(to, &scale, sizeof(scale));
  std::memcpy(to + sizeof(scale), q.data(), q.size());
}

void Dequantise(DType type, const std::byte* from, size_t blocks, float* out) {
  const DTypeBlock size = BlockOf(type);
  const BlockFormat format = FormatOf(type);
  const auto sub_block = static_cast<size_t>(format.sub_block);
  const size_t step = sub_block > 0 ? sub_block : size.elements;
  BlockValues block;
  for (size_t i = 0; i < blocks; ++i, from += size.bytes) {
    ReadBlock(type, from, &block);
    for (size_t first = 0; first < size.elements; first += step, out += step) {
      const size_t g = first / step;
      const float scale =
          sub_block > 0 ? block.scale * static_cast<float>(block.s[g]) : block.scale;
      const bool has_factor = sub_block > 0 && format.has_min;
      const float min = has_factor ? block.min * static_cast<float>(block.t[g]) : block.min;
      for (size_t j = 0; j < step; ++j) {
        const uint8_t q = block.q[first + j];
        out[j] = format.has_floats ? Fp8Value(q) * scale
                                   : static_cast<float>(q - block.zero) * scale - min;
      }
    }
  }
}

}  // namespace tlm
