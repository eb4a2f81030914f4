// Matrices of integer weights on every instruction set of this machine.
#include "model/ops/cpu/kernels/quant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/tensor/blocks.h"
#include "tests/support/block_model.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

constexpr int64_t kMaxInputs = 1024;
constexpr int64_t kGroup = 256;  // of WeightFormat::kInt8

// A group as kernels/quant.h says it is quantised.
struct Group {
  float scale = 0.0f;
  std::vector<int> q;
};

Group Quantized(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  Group group;
  group.q.resize(count);
  if (largest < kQuantSmallest) return group;
  group.scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  for (int64_t i = 0; i < count; ++i) {
    group.q[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  }
  return group;
}

// What kernels/quant.h adds to `sum` for a group, as instruction sets with and without fused
// multiply-adds do it.
float Folded(int64_t product, float scale, float sum, bool fused) {
  const auto value = static_cast<float>(product);
  if (fused) return std::fmaf(value, scale, sum);
  volatile float rounded = value * scale;
  return rounded + sum;
}

// The product of two rows, operation by operation.
float DefinedProduct(const float* x, const float* w, int64_t k, bool fused) {
  float sum = 0.0f;
  for (int64_t first = 0; first < k; first += kGroup) {
    const int64_t count = std::min(k - first, kGroup);
    const Group a = Quantized(x + first, count);
    const Group b = Quantized(w + first, count);
    const int64_t product = std::inner_product(a.q.begin(), a.q.end(), b.q.begin(), int64_t{0});
    sum = Folded(product, a.scale * b.scale, sum, fused);
  }
  return sum;
}

std::vector<float> RowOf(const Matrix& matrix, int64_t n) {
  std::vector<float> row(matrix.k());
  static_cast<const CpuMatrix&>(matrix).CopyRow(n, row.data());
  return row;
}

// An instruction set, as CpuOps chooses its kernels, or its own table where that has others for
// products of bytes on this machine.
struct Table {
  Isa isa = Isa::kPortable;
  const Kernels* kernels = nullptr;
};

std::vector<Table> Tables() {
  std::vector<Table> tables;
  for (const Isa isa : AvailableIsas()) tables.push_back({isa});
#if defined(__x86_64__)
  for (const Isa isa : AvailableIsas()) {
    if (isa == Isa::kAvx2) tables.push_back({isa, &Avx2Kernels()});
    if (isa == Isa::kAvx512) tables.push_back({isa, &Avx512Kernels()});
  }
#endif
  return tables;
}

class QuantTest : public ::testing::TestWithParam<Table> {
 protected:
  void SetUp() override { ops_ = Make(2, {.max_tokens = 96}); }

  static std::unique_ptr<CpuOps> Make(int threads, const BatchLimits& limits) {
    const auto& [isa, kernels] = GetParam();
    std::unique_ptr<CpuOps> ops = kernels == nullptr ? CpuOps::Create(threads, isa).value()
                                                     : CpuOps::CreateWith(threads, isa, *kernels);

    EXPECT_THAT(ops->Reserve(limits, {.inputs = kMaxInputs, .has_blocks = true}, DType::kF32),
                IsOk());
    return ops;
  }

  static absl::StatusOr<std::unique_ptr<Matrix>> TryPack(CpuOps& ops, const std::vector<float>& w,
                                                         int64_t n, int64_t k,
                                                         MatrixUse use = MatrixUse::kPlain) {
    const TensorView view{DType::kF32, Shape{n, k}, w.data()};
    return ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use, WeightFormat::kInt8);
  }
  static std::unique_ptr<Matrix> Pack(CpuOps& ops, const std::vector<float>& w, int64_t n,
                                      int64_t k, MatrixUse use = MatrixUse::kPlain) {
    return TryPack(ops, w, n, k, use).value();
  }
  static std::unique_ptr<Matrix> Pack(CpuOps& ops, const TensorView& blocks) {
    return ops.PackMatrix({&blocks, 1}).value();
  }

  static bool is_fused() { return GetParam().isa != Isa::kPortable; }

  // Rows [first, first + count) of x, alone in a call.
  static std::vector<float> Multiply(CpuOps& ops, std::vector<float>& x, int64_t first,
                                     int64_t count, const Matrix& w, const float* bias = nullptr) {
    const int64_t k = w.k();
    std::vector<float> out(count * w.n());
    EXPECT_THAT(ops.MatMul({x.data() + first * k, count, k, k}, w, {.bias = bias},
                           {out.data(), count, w.n(), w.n()}),
                IsOk());
    return out;
  }

  std::unique_ptr<CpuOps> ops_;
};

