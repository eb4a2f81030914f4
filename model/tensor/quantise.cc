#include "model/tensor/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
constexpr uint32_t kInfinityBits = 0x7f800000u;

// Returns the bits of the largest magnitude, which order like magnitudes; at least kInfinityBits if
// a value is not finite.
uint32_t LargestMagnitudeBits(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & kMagnitudeMask);
  }
  return largest;
}

// Adding and subtracting this rounds a small value to an integer, ties to even.
constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23

void QuantiseTo8Bits(const float* x, int64_t count, float largest, BlockValues& out) {
  out.scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  for (int64_t i = 0; i < count; ++i) {
    const float product = x[i] * inverse;
    const auto rounded = static_cast<int>((product + kRoundingMagic) - kRoundingMagic);
    out.q[i] = static_cast<uint8_t>(rounded + out.zero);
  }
}

constexpr int kLargestQ = 15;

// Each lane has its own sum, so that compilers may use vectors of any length.
constexpr int kLanes = 16;
typedef float Vec __attribute__((vector_size(16)));
constexpr int kVecLanes = 4;
constexpr int kVecs = kLanes / kVecLanes;

Vec Load(const float* from) {
  Vec value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

double SumOf(const Vec (&sums)[kVecs]) {
  const Vec four = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (double{four[0]} + double{four[1]}) + (double{four[2]} + double{four[3]});
}

// Returns the exponent for which x * 2^-exponent is below 4 and normal, for an x of the magnitude
// `largest`.
int ExponentOf(float largest) { return std::clamp(std::ilogb(largest), -126, 126); }

// Integers q - zero = x * inverse, rounded and clamped to [-zero, 15 - zero].
struct Rounding {
  float inverse = 0;
  int zero = 0;
};
// A rounding with the best scale for its integers: sums of importance * error^2 are least where
// `gain` = sum of importance * x^2 less the sum of importance * error^2 is largest.
struct Fit {
  Rounding rounding;
  double scale = 0;
  double gain = 0;
};

// Searches the best 4-bit rounding of a block. Values are scaled by a power of two to magnitudes of
// 1 to 4, importances likewise; both are padded with zeros to whole lanes.
class FourBitSearch {
 public:
  FourBitSearch(const float* x, int64_t count, const float* importance, float largest)
      : exponent_(ExponentOf(largest)), count_(count) {
    const float unit = std::ldexp(1.0f, -exponent_);
    const float weight_largest =
        importance == nullptr ? 0.0f : *std::max_element(importance, importance + count);
    const float weight_unit =
        weight_largest > 0 ? std::ldexp(1.0f, -ExponentOf(weight_largest)) : 0.0f;
    padded_ = (count + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = 0; i < count; ++i) {
      x_[i] = x[i] * unit;
      weight_[i] = weight_largest > 0 ? importance[i] * weight_unit : 1.0f;
      least_ = std::min(least_, x_[i]);
      most_ = std::max(most_, x_[i]);
    }
    std::fill(x_ + count, x_ + padded_, 0.0f);
    std::fill(weight_ + count, weight_ + padded_, 0.0f);
  }

  void Run(BlockValues& out) {
    const float symmetric = 7.0f / std::max(most_, -least_);
    best_ = FitOf({symmetric, 8});
    // Tries ranges of 12 to 18 steps around the middle of all values and 0: the widest leave
    // integers unused, the narrowest clamp.
    for (int half_steps = 24; half_steps <= 36; ++half_steps) {
      const float inverse = static_cast<float>(half_steps) * 0.5f / (most_ - least_);
      const float middle = (least_ + most_) * 0.5f * inverse;
      const float zero = (7.5f - middle + kRoundingMagic) - kRoundingMagic;
      Take(FitOf({inverse, std::clamp(static_cast<int>(zero), 0, kLargestQ)}));
    }
    for (int i = 0; i < kRefinements && best_.scale > 0; ++i) {
      if (!Take(FitOf({static_cast<float>(1 / best_.scale), best_.rounding.zero}))) break;
    }
    Write(out);
  }

 private:
  static constexpr int kRefinements = 3;

  bool Take(const Fit& fit) {
    if (fit.gain <= best_.gain) return false;
    best_ = fit;
    return true;
  }

  static Vec Round(Vec x, const Rounding& rounding) {
    const float least = static_cast<float>(-rounding.zero);
    const float most = static_cast<float>(kLargestQ - rounding.zero);
    const Vec rounded = (x * rounding.inverse + kRoundingMagic) - kRoundingMagic;
    const Vec low = rounded > least ? rounded : least - Vec{};
    return low < most ? low : most - Vec{};
  }

  Fit FitOf(const Rounding& rounding) const {
    Vec products[kVecs] = {};  // weight * x * q
    Vec squares[kVecs] = {};   // weight * q^2
    for (int64_t i = 0; i < padded_; i += kLanes) {
      for (int v = 0; v < kVecs; ++v) {
        const Vec x = Load(x_ + i + v * kVecLanes);
        const Vec q = Round(x, rounding);
        const Vec weighted = Load(weight_ + i + v * kVecLanes) * q;
        products[v] += weighted * x;
        squares[v] += weighted * q;
      }
    }
    const double product = SumOf(products);
    const double square = SumOf(squares);
    if (square <= 0 || product <= 0) return {rounding, 0, 0};
    return {rounding, product / square, product * product / square};
  }

  void Write(BlockValues& out) const {
    out.scale = static_cast<float>(std::ldexp(best_.scale, exponent_));
    out.zero = best_.rounding.zero;
    for (int64_t i = 0; i < padded_; i += kVecLanes) {
      const Vec q = Round(Load(x_ + i), best_.rounding);
      for (int lane = 0; lane < kVecLanes; ++lane) {
        out.q[i + lane] = static_cast<uint8_t>(static_cast<int>(q[lane]) + out.zero);
      }
    }
    std::fill(out.q + padded_, out.q + kMaxBlockElements, static_cast<uint8_t>(out.zero));
  }

  const int exponent_;
  const int64_t count_;
  int64_t padded_ = 0;
  float least_ = 0;  // the least of the values and 0
  float most_ = 0;
  Fit best_;
  alignas(64) float x_[kMaxBlockElements];
  alignas(64) float weight_[kMaxBlockElements];
};

}  // namespace

bool QuantiseBlock(DType type, const float* x, int64_t count, const float* importance,
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
  if (format.bits == 8) {
    QuantiseTo8Bits(x, count, largest, *out);
  } else {
    FourBitSearch(x, count, importance, largest).Run(*out);
  }
  return true;
}

}  // namespace tlm
