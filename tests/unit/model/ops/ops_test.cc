// Every operation against double precision, and its rows against other groupings of the same rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/ops/rope_table.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

struct MatMulShape {
  int64_t m, n, k;
};

TEST_P(OpsTest, MatMulIsTheProductForEveryShapeAndStorage) {
  const MatMulShape shapes[] = {{1, 1, 1},    {1, 16, 8},   {3, 17, 5},    {2, 300, 64},
                                {4, 33, 31},  {5, 129, 48}, {7, 16, 100},  {8, 40, 64},
                                {9, 257, 77}, {65, 50, 40}, {130, 31, 130}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const MatMulShape& shape : shapes) {
      const HostMatrix w(shape.n, shape.k, dtype, 1);
      const auto packed = Pack(w);
      EXPECT_EQ(packed->dtype(), dtype);
      std::vector<float> x = RandomFloats(shape.m * shape.k, 2);
      std::vector<float> out(shape.m * shape.n, std::nanf(""));
      ASSERT_THAT(ops_->MatMul(AsRows(x, shape.k), *packed, AsRows(out, shape.n)), IsOk());
      for (int64_t m = 0; m < shape.m; ++m) {
        for (int64_t n = 0; n < shape.n; ++n) {
          double expected = 0.0;
          double magnitude = 0.0;
          for (int64_t k = 0; k < shape.k; ++k) {
            const double product = static_cast<double>(x[m * shape.k + k]) * w.at(n, k);
            expected += product;
            magnitude += std::abs(product);
          }
          // k roundings of partial sums (two each without a fused multiply-add).
          const double bound = 2e-7 * magnitude * std::sqrt(static_cast<double>(shape.k)) + 1e-7;
          ASSERT_NEAR(out[m * shape.n + n], expected, bound)
              << DTypeName(dtype) << " " << shape.m << "x" << shape.n << "x" << shape.k;
        }
      }
    }
  }
}

TEST_P(OpsTest, MatMulRowsDoNotDependOnHowManyThereAre) {
  constexpr int64_t kRows = 70, kN = 203, kK = 150;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto packed = Pack(HostMatrix(kN, kK, dtype, 3));
    std::vector<float> x = RandomFloats(kRows * kK, 4);
    std::vector<float> together(kRows * kN);
    ASSERT_THAT(ops_->MatMul(AsRows(x, kK), *packed, AsRows(together, kN)), IsOk());
    for (const int64_t chunk : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 33, 64}) {
      std::vector<float> apart(kRows * kN);
      for (int64_t begin = 0; begin < kRows; begin += chunk) {
        const int64_t rows = std::min(chunk, kRows - begin);
        ASSERT_THAT(ops_->MatMul({x.data() + begin * kK, rows, kK, kK}, *packed,
                                 {apart.data() + begin * kN, rows, kN, kN}),
                    IsOk());
      }
      ASSERT_EQ(apart, together) << DTypeName(dtype) << ", chunks of " << chunk;
    }
  }
}

TEST_P(OpsTest, PackMatrixStacksPartsAndWidensMixedTypes) {
  const HostMatrix a(20, 6, DType::kBF16, 5), b(3, 6, DType::kF32, 6);
  const TensorView views[] = {a.view(), b.view()};
  auto packed = ops_->PackMatrix(views);
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ((*packed)->n(), 23);
  EXPECT_EQ((*packed)->dtype(), DType::kF32);
  const std::vector<int32_t> ids = {0, 19, 20, 22};
  std::vector<float> out(ids.size() * 6);
  ASSERT_THAT(ops_->Embed(**packed, ids.data(), AsRows(out, 6)), IsOk());
  for (int64_t col = 0; col < 6; ++col) {
    EXPECT_EQ(out[col], a.at(0, col));
    EXPECT_EQ(out[6 + col], a.at(19, col));
    EXPECT_EQ(out[12 + col], b.at(0, col));
    EXPECT_EQ(out[18 + col], b.at(2, col));
  }
}

TEST_P(OpsTest, PackMatrixReadsDoubles) {
  const std::vector<double> values = {1.0, 2.0, 1e-3, -4.5};
  const TensorView view{DType::kF64, Shape{2, 2}, values.data()};
  auto packed = ops_->PackMatrix({&view, 1});
  ASSERT_THAT(packed, IsOk());
  const std::vector<int32_t> ids = {1};
  std::vector<float> out(2);
  ASSERT_THAT(ops_->Embed(**packed, ids.data(), AsRows(out, 2)), IsOk());
  EXPECT_EQ(out, (std::vector<float>{1e-3f, -4.5f}));
}

