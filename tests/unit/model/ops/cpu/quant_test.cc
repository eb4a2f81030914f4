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
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/tensor/blocks.h"
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

// The product of two rows in double precision, and the sum of the magnitudes of its terms.
struct Expected {
  double value = 0.0;
  double magnitude = 0.0;
};

Expected Product(const float* x, const float* w, int64_t k) {
  Expected expected;
  for (int64_t first = 0; first < k; first += kGroup) {
    const int64_t count = std::min(k - first, kGroup);
    const Group a = Quantized(x + first, count);
    const Group b = Quantized(w + first, count);
    int64_t sum = 0;
    for (size_t i = 0; i < a.q.size(); ++i) sum += int64_t{a.q[i]} * b.q[i];
    const double term = static_cast<double>(sum) * a.scale * b.scale;
    expected.value += term;
    expected.magnitude += std::abs(term);
  }
  return expected;
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
  void SetUp() override { ops_ = Make(GetParam(), 2); }

  static std::unique_ptr<CpuOps> Make(const Table& table, int threads,
                                      const BatchLimits& limits = {.max_tokens = 96}) {
    std::unique_ptr<CpuOps> ops;
    if (table.kernels != nullptr) {
      ops = CpuOps::CreateWith(threads, table.isa, *table.kernels);
    } else {
      auto created = CpuOps::Create(threads, table.isa);
      EXPECT_THAT(created, IsOk());
      ops = *std::move(created);
    }
    EXPECT_THAT(ops->Reserve(limits, {.inputs = kMaxInputs, .has_blocks = true}, DType::kF32),
                IsOk());
    return ops;
  }

  static absl::StatusOr<std::unique_ptr<Matrix>> TryPack(
      CpuOps& ops, const std::vector<float>& w, int64_t n, int64_t k,
      MatrixOrder order = MatrixOrder::kOutputsFirst, MatrixUse use = MatrixUse::kPlain) {
    const bool outputs_first = order == MatrixOrder::kOutputsFirst;
    const TensorView view{DType::kF32, outputs_first ? Shape{n, k} : Shape{k, n}, w.data()};
    return ops.PackMatrix({&view, 1}, order, use, WeightFormat::kInt8);
  }
  static std::unique_ptr<Matrix> Pack(CpuOps& ops, const std::vector<float>& w, int64_t n,
                                      int64_t k, MatrixUse use = MatrixUse::kPlain) {
    auto matrix = TryPack(ops, w, n, k, MatrixOrder::kOutputsFirst, use);
    EXPECT_THAT(matrix, IsOk());
    return *std::move(matrix);
  }

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
          const Expected expected = Product(&x[row * k], &w[output * k], k);
          // A rounding for each group's scale and sum and for the bias.
          const double groups = static_cast<double>((k + kGroup - 1) / kGroup);
          const double limit =
              0x1p-24 * ((groups + 2) * expected.magnitude + 2 * std::abs(bias[output]));
          ASSERT_NEAR(out[row * n + output], expected.value + bias[output], limit)
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
    const auto others = Make(GetParam(), 3);
    const auto packed_again = Pack(*others, w, kOutputs, k);
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const std::vector<float> expected(alone.begin(), alone.begin() + rows * kOutputs);
      ASSERT_EQ(Multiply(*ops_, x, 0, rows, *packed), expected) << rows << " rows";
      ASSERT_EQ(Multiply(*others, x, 0, rows, *packed_again), expected) << rows << " rows";
    }
  }
}

