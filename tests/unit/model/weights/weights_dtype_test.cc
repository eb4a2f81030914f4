#include "model/weights/weights_dtype.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(WeightsDTypeTest, KnowsThreeNames) {
  EXPECT_EQ(*WeightsDTypeFromName("float32"), DType::kF32);
  EXPECT_EQ(*WeightsDTypeFromName("bfloat16"), DType::kBF16);
  EXPECT_EQ(*WeightsDTypeFromName("float16"), DType::kF16);
  EXPECT_EQ(WeightsDTypeFromName("bf16").status().message(),
            "is 'bf16', it may be float32, bfloat16 or float16");
}

}  // namespace
}  // namespace tlm