TEST_P(QuantTest, IsTheProductOfTheQuantisedGroups) {
  // Groups whole and not, outputs that fill panels and do not, one row and several.
  for (const auto& [n, k] :
       {std::pair{16, 256}, {40, 64}, {23, 700}, {96, 1024}, {1, 1}, {65, 3}}) {
    const std::vector<float> w = RandomFloats(n * k, 1);
    for (const int64_t rows : {1, 2, 7}) {
      std::vector<float> x = RandomFloats(rows * k, 2);
      const std::vector<float> bias = RandomFloats(n, 3);
      const auto packed = Pack(*ops_, w, n, k);
      EXPECT_EQ(packed->dtype(), DType::kI8);
      const std::vector<float> out = Multiply(*ops_, x, 0, rows, *packed, bias.data());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t output = 0; output < n; ++output) {
          ASSERT_EQ(out[row * n + output],
                    DefinedProduct(&x[row * k], &w[output * k], k, is_fused()) + bias[output])

              << n << " x " << k << ", row " << row << ", output " << output;
        }
      }
    }
  }
}

TEST_P(QuantTest, ARowNeverDependsOnTheOthers) {
  constexpr int64_t kRows = 70;
  for (const int64_t k : {64, 600}) {
    constexpr int64_t kOutputs = 150;
    const auto w = RandomFloats(kOutputs * k, 4);
    std::vector<float> x = RandomFloats(kRows * k, 5);
    const auto packed = Pack(*ops_, w, kOutputs, k);
    std::vector<float> alone;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto out = Multiply(*ops_, x, row, 1, *packed);
      alone.insert(alone.end(), out.begin(), out.end());
    }
    // Its scratch has room for fewer rows, which it takes in several goes.
    const auto others = Make(3, {.max_tokens = 3});
    const auto packed_again = Pack(*others, w, kOutputs, k);

    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const std::vector<float> expected(alone.begin(), alone.begin() + rows * kOutputs);
      ASSERT_EQ(Multiply(*ops_, x, 0, rows, *packed), expected) << rows << " rows";
      ASSERT_EQ(Multiply(*others, x, 0, rows, *packed_again), expected) << rows << " rows";
    }
  }
}

TEST_P(QuantTest, GatesTheHalvesOfAGatedMatrix) {
  constexpr int64_t kHalf = 37;
  constexpr int64_t kInputs = 300;
  constexpr int64_t kRows = 9;
  const auto w = RandomFloats(2 * kHalf * kInputs, 8);
  std::vector<float> x = RandomFloats(kRows * kInputs, 9, 0.1f);
  const auto bias = RandomFloats(2 * kHalf, 10);
  const auto plain = Pack(*ops_, w, 2 * kHalf, kInputs);
  const auto gated = Pack(*ops_, w, 2 * kHalf, kInputs, MatrixUse::kGated);
  const auto sums = Multiply(*ops_, x, 0, kRows, *plain, bias.data());
  std::vector<float> out(kRows * kHalf);
  ASSERT_THAT(ops_->MatMulGated({x.data(), kRows, kInputs, kInputs}, *gated, bias.data(),
                                {out.data(), kRows, kHalf, kHalf}),
              IsOk());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < kHalf; ++j) {
      const double gate = sums[row * 2 * kHalf + j];
      const double expected = gate / (1 + std::exp(-gate)) * sums[row * 2 * kHalf + kHalf + j];
      EXPECT_NEAR(out[row * kHalf + j], expected, 1e-6 * std::abs(expected) + 1e-12);
    }
  }
}