TEST_P(QuantTest, RowsBeyondTheScratchAreTakenInSeveralGoes) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kInputs = 320;
  const auto w = RandomFloats(48 * kInputs, 6);
  std::vector<float> x = RandomFloats(kRows * kInputs, 7);
  const auto packed = Pack(*ops_, w, 48, kInputs);
  const auto few = Make(GetParam(), 1, {.max_tokens = 3});
  EXPECT_EQ(Multiply(*few, x, 0, kRows, *packed), Multiply(*ops_, x, 0, kRows, *packed));
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
  const HostMatrix bf16(kInputs, DType::kBF16, w);
  const HostMatrix f16(kInputs, DType::kF16, w);
  const HostMatrix f32(kInputs, DType::kF32, w);
  const HostMatrix bf16_transposed(kOutputs, DType::kBF16, transposed);
  const TensorView f64{DType::kF64, Shape{kOutputs, kInputs}, wide.data()};
  const auto expected = Pack(*ops_, w, kOutputs, kInputs);
  std::vector<float> row(kInputs);
  std::vector<float> expected_row(kInputs);
  const auto check = [&](const TensorView& view, MatrixOrder order) {
    const auto packed = ops_->PackMatrix({&view, 1}, order, MatrixUse::kPlain, WeightFormat::kInt8);
    ASSERT_THAT(packed, IsOk());
    EXPECT_EQ((*packed)->n(), kOutputs);
    EXPECT_EQ((*packed)->k(), kInputs);
    for (int64_t n = 0; n < kOutputs; ++n) {
      static_cast<const CpuMatrix&>(**packed).CopyRow(n, row.data());
      static_cast<const CpuMatrix&>(*expected).CopyRow(n, expected_row.data());
      ASSERT_EQ(row, expected_row) << DTypeName(view.dtype) << ", output " << n;
    }
  };
  for (const HostMatrix* const matrix : {&bf16, &f16, &f32}) {
    check(matrix->view(), MatrixOrder::kOutputsFirst);
  }
  check(f64, MatrixOrder::kOutputsFirst);
  check(bf16_transposed.view(), MatrixOrder::kInputsFirst);
  const TensorView parts[] = {{DType::kF32, Shape{20, kInputs}, w.data()},
                              {DType::kF32, Shape{15, kInputs}, w.data() + 20 * kInputs}};
  const auto stacked =
      ops_->PackMatrix(parts, MatrixOrder::kOutputsFirst, MatrixUse::kPlain, WeightFormat::kInt8);
  ASSERT_THAT(stacked, IsOk());
  static_cast<const CpuMatrix&>(**stacked).CopyRow(34, row.data());
  static_cast<const CpuMatrix&>(*expected).CopyRow(34, expected_row.data());
  EXPECT_EQ(row, expected_row);
}

