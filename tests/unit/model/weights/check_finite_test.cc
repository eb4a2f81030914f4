#include "model/weights/check_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "model/base/float16.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
TensorView View(DType dtype, const std::vector<T>& values) {
  return {dtype, {static_cast<int64_t>(values.size())}, values.data()};
}

TEST(CheckFiniteTest, AcceptsTheLargestAndTheSmallestNumbers) {
  EXPECT_THAT(CheckFinite(View<float>(DType::kF32, {0, -0.0f, 3.4028235e38f, -3.4028235e38f,
                                                    std::numeric_limits<float>::denorm_min()}),
                          "x"),
              IsOk());
  EXPECT_THAT(
      CheckFinite(View<double>(DType::kF64, {double{std::numeric_limits<float>::max()}, -1e-300}),
                  "x"),
      IsOk());
  EXPECT_THAT(CheckFinite(View<uint16_t>(DType::kBF16, {0x7f7f, 0xff7f, 0x0001, 0x8000}), "x"),
              IsOk());
  EXPECT_THAT(CheckFinite(View<uint16_t>(DType::kF16, {0x7bff, 0xfbff, 0x0001, 0x8000}), "x"),
              IsOk());
  EXPECT_THAT(CheckFinite({DType::kF32, {0, 5}, nullptr}, "x"), IsOk());
}

TEST(CheckFiniteTest, NamesTheFirstOfManyInALargeTensor) {
  constexpr int64_t kElements = int64_t{20} << 20;
  std::vector<uint16_t> values(kElements, 0);
  EXPECT_THAT(CheckFinite(View(DType::kBF16, values), "x"), IsOk());
  for (const int64_t index : {kElements - 1, int64_t{17} << 20, int64_t{9000000}, int64_t{3}}) {
    values[index] = FloatToBf16(kInfinity);
    EXPECT_THAT(CheckFinite(View(DType::kBF16, values), "x"),
                IsInvalidArgument("element " + std::to_string(index) + " is inf"));
  }
}

TEST(CheckFiniteTest, NamesTensorIndexAndValueForEveryType) {
  EXPECT_THAT(CheckFinite(View<float>(DType::kF32, {1, 2, kInfinity}), "w1"),
              IsInvalidArgument("'w1'", "[3]", "element 2 is inf"));
  EXPECT_THAT(CheckFinite(View<float>(DType::kF32, {-kInfinity, kInfinity}), "x"),
              IsInvalidArgument("element 0 is -inf"));
  EXPECT_THAT(CheckFinite(View<float>(DType::kF32, {0, std::nanf("")}), "x"),
              IsInvalidArgument("element 1 is nan"));
  EXPECT_THAT(CheckFinite(View<double>(DType::kF64, {0, -1.0 / 0.0}), "x"),
              IsInvalidArgument("element 1 is -inf"));
  EXPECT_THAT(CheckFinite(View<double>(DType::kF64, {0, -1e300}), "x"),
              IsInvalidArgument("element 1 is -1e+300"));
  EXPECT_THAT(CheckFinite(View<uint16_t>(DType::kBF16, {0, FloatToBf16(kInfinity)}), "x"),
              IsInvalidArgument("element 1 is inf"));
  EXPECT_THAT(CheckFinite(View<uint16_t>(DType::kF16, {0, FloatToF16(-kInfinity)}), "x"),
              IsInvalidArgument("element 1 is -inf"));
  EXPECT_THAT(CheckFinite(View<uint16_t>(DType::kF16, {0x7e00}), "x"),
              IsInvalidArgument("element 0 is nan"));
}

TEST(CheckFiniteTest, FindsTheFirstOneWhereverItStands) {
  constexpr size_t kSize = 9001;  // more than two blocks and a rest
  for (const size_t place :
       {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{8191}, size_t{8192}, kSize - 1}) {
    std::vector<float> values(kSize, 1.0f);
    values[place] = kInfinity;
    values.back() = std::nanf("");
    EXPECT_THAT(CheckFinite(View(DType::kF32, values), "x"),
                IsInvalidArgument("element " + std::to_string(place) + " is"));
  }
}

TEST(CheckFiniteTest, RefusesTypesWithoutInfinities) {
  EXPECT_THAT(CheckFinite(View<int32_t>(DType::kI32, {1}), "ids"),
              IsInvalidArgument("'ids'", "I32"));
}

}  // namespace
}  // namespace tlm
