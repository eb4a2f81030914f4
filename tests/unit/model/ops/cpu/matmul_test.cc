// Matrix products of every instruction set of this machine: the bits of a row, whatever else is
// computed with it, and the packing of matrices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cpu/kernels/isa.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

constexpr int64_t kMaxRows = 70;

struct Case {
  Isa isa;
  DType weights;
};
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Isa isa : AvailableIsas()) {
    for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16}) {
      cases.push_back({isa, weights});
    }
  }
  return cases;
}
std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return std::string(IsaName(info.param.isa)) + "_" + std::string(DTypeName(info.param.weights));
}

std::vector<uint8_t> Stored(const std::vector<float>& values, DType dtype) {
  std::vector<uint8_t> bytes(values.size() * DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint8_t* const at = bytes.data() + i * DTypeBytes(dtype);
    const uint16_t half = dtype == DType::kF16 ? FloatToF16(values[i]) : FloatToBf16(values[i]);
    const double wide = values[i];
    if (dtype == DType::kF32) {
      std::memcpy(at, &values[i], sizeof(float));
    } else if (dtype == DType::kF64) {
      std::memcpy(at, &wide, sizeof(wide));
    } else {
      std::memcpy(at, &half, sizeof(half));
    }
  }
  return bytes;
}

// Rows in memory of the host, beside which everything is NaN.
struct HostRows {
  HostRows(const std::vector<float>& values, int64_t cols, DType dtype) {
    const int64_t count = static_cast<int64_t>(values.size()) / cols;
    const int64_t stride = cols + 5;
    std::vector<float> padded(count * stride, std::nanf(""));
    for (int64_t i = 0; i < count * cols; ++i) {
      padded[i / cols * stride + i % cols] = values[i];
    }
    bytes = Stored(padded, dtype);
    rows = {bytes.data(), count, cols, stride, dtype};
  }
  HostRows(int64_t count, int64_t cols, DType dtype)
      : HostRows(std::vector<float>(count * cols, std::nanf("")), cols, dtype) {}

  // The bytes of a row.
  std::string Row(int64_t row) const {
    const size_t element = DTypeBytes(rows.dtype);
    return {reinterpret_cast<const char*>(bytes.data()) +
                static_cast<size_t>(row * rows.stride) * element,
            static_cast<size_t>(rows.cols) * element};
  }
  Rows From(int64_t first, int64_t count) const {
    Rows part = rows.First(count);
    part.data = rows.as<char>() + static_cast<size_t>(first * rows.stride) * DTypeBytes(rows.dtype);
    return part;
  }

  std::vector<uint8_t> bytes;
  Rows rows;
};

class CpuMatMulTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<CpuOps> Make(int threads) {
    auto ops = CpuOps::Create(threads, GetParam().isa);
    EXPECT_THAT(ops, IsOk());
    EXPECT_THAT((*ops)->Reserve({.max_tokens = 512}, {.head_dim = 16, .inputs = 4096}, DType::kF32),
                IsOk());
    return *std::move(ops);
  }
  static DType weights() { return GetParam().weights; }

  static std::unique_ptr<Matrix> Pack(Ops& ops, const std::vector<float>& values, int64_t k,
                                      MatrixUse use = MatrixUse::kPlain) {
    const std::vector<uint8_t> bytes = Stored(values, weights());
    const TensorView view{weights(), Shape{static_cast<int64_t>(values.size()) / k, k},
                          bytes.data()};
    auto packed = ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use);
    EXPECT_THAT(packed, IsOk());
    return *std::move(packed);
  }
};

struct Shapes {
  int64_t n;
  int64_t k;
};
constexpr Shapes kShapes[] = {{1, 1},    {1, 1000}, {15, 2},   {15, 33},   {17, 31},
                              {17, 172}, {100, 1},  {100, 33}, {100, 172}, {100, 1000}};