TEST_P(QuantTest, PacksEveryTypeAndOrderAlike) {
  constexpr int64_t kOutputs = 35;
  constexpr int64_t kInputs = 330;
  // Values that every type has.
  std::vector<float> w = Rounded(RandomFloats(kOutputs * kInputs, 11), DType::kBF16);
  for (float& value : w) value = Rounded(value, DType::kF16);
  std::vector<float> transposed(w.size());
  for (int64_t n = 0; n < kOutputs; ++n) {
    for (int64_t i = 0; i < kInputs; ++i) transposed[i * kOutputs + n] = w[n * kInputs + i];
  }
  const std::vector<double> wide(w.begin(), w.end());
  const auto expected = Pack(*ops_, w, kOutputs, kInputs);
  const auto check = [&](const std::vector<TensorView>& parts, MatrixOrder order) {
    const auto packed = ops_->PackMatrix(parts, order, MatrixUse::kPlain, WeightFormat::kInt8);

    ASSERT_THAT(packed, IsOk());
    EXPECT_EQ((*packed)->n(), kOutputs);
    EXPECT_EQ((*packed)->k(), kInputs);
    for (int64_t n = 0; n < kOutputs; ++n) {
      ASSERT_EQ(RowOf(**packed, n), RowOf(*expected, n))
          << DTypeName(parts[0].dtype) << ", output " << n;
    }
  };
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    const HostMatrix matrix(kInputs, type, w);
    check({matrix.view()}, MatrixOrder::kOutputsFirst);
  }
  check({{DType::kF64, Shape{kOutputs, kInputs}, wide.data()}}, MatrixOrder::kOutputsFirst);
  const HostMatrix bf16_transposed(kOutputs, DType::kBF16, transposed);
  check({bf16_transposed.view()}, MatrixOrder::kInputsFirst);

  check({{DType::kF32, Shape{20, kInputs}, w.data()},
         {DType::kF32, Shape{15, kInputs}, w.data() + 20 * kInputs}},
        MatrixOrder::kOutputsFirst);
}

TEST_P(QuantTest, GivesRowsBackWithinHalfAScale) {
  constexpr int64_t kInputs = 500;
  std::vector<float> w = RandomFloats(3 * kInputs, 12);
  std::fill(w.begin() + kInputs, w.begin() + kInputs + kGroup, 0.0f);  // a group of zeros
  w[0] = 9.0f;
  w[1] = -9.0f;  // the ends
  const auto packed = Pack(*ops_, w, 3, kInputs);
  for (int64_t n = 0; n < 3; ++n) {
    const std::vector<float> copied = RowOf(*packed, n);

    std::vector<float> added(kInputs, 2.0f);
    static_cast<const CpuMatrix&>(*packed).AddRow(n, added.data());
    for (int64_t i = 0; i < kInputs; ++i) {
      const int64_t first = i / kGroup * kGroup;
      const Group group = Quantized(&w[n * kInputs + first], std::min(kInputs - first, kGroup));
      EXPECT_NEAR(copied[i], w[n * kInputs + i], group.scale * 0.5001f);

      EXPECT_EQ(copied[i], static_cast<float>(group.q[i - first]) * group.scale);
      EXPECT_EQ(added[i], 2.0f + copied[i]);
    }
  }
  EXPECT_EQ(static_cast<const Matrix&>(*packed).bytes(), 1u * (2 * (16 * 256 + 64)));
}

TEST_P(QuantTest, WhatIsNotFiniteStaysInItsRow) {
  constexpr int64_t kInputs = 300;
  constexpr int64_t kOutputs = 20;
  const auto w = RandomFloats(kOutputs * kInputs, 13);
  const auto packed = Pack(*ops_, w, kOutputs, kInputs);
  std::vector<float> x = RandomFloats(4 * kInputs, 14);
  const auto clean = Multiply(*ops_, x, 0, 4, *packed);
  x[kInputs + 7] = std::numeric_limits<float>::quiet_NaN();
  x[3 * kInputs + 299] = -std::numeric_limits<float>::infinity();
  const auto out = Multiply(*ops_, x, 0, 4, *packed);
  for (int64_t n = 0; n < kOutputs; ++n) {
    EXPECT_EQ(out[n], clean[n]);
    EXPECT_TRUE(std::isnan(out[kOutputs + n]));
    EXPECT_EQ(out[2 * kOutputs + n], clean[2 * kOutputs + n]);
    EXPECT_TRUE(std::isnan(out[3 * kOutputs + n]));
  }
}

TEST_P(QuantTest, TinyGroupsAreZerosAndHugeOnesAreNot) {
  std::vector<float> w(2 * kGroup, 1.0f);
  const auto packed = Pack(*ops_, w, 2, kGroup);
  std::vector<float> x(3 * kGroup, 1e-40f);
  std::fill(x.begin() + kGroup, x.begin() + 2 * kGroup, 0.0f);
  std::fill(x.begin() + 2 * kGroup, x.end(), 1e36f);
  const auto out = Multiply(*ops_, x, 0, 3, *packed);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_NEAR(out[4], 256e36f, 1e32f);
}

