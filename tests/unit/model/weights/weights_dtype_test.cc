#include "model/weights/weights_dtype.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

DType Of(std::string_view json) {
  const absl::StatusOr<DType> dtype = WeightsDTypeOf(json);
  EXPECT_TRUE(dtype.ok()) << json << ": " << dtype.status();
  return dtype.value_or(DType::kBool);
}

TEST(WeightsDTypeTest, IsWhatTheConfigurationNames) {
  EXPECT_EQ(Of(R"({"torch_dtype": "bfloat16"})"), DType::kBF16);
  EXPECT_EQ(Of(R"({"dtype": "float16"})"), DType::kF16);
  EXPECT_EQ(Of(R"({"torch_dtype": null, "dtype": "float32"})"), DType::kF32);
  EXPECT_EQ(Of(R"({"torch_dtype": "float64"})"), DType::kF32);
  EXPECT_EQ(Of("{}"), DType::kF32);
}

TEST(WeightsDTypeTest, RefusesOthers) {
  EXPECT_EQ(WeightsDTypeOf(R"({"torch_dtype": "int8"})").status().message(),
            "torch_dtype is 'int8', it may be float32, bfloat16 or float16");
  EXPECT_EQ(WeightsDTypeOf(R"({"dtype": 7})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(WeightsDTypeOf("[]").ok());
  EXPECT_FALSE(WeightsDTypeOf("{").ok());
  EXPECT_FALSE(WeightsDTypeFromName("bf16").ok());
  EXPECT_EQ(*WeightsDTypeFromName("float16"), DType::kF16);
}

}  // namespace
}  // namespace tlm
