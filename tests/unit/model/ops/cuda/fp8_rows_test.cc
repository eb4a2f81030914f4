// Rows of a cache in 8 bits as the kernels read them: against the format's plain functions.
#include "model/ops/cuda/kernels/attention/fp8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace tlm::simt {
namespace {

TEST(Fp8RowsTest, EveryElementHasItsPlace) {
  for (const int head_dim : {1, 7, 8, 16, 20, 64, 80, 96, 112, 128, 256, 300}) {
    std::vector<int> element_at(head_dim, -1);
    for (int d = 0; d < head_dim; ++d) {
      const int place = Fp8Place(head_dim, d);
      ASSERT_GE(place, 0);
      ASSERT_LT(place, head_dim);
      ASSERT_EQ(element_at[place], -1) << head_dim << ", element " << d;
      element_at[place] = d;
    }
    // A word of a whole 16 has what a lane holds of a step: two neighbours, and those 8 on.
    for (int place = 0; place + 16 <= head_dim / 16 * 16; place += 4) {
      const int* const word = &element_at[place];
      ASSERT_EQ(word[0] / 16, place / 16);
      ASSERT_EQ(word[0] % 16, place % 16 / 2);
      ASSERT_EQ(word[1], word[0] + 8);
      ASSERT_EQ(word[2], word[0] + 1);
      ASSERT_EQ(word[3], word[0] + 9);
    }
  }
}

template <typename T, bool kConverted>
void ExpectExact() {
  for (int exponent = kFp8MinExponent; exponent <= kFp8MaxExponent; ++exponent) {
    const auto scale = static_cast<uint8_t>(exponent + static_cast<int>(kFp8ScaleBias));
    const uint32_t factor = Fp8Factor<T, kConverted>(scale);
    for (uint32_t first = 0; first < 256; ++first) {
      // Four different elements.
      const uint32_t elements[4] = {first, first * 3 % 256, 255 - first, first ^ 0x55u};
      uint32_t low = 0, high = 0;
      Fp8Widen<T, kConverted>(
          elements[0] | elements[1] << 8 | elements[2] << 16 | elements[3] << 24, factor, low,
          high);
      for (int i = 0; i < 4; ++i) {
        const auto element = static_cast<uint8_t>(elements[i]);
        const T found{static_cast<uint16_t>((i % 2 == 0 ? low : high) >> i / 2 * 16)};
        if (Fp8IsNaN(element)) {
          ASSERT_EQ(std::isnan(ToFloat(found)), kConverted);
          continue;
        }
        const float expected = Fp8Value(element) * Fp8Scale(scale);
        ASSERT_EQ(FloatBits(ToFloat(found)), FloatBits(expected))
            << "element " << elements[i] << ", scale 2^" << exponent;
      }
    }
  }
  // What was never written: any scale makes zeros of zeros.
  for (uint32_t scale = 0; scale < 256; ++scale) {
    uint32_t low = 1, high = 1;
    Fp8Widen<T, kConverted>(0, Fp8Factor<T, kConverted>(scale), low, high);
    ASSERT_EQ(low, 0u) << scale;
    ASSERT_EQ(high, 0u) << scale;
  }
}

TEST(Fp8RowsTest, WidenedElementsAreTheFormatsValues) {
  ExpectExact<Bf16, false>();
  ExpectExact<F16, false>();
  ExpectExact<F16, true>();
}

}  // namespace
}  // namespace tlm::simt
