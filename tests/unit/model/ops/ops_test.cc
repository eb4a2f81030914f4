// Matrix products and their epilogues against double precision, and rows against other
// groupings of the same rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/base/float16.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

struct MatMulShape {
  int64_t m, n, k;
};

// Odd ones, and those that tensor cores take.
std::vector<MatMulShape> Shapes(bool emulated) {
  std::vector<MatMulShape> shapes = {{1, 1, 1},    {1, 16, 8},   {3, 17, 5},   {4, 33, 31},
                                     {8, 40, 64},  {9, 57, 77},  {1, 64, 64},  {7, 32, 128},
                                     {17, 96, 96}, {65, 48, 32}, {129, 24, 40}};
  if (!emulated) {
    shapes.insert(shapes.end(), {{2, 300, 64}, {5, 129, 48}, {130, 31, 130}, {200, 256, 1024}});
  }
  return shapes;
}

// A sum of products in double precision, and of their magnitudes.
struct Dot {
  double value = 0.0;
  double magnitude = 0.0;
};
Dot DotOf(const std::vector<float>& x, int64_t m, const HostMatrix& w, int64_t n) {
  Dot dot;
  for (int64_t k = 0; k < w.cols(); ++k) {
    const double product = static_cast<double>(x[m * w.cols() + k]) * w.at(n, k);
    dot.value += product;
    dot.magnitude += std::abs(product);
  }
  return dot;
}
// k roundings of partial sums (two each without a fused multiply-add), or for every 16 products one
// truncation of their sum.
double SumError(const Dot& dot, int64_t k) {
  const double terms = static_cast<double>(k);
  return (2e-7 * std::sqrt(terms) + 2.4e-7 * terms / 16.0) * dot.magnitude + 1e-7;
}

class MatMulTest : public OpsTest {};

TEST_P(MatMulTest, IsTheProductForEveryShape) {
  for (const MatMulShape& shape : Shapes(GetParam().emulated)) {
    const HostMatrix w(shape.n, shape.k, weights(), 1);
    const auto packed = Pack(w);
    EXPECT_EQ(packed->dtype(), weights());
    EXPECT_EQ(packed->n(), shape.n);
    EXPECT_EQ(packed->k(), shape.k);
    const std::vector<float> x = Rounded(RandomFloats(shape.m * shape.k, 2), activations());
    const DeviceRows in = Upload(x, shape.k, activations());
    for (const DType out_type : {activations(), DType::kF32}) {
      const DeviceRows out = Poisoned(shape.m, shape.n, out_type);
      ASSERT_THAT(ops_->MatMul(in.rows, *packed, {}, out.rows), IsOk());
      const std::vector<float> actual = Download(out);
      for (int64_t i = 0; i < shape.m * shape.n; ++i) {
        const Dot dot = DotOf(x, i / shape.n, w, i % shape.n);
        ASSERT_NEAR(actual[i], dot.value,
                    SumError(dot, shape.k) + RoundingError(dot.value, out_type))
            << shape.m << "x" << shape.n << "x" << shape.k << " to " << DTypeName(out_type);
      }
    }
  }
}

TEST_P(MatMulTest, AddsTheBiasToTheFinishedProduct) {
  for (const MatMulShape& shape : {MatMulShape{1, 5, 3}, {3, 17, 40}, {9, 64, 32}, {70, 40, 16}}) {
    const auto packed = Pack(HostMatrix(shape.n, shape.k, weights(), 1));
    const DeviceRows x = Upload(RandomFloats(shape.m * shape.k, 2), shape.k, activations());
    const std::vector<float> bias = RandomFloats(shape.n, 3);
    const Buffer device_bias = Upload(bias);
    const DeviceRows plain = Poisoned(shape.m, shape.n, DType::kF32);
    const DeviceRows biased = Poisoned(shape.m, shape.n, DType::kF32);
    ASSERT_THAT(ops_->MatMul(x.rows, *packed, {}, plain.rows), IsOk());
    ASSERT_THAT(ops_->MatMul(x.rows, *packed, {.bias = device_bias.as<float>()}, biased.rows),
                IsOk());
    const std::vector<float> without = Download(plain);
    const std::vector<float> with = Download(biased);
    for (size_t i = 0; i < without.size(); ++i) {
      ASSERT_EQ(with[i], without[i] + bias[i % static_cast<size_t>(shape.n)]);
    }
  }
}