TEST_P(QuantTest, RefusesWeightsThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> w = RandomFloats(20 * 300, 15);
    w[19 * 300 + 299] = bad;
    EXPECT_THAT(TryPack(*ops_, w, 20, 300), IsInvalidArgument("not finite"));
  }
}

// A matrix of random blocks; own types: with any zeros, or one zero and negative scales.

class BlockMatrix {
 public:
  BlockMatrix(DType type, int64_t n, int64_t k, uint64_t seed, bool one_zero = false)
      : type_(type), n_(n), k_(k) {
    std::mt19937_64 random(seed);
    const DTypeBlock block = BlockOf(type);
    const size_t blocks = static_cast<size_t>(n * k) / block.elements;
    bytes_ = RandomBlocks(type, blocks, one_zero ? -1.0f : 1.0f, random);
    for (size_t at = 0; at < bytes_.size() && FormatOf(type).zero < 0; at += block.bytes) {
      bytes_[at + kOwnZeroAt] = one_zero ? std::byte{8} : static_cast<std::byte>(random());
    }
  }

  TensorView view() const { return {type_, Shape{n_, k_}, bytes_.data(), order_}; }
  void set_order(const int32_t* order) { order_ = order; }
  std::byte* block(size_t index) { return &bytes_[index * BlockOf(type_).bytes]; }

  // As the definition has it.
  std::vector<float> Floats() const {
    std::vector<float> floats(n_ * k_);
    Dequantise(type_, bytes_.data(), floats.size() / BlockOf(type_).elements, floats.data());
    return floats;
  }
  BlockValues BlockAt(int64_t n, int64_t first) const {
    BlockValues values;
    ReadBlock(type_, bytes_.data() + StoredBytes(type_, static_cast<size_t>(n * k_ + first)),
              &values);
    return values;
  }

 private:
  const DType type_;
  const int64_t n_;
  const int64_t k_;
  std::vector<std::byte> bytes_;
  const int32_t* order_ = nullptr;
};

// The product of a row and an output, operation by operation.

float DefinedProduct(const float* x, const BlockMatrix& w, int64_t output, int64_t k, bool fused) {
  const DType type = w.view().dtype;
  const BlockFormat format = FormatOf(type);
  const auto size = static_cast<int64_t>(BlockOf(type).elements);

  float sum = 0.0f;
  for (int64_t first = 0; first < k; first += size) {
    const Group group = Quantized(x + first, size);
    const BlockValues block = w.BlockAt(output, first);
    int64_t product = 0;
    int64_t mins = 0;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t b = format.sub_block > 0 ? i / format.sub_block : -1;
      const int64_t s = b < 0 ? 1 : block.s[b];
      const int64_t t = b < 0 || !format.has_min ? 1 : block.t[b];
      product += s * (block.q[i] - block.zero) * group.q[i];
      mins += t * group.q[i];
    }
    sum = Folded(product, group.scale * block.scale, sum, fused);
    if (format.has_min) sum = Folded(mins, -(group.scale * block.min), sum, fused);
  }
  return sum;
}

TEST_P(QuantTest, BlocksOfEveryTypeGiveTheDefinedBits) {
  for (const DType type : IntegerBlockTypes()) {
    for (const bool one_zero : {false, true}) {
      const auto size = static_cast<int64_t>(BlockOf(type).elements);
      for (const auto& [n, blocks] : {std::pair{70, 3}, {16, 1}, {1, 2}}) {
        const int64_t k = size * blocks;
        const BlockMatrix w(type, n, k, 21, one_zero);
        const auto packed = Pack(*ops_, w.view());
        constexpr int64_t kRows = 15;
        std::vector<float> x = RandomFloats(kRows * k, 22);
        const auto out = Multiply(*ops_, x, 0, kRows, *packed);
        for (int64_t row = 0; row < kRows; ++row) {
          ASSERT_EQ(Multiply(*ops_, x, row, 1, *packed),
                    std::vector<float>(out.begin() + row * n, out.begin() + (row + 1) * n));
          for (int64_t output = 0; output < n; ++output) {
            ASSERT_EQ(out[row * n + output], DefinedProduct(&x[row * k], w, output, k, is_fused()))
                << DTypeName(type) << ", row " << row << ", output " << output;
          }
        }
      }
    }
  }
}