TEST_P(QuantTest, GivesRowsBackWithinHalfAScale) {
  constexpr int64_t kInputs = 500;
  std::vector<float> w = RandomFloats(3 * kInputs, 12);
  std::fill(w.begin() + kInputs, w.begin() + kInputs + kGroup, 0.0f);  // a group of zeros
  w[0] = 9.0f;
  w[1] = -9.0f;  // the ends
  const auto packed = Pack(*ops_, w, 3, kInputs);
  std::vector<float> copied(kInputs);
  for (int64_t n = 0; n < 3; ++n) {
    static_cast<const CpuMatrix&>(*packed).CopyRow(n, copied.data());
    std::vector<float> added(kInputs, 2.0f);
    static_cast<const CpuMatrix&>(*packed).AddRow(n, added.data());
    for (int64_t i = 0; i < kInputs; ++i) {
      const int64_t first = i / kGroup * kGroup;
      const Group group = Quantized(&w[n * kInputs + first], std::min(kInputs - first, kGroup));
      const float value = w[n * kInputs + i];
      EXPECT_NEAR(copied[i], value, group.scale * 0.5001f);
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

// Sums of integers are exact and rows are rounded alike: tables that fold groups by fused
// multiply-adds agree in every bit, and all of them where there is a single group.
TEST_P(QuantTest, AgreesWithTheOtherInstructionSets) {
  constexpr int64_t kOutputs = 50;
  for (const int64_t k : {200, 1000}) {
    const auto w = RandomFloats(kOutputs * k, 16);
    std::vector<float> x = RandomFloats(5 * k, 17);
    const auto own = Multiply(*ops_, x, 0, 5, *Pack(*ops_, w, kOutputs, k));
    for (const Table& table : Tables()) {
      const bool fused = table.isa != Isa::kPortable && GetParam().isa != Isa::kPortable;
      if (k > kGroup && !fused) continue;
      const auto other = Make(table, 1);
      EXPECT_EQ(Multiply(*other, x, 0, 5, *Pack(*other, w, kOutputs, k)), own)
          << IsaName(table.isa);
    }
  }
}

constexpr DType kBlockTypes[] = {
    DType::kQ8_0,   DType::kQ4_0,  DType::kQ4_1,  DType::kQ5_0,   DType::kQ5_1,  DType::kQ4K,
    DType::kQ5K,    DType::kQ6K,   DType::kIq4Nl, DType::kI4G32,  DType::kI4G64, DType::kI4G128,
    DType::kI4G256, DType::kI8G32, DType::kI8G64, DType::kI8G128, DType::kI8G256};

// A matrix of random blocks, all bits of which are used.
class BlockMatrix {
 public:
  BlockMatrix(DType type, int64_t n, int64_t k, uint64_t seed, bool one_zero = false)
      : type_(type), n_(n), k_(k), bytes_(StoredBytes(type, static_cast<size_t>(n * k))) {
    std::mt19937_64 random(seed);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    const DTypeBlock block = BlockOf(type);
    for (size_t at = 0; at < bytes_.size(); at += block.bytes) {
      SetScales(random, bytes_.data() + at);
      if (one_zero && FormatOf(type).zero < 0) bytes_[at + kOwnZeroAt] = std::byte{8};
    }
  }

  TensorView view() const { return {type_, Shape{n_, k_}, bytes_.data(), order_}; }
  void set_order(const int32_t* order) { order_ = order; }
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
  void SetScales(std::mt19937_64& random, std::byte* block) {
    std::uniform_real_distribution<float> scale(-2.0f, 2.0f);
    if (!FormatOf(type_).has_half_scales) {
      const float value = scale(random);
      std::memcpy(block, &value, sizeof(value));
      return;
    }
    const size_t places = FormatOf(type_).has_min ? 2 : 1;
    for (size_t i = 0; i < places; ++i) {
      const uint16_t bits = FloatToF16(scale(random));
      std::memcpy(block + (type_ == DType::kQ6K ? 208 : 2 * i), &bits, sizeof(bits));
    }
  }

  const DType type_;
  const int64_t n_;
  const int64_t k_;
  std::vector<std::byte> bytes_;
  const int32_t* order_ = nullptr;
};

// The product of a row and an output, operation by operation as kernels/quant.h defines it.
float DefinedProduct(const float* x, const BlockMatrix& w, int64_t output, int64_t k, bool fused) {
  const TensorView view = w.view();
  const BlockFormat format = FormatOf(view.dtype);
  const auto size = static_cast<int64_t>(BlockOf(view.dtype).elements);
  const auto fold = [fused](int64_t product, float scale, float sum) {
    const auto value = static_cast<float>(product);
    if (fused) return std::fmaf(value, scale, sum);
    volatile float rounded = value * scale;
    return rounded + sum;
  };
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
    sum = fold(product, group.scale * block.scale, sum);
    if (format.has_min) sum = fold(mins, -(group.scale * block.min), sum);
  }
  return sum;
}

TEST_P(QuantTest, BlocksOfEveryTypeGiveTheDefinedBits) {
  const bool fused = GetParam().isa != Isa::kPortable;
  for (const DType type : kBlockTypes) {
    for (const bool one_zero : {false, true}) {
      const auto size = static_cast<int64_t>(BlockOf(type).elements);
      for (const auto& [n, blocks] : {std::pair{70, 3}, {16, 1}, {1, 2}}) {
        const int64_t k = size * blocks;
        const BlockMatrix w(type, n, k, 21, one_zero);
        const TensorView view = w.view();
        const auto packed = ops_->PackMatrix({&view, 1});
        ASSERT_THAT(packed, IsOk());
        constexpr int64_t kRows = 15;
        std::vector<float> x = RandomFloats(kRows * k, 22);
        const auto out = Multiply(*ops_, x, 0, kRows, **packed);
        for (int64_t row = 0; row < kRows; ++row) {
          ASSERT_EQ(Multiply(*ops_, x, row, 1, **packed),
                    std::vector<float>(out.begin() + row * n, out.begin() + (row + 1) * n));
          for (int64_t output = 0; output < n; ++output) {
            ASSERT_EQ(out[row * n + output], DefinedProduct(&x[row * k], w, output, k, fused))
                << DTypeName(type) << ", row " << row << ", output " << output;
          }
        }
      }
    }
  }
}

TEST_P(QuantTest, BlocksOfEveryTypeGiveTheirRowsBack) {
  for (const DType type : kBlockTypes) {
    const auto k = static_cast<int64_t>(2 * BlockOf(type).elements);
    const BlockMatrix w(type, 20, k, 23);
    const TensorView view = w.view();
    const auto packed = ops_->PackMatrix({&view, 1});
    ASSERT_THAT(packed, IsOk());
    EXPECT_EQ((*packed)->BytesByType().begin()->first, type);
    const std::vector<float> floats = w.Floats();
    std::vector<float> row(k);
    for (int64_t n = 0; n < 20; ++n) {
      static_cast<const CpuMatrix&>(**packed).CopyRow(n, row.data());
      ASSERT_EQ(row, std::vector<float>(floats.begin() + n * k, floats.begin() + (n + 1) * k))
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
    const auto apart = ops_->PackMatrix({&part, 1});
    ASSERT_THAT(apart, IsOk());
    const auto columns = Multiply(*ops_, x, 0, kRows, **apart, bias.data() + first);
    const int64_t n = part.shape[0];
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(out[row * 103 + first + j], columns[row * n + j]) << DTypeName(part.dtype);
      }
    }
    std::vector<float> from_stack(kInputs);
    std::vector<float> from_part(kInputs);
    static_cast<const CpuMatrix&>(**stacked).CopyRow(first + n - 1, from_stack.data());
    static_cast<const CpuMatrix&>(**apart).CopyRow(n - 1, from_part.data());
    EXPECT_EQ(from_stack, from_part);
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
  const auto packed = ops_->PackMatrix({&ordered, 1});
  const auto packed_plain = ops_->PackMatrix({&plain, 1});
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ(Multiply(*ops_, x, 0, kRows, **packed),
            Multiply(*ops_, x_ordered, 0, kRows, **packed_plain));
  std::vector<float> row(kInputs);
  std::vector<float> row_plain(kInputs);
  static_cast<const CpuMatrix&>(**packed).CopyRow(3, row.data());
  static_cast<const CpuMatrix&>(**packed_plain).CopyRow(3, row_plain.data());
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
    TensorView view = w.view();
    std::vector<std::byte> bytes(w.view().as<std::byte>(), w.view().as<std::byte>() + view.bytes());
    const uint32_t infinity = type == DType::kI4G128 ? 0x7f800000u : 0x7c00u;
    std::memcpy(bytes.data() + 17 * BlockOf(type).bytes, &infinity, type == DType::kI4G128 ? 4 : 2);
    view.data = bytes.data();
    EXPECT_THAT(ops_->PackMatrix({&view, 1}), IsInvalidArgument("not finite"));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantTest, ::testing::ValuesIn(Tables()), [](const auto& info) {
  return std::string(IsaName(info.param.isa)) + (info.param.kernels == nullptr ? "" : "_own_table");
});

}  // namespace
}  // namespace tlm