double Exact(Activation activation, double a) {
  switch (activation) {
    case Activation::kSilu:
      return a / (1.0 + std::exp(-a));
    case Activation::kRelu:
      return std::max(a, 0.0);
    case Activation::kGeluTanh:
      // 1 + tanh(u) = 2 / (1 + e^-2u), which keeps its digits where tanh is near -1.
      return a / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (a + 0.044715 * a * a * a)));
    case Activation::kGelu:
      return a / 2.0 * std::erfc(-a / std::sqrt(2.0));
  }
  return 0.0;
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kRelu, Activation::kGeluTanh,
                                       Activation::kGelu};

// The products are the values themselves: a row of w has one that is not 0.
class ActivationTest : public OpsTest {
 protected:
  // f(values), through a matrix of k inputs.
  std::vector<float> Activate(Activation activation, const std::vector<float>& values, int64_t k) {
    const int64_t n = static_cast<int64_t>(values.size());
    std::vector<float> diagonal(n * k, 0.0f);
    for (int64_t i = 0; i < n; ++i) diagonal[i * k] = values[i];
    const auto packed = Pack(HostMatrix(k, weights(), diagonal));
    std::vector<float> one(k, 0.0f);
    one[0] = 1.0f;
    const DeviceRows x = Upload(one, k, activations());
    const DeviceRows out = Poisoned(1, n, DType::kF32);
    EXPECT_THAT(ops_->MatMul(x.rows, *packed, {.activation = activation}, out.rows), IsOk());
    return Download(out);
  }
};

TEST_P(ActivationTest, KeepsItsDigitsEverywhere) {
  std::vector<float> in = {0.0f,   1e-30f,  -1e-30f,  1e-10f, -1e-10f, 80.0f,
                           -80.0f, 1000.0f, -1000.0f, 14.0f,  -14.0f};
  if (weights() != DType::kF16) in.insert(in.end(), {3e38f, -3e38f});
  const float step = GetParam().emulated ? 0.037f : 0.0037f;
  for (float a = -16.0f; a < 16.0f; a += step) in.push_back(a);
  in.resize((in.size() + 15) / 16 * 16, 1.0f);
  in = Rounded(in, weights());
  constexpr double kUlp = std::numeric_limits<float>::epsilon();
  for (const Activation activation : kActivations) {
    for (const int64_t k : {1, 16}) {
      const std::vector<float> out = Activate(activation, in, k);
      for (size_t i = 0; i < in.size(); ++i) {
        const double expected = Exact(activation, in[i]);
        // Below 1e-36 the exponential is taken for 0.
        ASSERT_NEAR(out[i], expected, 6 * kUlp * std::abs(expected) + 1e-35)
            << "activation " << static_cast<int>(activation) << " of " << in[i];
      }
    }
  }
}