TEST_P(QuantTest, BlocksOfEveryTypeGiveTheirRowsBack) {
  for (const DType type : IntegerBlockTypes()) {
    const auto k = static_cast<int64_t>(2 * BlockOf(type).elements);
    const BlockMatrix w(type, 20, k, 23);
    const auto packed = Pack(*ops_, w.view());
    EXPECT_EQ(packed->BytesByType().begin()->first, type);
    const std::vector<float> floats = w.Floats();
    for (int64_t n = 0; n < 20; ++n) {
      ASSERT_EQ(RowOf(*packed, n),
                std::vector<float>(floats.begin() + n * k, floats.begin() + (n + 1) * k))
          << DTypeName(type);
    }
  }
}

// Types of one block length are one matrix, others and floats are stacked: the same columns as
// apart.
TEST_P(QuantTest, StacksPartsOfDifferentTypes) {
  constexpr int64_t kInputs = 512;
  constexpr int64_t kRows = 9;
  std::vector<float> x = RandomFloats(kRows * kInputs, 24);
  const BlockMatrix q(DType::kQ4K, 40, kInputs, 25);
  const BlockMatrix k(DType::kQ6K, 21, kInputs, 26);
  const BlockMatrix v(DType::kQ8_0, 19, kInputs, 27);
  const auto floats = RandomFloats(23 * kInputs, 28);
  const TensorView parts[] = {
      q.view(), k.view(), v.view(), {DType::kF32, Shape{23, kInputs}, floats.data()}};
  const auto stacked = ops_->PackMatrix(parts);
  ASSERT_THAT(stacked, IsOk());
  ASSERT_EQ((*stacked)->n(), 103);
  const auto bias = RandomFloats(103, 29);
  const auto out = Multiply(*ops_, x, 0, kRows, **stacked, bias.data());
  int64_t first = 0;
  for (const TensorView& part : parts) {
    const auto apart = Pack(*ops_, part);
    const auto columns = Multiply(*ops_, x, 0, kRows, *apart, bias.data() + first);
    const int64_t n = part.shape[0];
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(out[row * 103 + first + j], columns[row * n + j]) << DTypeName(part.dtype);
      }
    }
    EXPECT_EQ(RowOf(**stacked, first + n - 1), RowOf(*apart, n - 1));

    first += n;
  }
}

TEST_P(QuantTest, InputsInAnotherOrderMeetTheirValues) {
  constexpr int64_t kInputs = 256;
  constexpr int64_t kRows = 5;
  std::vector<int32_t> order(kInputs);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(30));
  BlockMatrix w(DType::kI4G64, 24, kInputs, 31);
  const TensorView plain = w.view();
  w.set_order(order.data());
  const TensorView ordered = w.view();
  std::vector<float> x = RandomFloats(kRows * kInputs, 32);
  std::vector<float> x_ordered(x.size());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kInputs; ++i) {
      x_ordered[row * kInputs + i] = x[row * kInputs + order[i]];
    }
  }
  const auto packed = Pack(*ops_, ordered);
  const auto packed_plain = Pack(*ops_, plain);
  EXPECT_EQ(Multiply(*ops_, x, 0, kRows, *packed),
            Multiply(*ops_, x_ordered, 0, kRows, *packed_plain));
  const std::vector<float> row = RowOf(*packed, 3);
  const std::vector<float> row_plain = RowOf(*packed_plain, 3);

  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(row[order[i]], row_plain[i]);
  }
  const TensorView both[] = {ordered, plain};
  EXPECT_TRUE(ops_->TakesBlocks(both, MatrixUse::kPlain));
  EXPECT_FALSE(ops_->TakesBlocks(both, MatrixUse::kGated));
}

TEST_P(QuantTest, RefusesBlocksThatAreNotFinite) {
  for (const DType type : {DType::kQ4K, DType::kQ8_0, DType::kI4G128}) {
    const auto k = static_cast<int64_t>(BlockOf(type).elements);
    BlockMatrix w(type, 18, k, 33);
    const uint32_t infinity = type == DType::kI4G128 ? 0x7f800000u : 0x7c00u;
    std::memcpy(w.block(17), &infinity, type == DType::kI4G128 ? 4 : 2);

    const TensorView view = w.view();
    EXPECT_THAT(ops_->PackMatrix({&view, 1}), IsInvalidArgument("not finite"));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantTest, ::testing::ValuesIn(Tables()), [](const auto& info) {
  return std::string(IsaName(info.param.isa)) + (info.param.kernels == nullptr ? "" : "_own_table");
});

}  // namespace
}  // namespace tlm
