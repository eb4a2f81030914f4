#include "model/tensor/quantise.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
constexpr uint32_t kInfinityBits = 0x7f800000u;

// The bits of the largest magnitude, which are ordered as magnitudes are; those of infinity or
// more if a value is not finite.
uint32_t LargestMagnitudeBits(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & kMagnitudeMask);
  }
  return largest;
}

// Adding it rounds a small value to an integer, ties to even.
constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23

void RoundToNearest(const float* x, int64_t count, float inverse, int zero, uint8_t* q) {
  for (int64_t i = 0; i < count; ++i) {
    const float product = x[i] * inverse;
    q[i] =
        static_cast<uint8_t>(static_cast<int>((product + kRoundingMagic) - kRoundingMagic) + zero);
  }
}

}  // namespace

bool QuantiseBlock(DType type, const float* x, int64_t count, const float* /*importance*/,
                   BlockValues* out) {
  const BlockFormat format = FormatOf(type);
  const size_t elements = BlockOf(type).elements;
  TLM_CHECK(format.zero < 0 && count > 0 && count <= static_cast<int64_t>(elements));
  out->zero = format.bits == 8 ? 128 : 8;
  out->min = 0.0f;
  std::memset(out->q, out->zero, elements);
  const uint32_t bits = LargestMagnitudeBits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  if (bits >= kInfinityBits || largest < kSmallestQuantised) {
    out->scale = bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    return bits < kInfinityBits;
  }
  const float steps = format.bits == 8 ? 127.0f : 7.0f;
  out->scale = largest / steps;
  RoundToNearest(x, count, steps / largest, out->zero, out->q);
  return true;
}

}  // namespace tlm
