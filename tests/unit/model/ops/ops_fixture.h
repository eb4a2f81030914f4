// Op tests are written once, against Ops, and run on every backend and instruction set.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_
#define TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/ops.h"
#include "tests/support/status_matchers.h"

namespace tlm {

inline std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline TensorView AsVector(const std::vector<float>& values) {
  return {DType::kF32, Shape{static_cast<int64_t>(values.size())}, values.data()};
}

inline Rows AsRows(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

// A host matrix in one of the stored types, and the exact values it holds.
class HostMatrix {
 public:
  HostMatrix(int64_t rows, int64_t cols, DType dtype, uint64_t seed)
      : rows_(rows), cols_(cols), dtype_(dtype), values_(RandomFloats(rows * cols, seed)) {
    for (float& value : values_) {
      if (dtype == DType::kF32) continue;
      const uint16_t half = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      value = dtype == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
      halves_.push_back(half);
    }
  }
  TensorView view() const {
    const void* data = values_.data();
    if (dtype_ != DType::kF32) data = halves_.data();
    return {dtype_, Shape{rows_, cols_}, data};
  }
  float at(int64_t row, int64_t col) const { return values_[row * cols_ + col]; }

 private:
  const int64_t rows_;
  const int64_t cols_;
  const DType dtype_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
};

class OpsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    auto ops = CpuOps::Create(2, GetParam());
    ASSERT_THAT(ops, IsOk());
    ops_ = *std::move(ops);
  }
  std::unique_ptr<Matrix> Pack(const HostMatrix& host) {
    const TensorView view = host.view();
    auto matrix = ops_->PackMatrix({&view, 1});
    EXPECT_THAT(matrix, IsOk());
    return *std::move(matrix);
  }

  std::unique_ptr<Ops> ops_;
};

inline std::string IsaTestName(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_
