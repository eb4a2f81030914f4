#include "model/weights/truncated_normal.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace tlm {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): its n-th number is Mix(start + n * kGamma).
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// FNV-1a of the name.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The functions below are sums and products of IEEE floats in a written order, so that every
// machine computes the same bits and the compiler can do several at a time.

// -log(t) for t in (0, 1], to 4e-7: t = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and a
// polynomial for log(1 + f) / f.
float NegativeLog(float t) {
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  const uint32_t bits = std::bit_cast<uint32_t>(t);
  const int32_t exponent = static_cast<int32_t>(bits - kRootHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = 1.193105444e-01f;
  p = p * f - 1.868075143e-01f;
  p = p * f + 2.049175965e-01f;
  p = p * f - 2.490828918e-01f;
  p = p * f + 3.331467381e-01f;
  p = p * f - 5.000114504e-01f;
  p = p * f + 1.000000964e+00f;
  return -(static_cast<float>(exponent) * 6.931471806e-01f + p * f);
}

// The z with Phi(z) - Phi(-z) = x, negative for negative x, for |x| up to Phi(3) - Phi(-3);
// relative error below 1e-6. As in Giles 2010 ("Approximating the erfinv function"): x times a
// polynomial in w = -log(1 - x^2), here one over the whole range, 0 <= w <= 5.223.
float NormalQuantile(float x) {
  const float w = NegativeLog((1.0f - x) * (1.0f + x)) - 2.6f;
  float p = 2.210374529e-08f;
  p = p * w + 4.930452019e-07f;
  p = p * w - 4.431088305e-06f;
  p = p * w - 8.867479703e-06f;
  p = p * w + 3.045735937e-04f;
  p = p * w - 1.650708055e-03f;
  p = p * w - 6.420765892e-03f;
  p = p * w + 3.475694786e-01f;
  p = p * w + 2.158132865e+00f;
  return p * x;
}

// 32 random bits as a sample.
float Sample(int32_t bits) {
  constexpr float kInside = 0.9973002039f;  // Phi(3) - Phi(-3), the part that is not cut off
  const float uniform = (static_cast<float>(bits) + 0.5f) * (kInside * 0x1p-31f);
  return std::clamp(NormalQuantile(uniform), -3.0f, 3.0f);
}

}  // namespace

TruncatedNormal::TruncatedNormal(uint64_t seed, std::string_view name)
    : key_(Mix(Mix(seed + kGamma) ^ HashName(name))) {}

void TruncatedNormal::Fill(int64_t first, float scale, std::span<float> out) const {
  constexpr size_t kBlock = 512;
  int32_t bits[kBlock];
  uint64_t state = key_ + static_cast<uint64_t>(first / 2) * kGamma;
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    // Each number of the generator makes two samples.
    for (size_t i = 0; i < kBlock; i += 2) {
      state += kGamma;
      const uint64_t random = Mix(state);
      bits[i] = static_cast<int32_t>(static_cast<uint32_t>(random));
      bits[i + 1] = static_cast<int32_t>(static_cast<uint32_t>(random >> 32));
    }
    const size_t count = std::min(kBlock, out.size() - begin);
    float* const block = out.data() + begin;
    for (size_t i = 0; i < count; ++i) block[i] = scale * Sample(bits[i]);
  }
}

}  // namespace tlm
