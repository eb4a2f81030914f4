// Every operation against double precision, and its rows against other groupings of the same rows.
#include <algorithm>
#include <cmath>
#include <numeric>

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
      ASSERT_THAT(ops_->MatMul(AsRows(x, shape.k), *packed, nullptr, AsRows(out, shape.n)), IsOk());
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

TEST_P(OpsTest, MatMulAddsTheBiasToTheFinishedProduct) {
  for (const MatMulShape& shape : {MatMulShape{1, 5, 3}, {3, 17, 40}, {9, 300, 20}}) {
    const auto packed = Pack(HostMatrix(shape.n, shape.k, DType::kF32, 1));
    std::vector<float> x = RandomFloats(shape.m * shape.k, 2);
    const std::vector<float> bias = RandomFloats(shape.n, 3);
    std::vector<float> plain(shape.m * shape.n), biased(shape.m * shape.n);
    ASSERT_THAT(ops_->MatMul(AsRows(x, shape.k), *packed, nullptr, AsRows(plain, shape.n)), IsOk());
    ASSERT_THAT(ops_->MatMul(AsRows(x, shape.k), *packed, bias.data(), AsRows(biased, shape.n)),
                IsOk());
    for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(biased[i], plain[i] + bias[i % shape.n]);
  }
}

TEST_P(OpsTest, MatMulRowsDoNotDependOnHowManyThereAre) {
  constexpr int64_t kRows = 70, kN = 203, kK = 150;
  const std::vector<float> bias = RandomFloats(kN, 5);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto packed = Pack(HostMatrix(kN, kK, dtype, 3));
    std::vector<float> x = RandomFloats(kRows * kK, 4);
    std::vector<float> together(kRows * kN);
    ASSERT_THAT(ops_->MatMul(AsRows(x, kK), *packed, bias.data(), AsRows(together, kN)), IsOk());
    for (const int64_t chunk : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 33, 64}) {
      std::vector<float> apart(kRows * kN);
      for (int64_t begin = 0; begin < kRows; begin += chunk) {
        const int64_t rows = std::min(chunk, kRows - begin);
        ASSERT_THAT(ops_->MatMul({x.data() + begin * kK, rows, kK, kK}, *packed, bias.data(),
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

TEST_P(OpsTest, PackMatrixTakesEitherOrder) {
  // Widths that start and end panels within a part, and types that must be widened or need not be.
  for (const DType second : {DType::kBF16, DType::kF32}) {
    const HostMatrix a(37, 21, DType::kBF16, 5), b(37, 30, second, 6);
    const TensorView views[] = {a.view(), b.view()};
    auto packed = ops_->PackMatrix(views, MatrixOrder::kInputsFirst);
    ASSERT_THAT(packed, IsOk());
    ASSERT_EQ((*packed)->n(), 51);
    ASSERT_EQ((*packed)->k(), 37);
    EXPECT_EQ((*packed)->dtype(), second);
    std::vector<int32_t> ids(51);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> out(51 * 37);
    ASSERT_THAT(ops_->Embed(**packed, ids.data(), AsRows(out, 37)), IsOk());
    for (int64_t n = 0; n < 51; ++n) {
      for (int64_t k = 0; k < 37; ++k) {
        ASSERT_EQ(out[n * 37 + k], n < 21 ? a.at(k, n) : b.at(k, n - 21)) << n << ", " << k;
      }
    }
  }
}

TEST_P(OpsTest, PackVectorLaysPartsEndToEnd) {
  const std::vector<float> first = {1.0f, 2.5f, -3.0f};
  const std::vector<double> second = {1e-3, 4.0};
  const std::vector<uint16_t> third = {FloatToBf16(7.0f)};
  const TensorView parts[] = {AsVector(first),
                              {DType::kF64, Shape{2}, second.data()},
                              {DType::kBF16, Shape{1}, third.data()}};
  const auto packed = ops_->PackVector(parts);
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ(packed->bytes(), 6 * sizeof(float));
  std::vector<float> values(6);
  ASSERT_THAT(ops_->device().CopyToHost(values.data(), packed->data(), packed->bytes()), IsOk());
  EXPECT_THAT(values, ::testing::ElementsAre(1.0f, 2.5f, -3.0f, 1e-3f, 4.0f, 7.0f));
}

TEST_P(OpsTest, CopyOnDeviceCopies) {
  auto buffer = ops_->device().Allocate(4 * sizeof(float), MemoryPurpose::kRuntime);
  ASSERT_THAT(buffer, IsOk());
  const float values[] = {1.0f, 2.0f};
  float* const data = buffer->as<float>();
  ASSERT_THAT(ops_->device().CopyToDevice(data, values, sizeof(values)), IsOk());
  ASSERT_THAT(ops_->device().CopyOnDevice(data + 2, data, sizeof(values)), IsOk());
  ASSERT_THAT(ops_->device().CopyOnDevice(data, data + 3, 0), IsOk());
  float copied[4];
  ASSERT_THAT(ops_->device().CopyToHost(copied, data, sizeof(copied)), IsOk());
  EXPECT_THAT(copied, ::testing::ElementsAre(1.0f, 2.0f, 1.0f, 2.0f));
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

TEST_P(OpsTest, RopeRotatesBothPairings) {
  constexpr int64_t kHeadDim = 12, kHeads = 3;
  const std::vector<float> table = RopeTable(kHeadDim, 10000.0).Entries(0, 100);
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