TEST_P(CpuMatMulTest, RowsHaveTheSameBitsInEveryCompany) {
  const auto alone_ops = Make(1);
  const DType type = alone_ops->ActivationType(weights());
  for (const auto& [n, k] : kShapes) {
    for (const bool gated : {false, true}) {
      const std::vector<float> w = RandomFloats((gated ? 2 : 1) * n * k, 1);
      const std::vector<float> bias = RandomFloats((gated ? 2 : 1) * n, 2);
      const MatrixUse use = gated ? MatrixUse::kGated : MatrixUse::kPlain;
      const auto multiply = [&](CpuOps& ops, const Matrix& matrix, const Rows& x, const Rows& out) {
        return gated ? ops.MatMulGated(x, matrix, bias.data(), out)
                     : ops.MatMul(x, matrix, {.bias = bias.data(), .activation = Activation::kGelu},
                                  out);
      };
      const HostRows x(RandomFloats(kMaxRows * k, 3), k, type);
      const HostRows alone(kMaxRows, n, DType::kF32);
      const auto alone_matrix = Pack(*alone_ops, w, k, use);
      for (int64_t row = 0; row < kMaxRows; ++row) {
        ASSERT_THAT(multiply(*alone_ops, *alone_matrix, x.From(row, 1), alone.From(row, 1)),
                    IsOk());
      }
      for (const int threads : {1, 2, 5}) {
        const auto ops = Make(threads);
        const auto matrix = Pack(*ops, w, k, use);
        for (int64_t rows = 1; rows <= kMaxRows; rows += threads == 2 ? 1 : 11) {
          const HostRows together(rows, n, DType::kF32);
          ASSERT_THAT(multiply(*ops, *matrix, x.From(kMaxRows - rows, rows), together.rows),
                      IsOk());
          for (int64_t row = 0; row < rows; ++row) {
            ASSERT_EQ(together.Row(row), alone.Row(kMaxRows - rows + row))
                << n << "x" << k << (gated ? " gated, row " : ", row ") << row << " of " << rows
                << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

TEST_P(CpuMatMulTest, RowsOfLargeProductsHaveTheSameBits) {
  // More than a block of rows, and panels few enough for rows to be shared out.
  constexpr int64_t kRows = 450;
  constexpr int64_t kInputs = 96;
  const auto ops = Make(3);
  const DType type = ops->ActivationType(weights());
  const HostRows x(RandomFloats(kRows * kInputs, 3), kInputs, type);
  for (const int64_t n : {16, 48, 400}) {
    const auto matrix = Pack(*ops, RandomFloats(n * kInputs, 1), kInputs);
    const HostRows together(kRows, n, type);
    ASSERT_THAT(ops->MatMul(x.rows, *matrix, {}, together.rows), IsOk());
    const HostRows alone(kRows, n, type);
    for (int64_t row = 0; row < kRows; row += 7) {
      ASSERT_THAT(ops->MatMul(x.From(row, 1), *matrix, {}, alone.From(row, 1)), IsOk());
      ASSERT_EQ(together.Row(row), alone.Row(row)) << n << ", row " << row;
    }
  }
}

TEST_P(CpuMatMulTest, NanStaysInItsRow) {
  constexpr int64_t kRows = 30;
  constexpr int64_t kOutputs = 21;
  constexpr int64_t kInputs = 33;
  const auto ops = Make(2);
  const DType type = ops->ActivationType(weights());
  const auto matrix = Pack(*ops, RandomFloats(kOutputs * kInputs, 1), kInputs);
  std::vector<float> values = RandomFloats(kRows * kInputs, 2);
  const HostRows clean(kRows, kOutputs, DType::kF32);
  ASSERT_THAT(ops->MatMul(HostRows(values, kInputs, type).rows, *matrix, {}, clean.rows), IsOk());
  for (int64_t poisoned = 0; poisoned < kRows; poisoned += 3) {
    for (int64_t i = 0; i < kInputs; ++i) {
      values[poisoned * kInputs + i] =
          i % 2 == 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
    }
  }
  const HostRows out(kRows, kOutputs, DType::kF32);
  ASSERT_THAT(ops->MatMul(HostRows(values, kInputs, type).rows, *matrix, {}, out.rows), IsOk());
  for (int64_t row = 0; row < kRows; ++row) {
    if (row % 3 != 0) {
      ASSERT_EQ(out.Row(row), clean.Row(row)) << row;
      continue;
    }
    for (int64_t i = 0; i < kOutputs; ++i) {
      ASSERT_TRUE(std::isnan(out.From(row, 1).as<float>()[i])) << row;
    }
  }
}

// Rows of float: the chain of additions that kernels/matmul.h promises, one after the other.
TEST_P(CpuMatMulTest, FloatSumsAreOneChainOverTheInputs) {
  const auto ops = Make(2);
  if (ops->ActivationType(weights()) != DType::kF32) GTEST_SKIP() << "rows are bfloat16";
#if defined(__x86_64__)
  const bool fused = GetParam().isa != Isa::kPortable;
#else
  const bool fused = true;
#endif
  constexpr int64_t kRows = 17;
  for (const auto& [n, k] : kShapes) {
    const std::vector<float> w = Rounded(RandomFloats(n * k, 1), weights());
    const std::vector<float> x = RandomFloats(kRows * k, 2);
    const auto matrix = Pack(*ops, w, k);
    const HostRows out(kRows, n, DType::kF32);
    ASSERT_THAT(ops->MatMul(HostRows(x, k, DType::kF32).rows, *matrix, {}, out.rows), IsOk());
    for (int64_t at = 0; at < kRows * n; ++at) {
      volatile float sum = 0.0f;
      for (int64_t i = 0; i < k; ++i) {
        const float a = x[at / n * k + i];
        const float b = w[at % n * k + i];
        const volatile float product = a * b;
        sum = fused ? std::fma(a, b, sum) : sum + product;
      }
      ASSERT_EQ(out.From(at / n, 1).as<float>()[at % n], sum) << n << "x" << k << ", " << at;
    }
  }
}

// A matrix's element by element, as products with rows that have a single one.
std::vector<float> ElementsOf(CpuOps& ops, const Matrix& matrix) {
  const int64_t k = matrix.k();
  std::vector<float> ones(k * k, 0.0f);
  for (int64_t i = 0; i < k; ++i) ones[i * k + i] = 1.0f;
  const HostRows x(ones, k, ops.ActivationType(matrix.dtype()));
  const HostRows out(k, matrix.n(), DType::kF32);
  EXPECT_THAT(ops.MatMul(x.rows, matrix, {}, out.rows), IsOk());
  std::vector<float> elements;
  for (int64_t n = 0; n < matrix.n(); ++n) {
    for (int64_t i = 0; i < k; ++i) elements.push_back(out.From(i, 1).as<float>()[n]);
  }
  return elements;
}

// [k, n] of [n, k]
std::vector<float> Transposed(const std::vector<float>& values, int64_t k) {
  const int64_t n = static_cast<int64_t>(values.size()) / k;
  std::vector<float> transposed(values.size());
  for (int64_t i = 0; i < n * k; ++i) {
    transposed[i % k * n + i / k] = values[i];
  }
  return transposed;
}

TEST_P(CpuMatMulTest, PacksEveryTypeShapeAndOrder) {
  const auto ops = Make(2);
  for (const int64_t k : {1, 2, 3, 8, 31, 64, 67, 172}) {
    for (const int64_t n : {1, 15, 16, 33, 150}) {
      for (const DType second : {weights(), DType::kF64}) {
        const int64_t first_n = n / 3;
        const std::vector<float> values = Rounded(RandomFloats(n * k, 4), weights());
        const auto middle = values.begin() + first_n * k;
        const std::vector<float> parts[] = {{values.begin(), middle}, {middle, values.end()}};
        for (const MatrixOrder order : {MatrixOrder::kOutputsFirst, MatrixOrder::kInputsFirst}) {
          const bool outputs_first = order == MatrixOrder::kOutputsFirst;
          std::vector<uint8_t> bytes[2];
          std::vector<TensorView> views;
          for (int i = 0; i < 2; ++i) {
            const DType type = i == 0 ? weights() : second;
            bytes[i] = Stored(outputs_first ? parts[i] : Transposed(parts[i], k), type);
            const int64_t part_n = static_cast<int64_t>(parts[i].size()) / k;
            views.push_back(
                {type, outputs_first ? Shape{part_n, k} : Shape{k, part_n}, bytes[i].data()});
          }
          const auto packed = ops->PackMatrix(views, order);
          ASSERT_THAT(packed, IsOk());
          ASSERT_EQ(ElementsOf(*ops, **packed), values)
              << n << "x" << k << (outputs_first ? "" : ", inputs first") << " with "
              << DTypeName(second);
        }
      }
    }
  }
}

TEST_P(CpuMatMulTest, RefusesWeightsThatAreNotFinite) {
  const auto ops = Make(2);
  constexpr int64_t kOutputs = 35;
  constexpr int64_t kInputs = 70;
  const std::vector<float> finite = RandomFloats(kOutputs * kInputs, 4);
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const DType type : {weights(), DType::kF64}) {
    for (const MatrixOrder order : {MatrixOrder::kOutputsFirst, MatrixOrder::kInputsFirst}) {
      const Shape shape =
          order == MatrixOrder::kOutputsFirst ? Shape{kOutputs, kInputs} : Shape{kInputs, kOutputs};
      for (size_t at = 0; at < finite.size(); at += 173) {
        std::vector<float> values = finite;
        values[at] = bad[at % 3];
        const std::vector<uint8_t> bytes = Stored(values, type);
        const TensorView view{type, shape, bytes.data()};
        EXPECT_THAT(ops->PackMatrix({&view, 1}, order).status(), IsInvalidArgument("finite")) << at;
      }
    }
  }
  const float vector[] = {1.0f, bad[1]};
  const TensorView view{DType::kF32, Shape{2}, vector};
  EXPECT_THAT(ops->PackVector({&view, 1}).status(), IsInvalidArgument("finite"));
}

// So that they never lie a power of two of them apart.
TEST_P(CpuMatMulTest, RowsLieAnOddNumberOfLinesApart) {
  const auto ops = Make(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t cols = 1; cols < 5000; cols += 31) {
      const size_t bytes = static_cast<size_t>(ops->RowStride(cols, dtype)) * DTypeBytes(dtype);
      ASSERT_EQ(bytes / 64 % 2, 1u) << cols;
      ASSERT_LT(bytes, static_cast<size_t>(cols) * DTypeBytes(dtype) + 128) << cols;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CpuMatMulTest, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace tlm