TEST_P(OpsTest, RmsNormNormalisesEveryGroup) {
  for (const int64_t group : {4, 20, 33, 64}) {
    const int64_t cols = 3 * group;
    std::vector<float> in = RandomFloats(5 * cols, 7);
    const std::vector<float> gain = RandomFloats(group, 8);
    std::vector<float> out(in.size());
    ASSERT_THAT(ops_->RmsNorm(AsRows(in, cols), group, gain.data(), 1e-5f, AsRows(out, cols)),
                IsOk());
    for (int64_t begin = 0; begin < static_cast<int64_t>(in.size()); begin += group) {
      double squares = 0.0;
      for (int64_t j = 0; j < group; ++j) squares += std::pow(in[begin + j], 2.0);
      const double root = std::sqrt(squares / static_cast<double>(group) + 1e-5);
      for (int64_t j = 0; j < group; ++j) {
        ASSERT_NEAR(out[begin + j], in[begin + j] / root * gain[j], 2e-6);
      }
    }
    ASSERT_THAT(ops_->RmsNorm(AsRows(in, cols), group, gain.data(), 1e-5f, AsRows(in, cols)),
                IsOk());
    EXPECT_EQ(in, out) << "in place";
  }
}

TEST_P(OpsTest, SwiGluHoldsFromTheSmallestToTheLargestGate) {
  std::vector<float> gate_up = RandomFloats(2 * 2 * 37, 9, 4.0f);
  const float extremes[] = {0.0f, -0.0f, 88.0f, -88.0f, 1000.0f, -1000.0f, 3e38f, -3e38f, 1e-30f};
  std::copy(std::begin(extremes), std::end(extremes), gate_up.begin());
  std::vector<float> out(2 * 37);
  ASSERT_THAT(ops_->SwiGlu(AsRows(gate_up, 74), AsRows(out, 37)), IsOk());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t j = 0; j < 37; ++j) {
      const double gate = gate_up[row * 74 + j];
      const double expected = gate / (1.0 + std::exp(-gate)) * gate_up[row * 74 + 37 + j];
      if (std::abs(expected) > std::numeric_limits<float>::max()) {
        ASSERT_TRUE(std::isinf(out[row * 37 + j]));
        continue;
      }
      ASSERT_NEAR(out[row * 37 + j], expected, 1e-6 * std::abs(expected) + 1e-35) << gate;
    }
  }
}

TEST_P(OpsTest, RopeRotatesBothPairings) {
  constexpr int64_t kHeadDim = 12, kHeads = 3;
  const std::vector<float> table = MakeRopeTable(100, kHeadDim, 10000.0);
  const std::vector<int32_t> positions = {0, 99, 1, 57};
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalf}) {
    const std::vector<float> in = RandomFloats(4 * kHeads * kHeadDim, 10);
    std::vector<float> out = in;
    ASSERT_THAT(ops_->Rope(AsRows(out, kHeads * kHeadDim), kHeadDim, pairing, table.data(),
                           positions.data()),
                IsOk());
    for (int64_t head = 0; head < 4 * kHeads; ++head) {
      for (int64_t i = 0; i < kHeadDim / 2; ++i) {
        const double angle =
            positions[head / kHeads] * std::pow(10000.0, -2.0 * i / double{kHeadDim});
        const bool half = pairing == RopePairing::kHalf;
        const int64_t a = head * kHeadDim + (half ? i : 2 * i);
        const int64_t b = head * kHeadDim + (half ? i + kHeadDim / 2 : 2 * i + 1);
        ASSERT_NEAR(out[a], in[a] * std::cos(angle) - in[b] * std::sin(angle), 1e-6);
        ASSERT_NEAR(out[b], in[a] * std::sin(angle) + in[b] * std::cos(angle), 1e-6);
      }
    }
  }
}

TEST_P(OpsTest, AddAndGatherRows) {
  std::vector<float> x = RandomFloats(3 * 21, 11);
  const std::vector<float> before = x;
  std::vector<float> y = RandomFloats(3 * 21, 12);
  ASSERT_THAT(ops_->Add(AsRows(x, 21), AsRows(y, 21)), IsOk());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], before[i] + y[i]);
  const std::vector<int32_t> rows = {2, 0};
  std::vector<float> out(2 * 21);
  ASSERT_THAT(ops_->GatherRows(AsRows(x, 21), rows.data(), AsRows(out, 21)), IsOk());
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 21, x.begin() + 2 * 21));
  EXPECT_TRUE(std::equal(out.begin() + 21, out.end(), x.begin()));
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpsTest, ::testing::ValuesIn(AvailableIsas()), IsaTestName);

}  // namespace
}  // namespace tlm
