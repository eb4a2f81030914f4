// Values by the definitions of the formats, from memory that is aligned to nothing.
#include "model/tensor/float_elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An element's bits, lowest byte first, and its value.
struct Element {
  DType dtype;
  uint64_t bits;
  double value;
  float rounded;
};
constexpr Element kElements[] = {
    {DType::kBF16, 0x0000, 0.0, 0.0f},
    {DType::kBF16, 0x3f80, 1.0, 1.0f},
    {DType::kBF16, 0xc049, -3.140625, -3.140625f},
    {DType::kBF16, 0x0001, 0x1p-133, 0x1p-133f},
    {DType::kBF16, 0xff80, -kInfinity, -kInfinity},
    {DType::kF16, 0x3c00, 1.0, 1.0f},
    {DType::kF16, 0xc248, -3.140625, -3.140625f},
    {DType::kF16, 0x0001, 0x1p-24, 0x1p-24f},
    {DType::kF16, 0x7bff, 65504.0, 65504.0f},
    {DType::kF16, 0x7c00, kInfinity, kInfinity},
    {DType::kF32, 0x3f800000, 1.0, 1.0f},
    {DType::kF32, 0xc0490fdb, -0x1.921fb6p+1, -0x1.921fb6p+1f},
    {DType::kF32, 0x00000001, 0x1p-149, 0x1p-149f},
    {DType::kF64, 0x3ff0000000000000, 1.0, 1.0f},
    // Rounding in both directions, a tie to even, and beyond the largest float.
    {DType::kF64, 0x3ff0000010000001, 0x1.0000010000001p+0, 0x1.000002p+0f},
    {DType::kF64, 0x3ff000000fffffff, 0x1.000000fffffffp+0, 1.0f},
    {DType::kF64, 0x3ff0000010000000, 0x1.000001p+0, 1.0f},
    {DType::kF64, 0x7fe0000000000000, 0x1p+1023, kInfinity},
};

TEST(FloatElementsTest, AnElementHasItsValueWhereverItLies) {
  for (const Element& element : kElements) {
    SCOPED_TRACE(std::string(DTypeName(element.dtype)) + " " + std::to_string(element.value));
    const size_t bytes = DTypeBytes(element.dtype);
    for (const size_t offset : {size_t{0}, size_t{1}}) {
      for (const int64_t index : {0, 3}) {
        std::vector<char> memory(offset + 4 * bytes);
        std::memcpy(memory.data() + offset + static_cast<size_t>(index) * bytes, &element.bits,
                    bytes);
        const char* const data = memory.data() + offset;
        EXPECT_EQ(FloatAt(data, element.dtype, index), element.rounded);
        EXPECT_EQ(DoubleAt(data, element.dtype, index), element.value);
      }
    }
  }
}

TEST(FloatElementsTest, ANaNStaysOne) {
  const uint64_t bits[] = {0x7fc0, 0x7e00, 0x7fc00000, 0x7ff8000000000000};
  const DType types[] = {DType::kBF16, DType::kF16, DType::kF32, DType::kF64};
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(FloatAt(&bits[i], types[i], 0))) << DTypeName(types[i]);
    EXPECT_TRUE(std::isnan(DoubleAt(&bits[i], types[i], 0))) << DTypeName(types[i]);
  }
}

TEST(FloatElementsTest, ARowOfStridedElementsIsTheElementsOneByOne) {
  constexpr int64_t kCount = 5;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (const int64_t stride : {1, 3}) {
      std::vector<char> memory(1 + DTypeBytes(dtype) * kCount * stride);
      for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 7 % 61);
      const char* const data = memory.data() + 1;
      float values[kCount + 1] = {};
      values[kCount] = -1.0f;
      FloatsAt(data, dtype, stride, kCount, values);
      for (int64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(values[i], FloatAt(data, dtype, i * stride)) << DTypeName(dtype) << " " << i;
      }
      EXPECT_EQ(values[kCount], -1.0f);
    }
  }
}

}  // namespace
}  // namespace tlm