TEST_P(ActivationTest, OfNanIsNan) {
  // A NaN would not be packed; one among the inputs makes every product NaN.
  for (const Activation activation : kActivations) {
    const auto packed = Pack(HostMatrix(19, 16, weights(), 1));
    std::vector<float> values(16, 1.0f);
    values[5] = std::nanf("");
    const DeviceRows x = Upload(values, 16, activations());
    const DeviceRows out = Upload(std::vector<float>(19, 0.0f), 19, activations());
    ASSERT_THAT(ops_->MatMul(x.rows, *packed, {.activation = activation}, out.rows), IsOk());
    for (const float value : Download(out)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(MatMulTest, GatedIsTheGatedProduct) {
  for (const MatMulShape& shape :
       {MatMulShape{1, 14, 5}, {3, 37, 16}, {9, 64, 64}, {17, 96, 32}, {70, 48, 40}}) {
    const int64_t n = 2 * shape.n;
    const HostMatrix w(n, shape.k, weights(), 1);
    const auto packed = Pack(w, MatrixUse::kGated);
    EXPECT_EQ(packed->n(), n);
    const std::vector<float> x = Rounded(RandomFloats(shape.m * shape.k, 2), activations());
    const DeviceRows in = Upload(x, shape.k, activations());
    const std::vector<float> bias = RandomFloats(n, 3);
    const Buffer device_bias = Upload(bias);
    for (const bool biased : {false, true}) {
      const DeviceRows out = Poisoned(shape.m, shape.n, activations());
      ASSERT_THAT(
          ops_->MatMulGated(in.rows, *packed, biased ? device_bias.as<float>() : nullptr, out.rows),
          IsOk());
      const std::vector<float> actual = Download(out);
      for (int64_t i = 0; i < shape.m * shape.n; ++i) {
        const int64_t j = i % shape.n;
        const Dot gate_dot = DotOf(x, i / shape.n, w, j);
        const Dot up_dot = DotOf(x, i / shape.n, w, shape.n + j);
        const double gate = gate_dot.value + (biased ? bias[j] : 0.0);
        const double up = up_dot.value + (biased ? bias[shape.n + j] : 0.0);
        const double silu = Exact(Activation::kSilu, gate);
        // Products may be rounded, and again with the bias; the slope of silu is below 1.1.
        const double gate_error = SumError(gate_dot, shape.k) +
                                  1.01 * RoundingError(gate_dot.value, activations()) +
                                  1.01 * RoundingError(gate, activations());
        const double up_error = SumError(up_dot, shape.k) +
                                1.01 * RoundingError(up_dot.value, activations()) +
                                1.01 * RoundingError(up, activations());
        const double tolerance = 1.1 * gate_error * (std::abs(up) + up_error) +
                                 (std::abs(silu) + gate_error) * up_error +
                                 1.1 * RoundingError(silu * up, activations()) + 1e-6;
        ASSERT_NEAR(actual[i], silu * up, tolerance) << shape.m << "x" << shape.n << "x" << shape.k;
      }
    }
  }
}

// The rows of a packed matrix, as Embed gives them.
class PackTest : public OpsTest {
 protected:
  std::vector<float> RowsOf(const Matrix& matrix, const std::vector<int32_t>& ids) {
    Batch batch = BatchOf({{.tokens = static_cast<int64_t>(ids.size()), .blocks = {0}}});
    batch.token_ids = ids;
    const DeviceRows out = Poisoned(ops_->PaddedRows(batch.tokens()), matrix.k(), DType::kF32);
    RunBatch(batch, [&](const DeviceBatch& on_device) {
      ASSERT_THAT(ops_->Embed(matrix, nullptr, on_device, out.rows.First(on_device.layout.tokens)),
                  IsOk());
    });
    return Download(out, batch.tokens());
  }
};

TEST_P(PackTest, StacksPartsAndWidensMixedTypes) {
  const HostMatrix a(20, 6, DType::kBF16, 5), b(3, 6, DType::kF32, 6);
  const TensorView views[] = {a.view(), b.view()};
  const auto packed = ops_->PackMatrix(views);
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ((*packed)->n(), 23);
  EXPECT_EQ((*packed)->dtype(), DType::kF32);
  const std::vector<float> out = RowsOf(**packed, {0, 19, 20, 22});
  for (int64_t col = 0; col < 6; ++col) {
    EXPECT_EQ(out[col], a.at(0, col));
    EXPECT_EQ(out[6 + col], a.at(19, col));
    EXPECT_EQ(out[12 + col], b.at(0, col));
    EXPECT_EQ(out[18 + col], b.at(2, col));
  }
}

TEST_P(PackTest, LaysVectorsEndToEnd) {
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

TEST_P(PackTest, CopyOnDeviceCopies) {
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

TEST_P(PackTest, RowsBeginOnWholeLines) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t cols : {1, 31, 32, 33, 576, 1024, 4096}) {
      const int64_t stride = ops_->RowStride(cols, dtype);
      EXPECT_GE(stride, cols) << DTypeName(dtype);
      EXPECT_EQ(static_cast<size_t>(stride) * DTypeBytes(dtype) % 64, 0u) << cols;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MatMulTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);
INSTANTIATE_TEST_SUITE_P(Backends, ActivationTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);
INSTANTIATE_TEST_SUITE_P(Backends, PackTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);

}  // namespace
}  // namespace tlm
