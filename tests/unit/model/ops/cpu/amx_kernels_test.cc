// Products by tiles, bit for bit, against models of the arithmetic that kernels/matmul.h and
// kernels/quant.h promise: with this processor's AMX tiles, and with emulated ones.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/tensor/blocks.h"
#include "tests/support/amx/emulated_kernels.h"
#include "tests/support/amx/tile_unit.h"
#include "tests/support/block_model.h"
#include "tests/unit/model/ops/cpu/amx_machines.h"

namespace tlm {
namespace {

int64_t RoundedUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Random bfloat16 whose products are about the least normal number or less.
std::vector<uint16_t> TinyBf16(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    const uint64_t bits = random();
    const uint64_t exponent = bits >> 63 == 0 ? 64 : 52 + (bits >> 32) % 12;
    value = static_cast<uint16_t>((bits & 0x807fu) | exponent << 7);
  }
  return values;
}

// A product of random rows and weights, in memory as kernels take them. What lies beside the rows
// is NaN.
struct Product {
  Product(int64_t m, int64_t n, int64_t k, uint64_t seed, bool wild)
      : rows(m), outputs(n), inputs(k), stride(k + 5) {
    x = RandomBf16(m * stride, seed, wild);
    for (int64_t i = 0; i < m; ++i) std::fill_n(x.begin() + i * stride + k, 5, uint16_t{0x7fff});
    w = RandomBf16(n * k, seed + 1, wild);
    const int64_t padded = RoundedUp(k, kBf16InputStep);
    packed.assign(RoundedUp(n, kPanel) * padded, 0);
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t row = i / k;
      const int64_t col = i % k;
      const int64_t at = row / kPanel * kPanel * padded + col / 2 * 2 * kPanel + row % kPanel * 2;
      packed[at + col % 2] = w[i];
    }
  }

  // By `kernels`, with a column beside every row of the result that must stay as it is.
  std::vector<float> Multiply(const Kernels& kernels, int64_t first_rows) const {
    std::vector<float> out(first_rows * (outputs + 1), -77.0f);
    Multiply(kernels, first_rows,
             {.outputs = outputs, .out = out.data(), .out_stride = outputs + 1});
    return out;
  }
  void Multiply(const Kernels& kernels, int64_t first_rows, const EpilogueArgs& epilogue) const {
    kernels.matmul({.x = x.data(),
                    .x_type = Storage::kBF16,
                    .x_stride = stride,
                    .rows = first_rows,
                    .w = packed.data(),
                    .w_type = Storage::kBF16,
                    .k = inputs,
                    .panel_end = RoundedUp(outputs, kPanel) / kPanel,
                    .epilogue = epilogue});
  }

  std::vector<float> Expected() const {
    std::vector<float> out(rows * (outputs + 1), -77.0f);
    for (int64_t i = 0; i < rows * outputs; ++i) {
      const int64_t row = i / outputs;
      const int64_t output = i % outputs;
      out[row * (outputs + 1) + output] = Dot(x.data() + row * stride, w.data() + output * inputs);
    }
    return out;
  }

  float Dot(const uint16_t* a, const uint16_t* b) const {
    float sum = 0.0f;
    for (int64_t begin = 0; begin < inputs; begin += 32) {
      float even = 0.0f;
      float odd = 0.0f;
      for (int64_t k = begin; k < std::min(begin + 32, inputs); ++k) {
        float& part = k % 2 == 0 ? even : odd;
        part = EmulatedFma(Bf16ToFloat(a[k]), Bf16ToFloat(b[k]), part);
      }
      sum = EmulatedFma(1.0f, sum, EmulatedFma(1.0f, even, odd));
    }
    return sum;
  }

  int64_t rows, outputs, inputs, stride;
  std::vector<uint16_t> x, w, packed;
};

// Their bits; all NaN count as one.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(value != value ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  }
  return bits;
}
std::vector<uint32_t> FirstBits(const std::vector<float>& values, int64_t count) {
  return Bits({values.begin(), values.begin() + count});
}

class AmxProductTest : public AmxTest {};

TEST_P(AmxProductTest, VectorsAgreeWithTiles) {
  const bool agree = GetParam().vectors_agree();
  // A processor may have its own way at the least normal number; then tiles serve few rows as well.
  if (!agree && GetParam().needs == Isa::kAmxBf16) {
    GTEST_SKIP() << "this processor's tiles round otherwise than its vectors";
  }
  EXPECT_TRUE(agree);
}

TEST_P(AmxProductTest, IsThePromisedSumForEveryNumberOfRows) {
  const struct {
    int64_t n, k;
    bool wild;
  } kShapes[] = {{16, 1, false}, {17, 31, true}, {33, 32, false}, {48, 33, true}, {32, 200, true}};
  for (const auto& [n, k, wild] : kShapes) {
    const Product product(70, n, k, static_cast<uint64_t>(n * k), wild);
    const std::vector<float> expected = product.Expected();
    for (const bool vectors : {false, true}) {
      const Kernels& kernels = GetParam().kernels(vectors);
      for (int64_t rows = 1; rows <= 70; rows += rows < 40 ? 1 : 6) {
        ASSERT_EQ(Bits(product.Multiply(kernels, rows)), FirstBits(expected, rows * (n + 1)))
            << rows << "x" << n << "x" << k << (vectors ? ", vectors" : ", tiles");
      }
    }
  }
}

// More than fit into the caches: sums pass through memory, rows and panels come in parts.
TEST_P(AmxProductTest, IsThePromisedSumInParts) {
  const struct {
    int64_t m, n, k;
  } kShapes[] = {{97, 40, 1100}, {64, 16, 513}, {75, 16, 10300}, {545, 16, 32}};
  for (const auto& [m, n, k] : kShapes) {
    const Product product(m, n, k, 9, false);
    ASSERT_EQ(Bits(product.Multiply(GetParam().kernels(true), m)), Bits(product.Expected()))
        << m << "x" << n << "x" << k;
  }
}

TEST_P(AmxProductTest, TakesSubnormalsForZeroAndLeavesNone) {
  Product product(5, 16, 64, 1, false);
  const auto fill = [&product](uint16_t a, uint16_t b) {
    for (int64_t i = 0; i < product.rows; ++i) {
      std::fill_n(product.x.begin() + i * product.stride, product.inputs, a);
    }
    std::fill(product.packed.begin(), product.packed.end(), b);
  };
  const uint16_t kSubnormal = 0x007f, kOne = 0x3f80, kSmall = 0x2000;  // 2^-63
  for (const auto& [a, b] : {std::pair{kSubnormal, kOne}, {kOne, kSubnormal}, {kSmall, kSmall}}) {
    fill(a, b);
    const float expected = a == kSmall ? 64 * 0x1p-126f : 0.0f;
    for (const int64_t rows : {1, 5}) {
      for (const bool vectors : {false, true}) {
        const std::vector<float> out = product.Multiply(GetParam().kernels(vectors), rows);
        EXPECT_EQ(out[0], expected) << rows;
      }
    }
  }
}

// The bytes of the first four rows of outputs where `rows` are multiplied, in units of 16 bits.
std::vector<uint16_t> FirstFourRows(const Product& product, const Kernels& kernels, int64_t rows,
                                    EpilogueArgs epilogue) {
  const int64_t units = epilogue.outputs * (epilogue.out_type == Storage::kF32 ? 2 : 1);
  std::vector<uint16_t> out(rows * units);
  epilogue.out = out.data();
  epilogue.out_stride = epilogue.outputs;
  product.Multiply(kernels, rows, epilogue);
  out.resize(4 * units);
  return out;
}

// Vectors sum four rows and tiles five; other code stores their outputs. Of tiny factors, sums,
// sums with their bias, and what is gated may underflow.
TEST_P(AmxProductTest, OutputsOfFewRowsHaveTheBitsOfMany) {
  constexpr int64_t kOutputs = 64, kInputs = 96;
  const Kernels& kernels = GetParam().kernels(GetParam().vectors_agree());
  Product ordinary(5, kOutputs, kInputs, 3, false);
  Product tiny = ordinary;
  tiny.x = TinyBf16(5 * tiny.stride, 4);
  tiny.packed = TinyBf16(kOutputs * kInputs, 5);
  float biases[kOutputs];
  float gate_biases[kOutputs];
  for (int i = 0; i < kOutputs; ++i) {
    biases[i] = static_cast<float>(i * 7 % 64 - 32) * 0x1p-130f;
    gate_biases[i] = i < kOutputs / 2 ? static_cast<float>(i % 7) - 3.0f : biases[i];
  }
  for (const Storage type : {Storage::kF32, Storage::kBF16}) {
    for (const EpilogueArgs& epilogue :
         {EpilogueArgs{.outputs = kOutputs, .out_type = type},
          EpilogueArgs{.bias = biases, .outputs = kOutputs, .out_type = type},
          EpilogueArgs{
              .bias = gate_biases, .gated = true, .outputs = kOutputs / 2, .out_type = type}}) {
      for (const Product* product : {&ordinary, &tiny}) {
        const std::vector<uint16_t> out = FirstFourRows(*product, kernels, 4, epilogue);
        ASSERT_EQ(out, FirstFourRows(*product, kernels, 5, epilogue))
            << (type == Storage::kF32 ? "float" : "bfloat16") << (product == &tiny ? ", tiny" : "")
            << (epilogue.bias != nullptr ? ", bias" : "") << (epilogue.gated ? ", gated" : "");
        if (product == &ordinary) continue;
        // Some outputs have become 0, no other is subnormal: the halves with the exponent.
        size_t zeros = 0;
        const size_t step = type == Storage::kF32 ? 2 : 1;
        for (size_t i = step - 1; i < out.size(); i += step) {
          EXPECT_TRUE((out[i] & 0x7f80u) != 0 || (out[i] & 0x7fffu) == 0);
          if ((out[i] & 0x7fffu) == 0) ++zeros;
        }
        EXPECT_GT(zeros, 0u);
        EXPECT_LT(zeros, out.size() / step);
      }
    }
  }
}

TEST_P(AmxProductTest, LeavesTheThreadAsItWas) {
  const Product product(40, 16, 64, 1, false);
  const unsigned before = _mm_getcsr();
  for (const int64_t rows : {1, 40}) {
    product.Multiply(GetParam().kernels(true), rows);
    EXPECT_EQ(_mm_getcsr(), before);
    EXPECT_FALSE(TilesAreConfigured());
  }
}

// The system keeps the tiles of a thread that waits.
TEST_P(AmxProductTest, ThreadsDoNotDisturbEachOther) {
  const Product product(64, 48, 256, 4, true);
  const std::vector<uint32_t> expected = Bits(product.Expected());
  const Kernels& kernels = GetParam().kernels(true);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        if (Bits(product.Multiply(kernels, product.rows)) != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Machines, AmxProductTest, ::testing::ValuesIn(kMachines), NameOfMachine);

// What the matrices of a type have in common; own types: with a zero of each group, or one of all.
QuantLayout LayoutOf(DType type, bool one_zero) {
  const BlockFormat format = FormatOf(type);
  return {.bits = format.bits,
          .group = static_cast<int>(BlockOf(type).elements),
          .sub_block = format.sub_block,
          .has_min = format.has_min,
          .half_scales = format.has_half_scales,
          .zero = one_zero && format.zero < 0 ? 9 : format.zero};
}

enum class Fill { kRandom, kMin, kMax };

// Rows as quantised and weights as packed, of random bytes or of extreme ones.
struct QuantProduct {
  QuantProduct(const QuantLayout& of, int64_t m, int64_t n, int64_t k, Fill fill = Fill::kRandom)
      : layout(of), rows(m), outputs(n), inputs(k) {
    std::mt19937_64 random(static_cast<uint64_t>(m * n * k));
    FillRows(random, fill);
    w.resize(RoundedUp(n, kPanel) / kPanel * QuantPanelBytes(layout, k));
    for (uint8_t& byte : w) {
      byte = fill == Fill::kRandom ? static_cast<uint8_t>(random()) : fill == Fill::kMax ? 255 : 0;
    }
    uint8_t* chunk = w.data();
    for (int64_t i = 0; i < RoundedUp(n, kPanel) / kPanel; ++i) {
      for (int64_t first = 0; first < padded(); first += kQuantChunk) {
        const int64_t count = std::min(kQuantChunk, padded() - first);
        SetScales(random, fill, count, chunk);
        chunk += PlacesOf(layout, count).bytes;
      }
    }
  }

  int64_t padded() const { return QuantPaddedInputs(inputs); }

  void FillRows(std::mt19937_64& random, Fill fill) {
    const int64_t groups = QuantGroups(layout, padded());
    stride = padded() + kQuantStep;
    // At a border of 64 bytes, as promised; what lies beside the rows is not read.
    storage.resize(rows * stride + 64, int8_t{99});
    values = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
    group_sums.resize(rows * groups);
    sums16.resize(rows * padded() / 16);
    sums32.resize(rows * padded() / 32);
    for (int64_t i = 0; i < rows * padded(); ++i) {
      const int64_t row = i / padded();
      const int64_t input = i % padded();
      const int value = fill == Fill::kRandom ? static_cast<int>(random() % 255) - 127
                        : fill == Fill::kMin  ? -127
                                              : 127;
      int8_t& at = values[row * stride + input];
      at = static_cast<int8_t>(input < inputs ? value : 0);
      group_sums[row * groups + input / layout.group] += at;
      for (int16_t* const sum : {&sums16[i / 16], &sums32[i / 32]}) {
        *sum = static_cast<int16_t>(*sum + at);
      }
    }
    scales.resize(group_sums.size());
    for (float& scale : scales) scale = static_cast<float>(random() % 1000 + 1) * 0x1p-12f;
  }

  void SetScales(std::mt19937_64& random, Fill fill, int64_t count, uint8_t* chunk) const {
    const QuantPlaces at = PlacesOf(layout, count);
    const size_t bytes = layout.half_scales ? 2 : 4;
    for (int64_t i = at.scale; i < at.s; i += static_cast<int64_t>(bytes)) {
      const float scale = (static_cast<float>(random() % 2000) - 999.0f) * 0x1p-12f;
      const uint16_t half = FloatToF16(scale);
      std::memcpy(chunk + i, layout.half_scales ? static_cast<const void*>(&half) : &scale, bytes);
    }
    // s is signed where there are no minima; else s and t have 6 bits.
    for (int64_t i = at.s; i < at.zero; ++i) {
      if (fill != Fill::kRandom) chunk[i] = fill == Fill::kMax ? 0x7f : 0x80;
      if (layout.has_min) chunk[i] = fill == Fill::kRandom ? chunk[i] & 63 : 63;
    }
    for (int64_t i = at.zero; i < at.bytes && fill != Fill::kRandom; ++i) {
      chunk[i] = fill == Fill::kMax ? 0 : 255;
    }
  }

  std::vector<float> Multiply(const Kernels& kernels, int64_t first_rows, bool gated = false,
                              Storage type = Storage::kF32) const {
    const int64_t columns = gated ? outputs / 2 : outputs;
    std::vector<float> out(first_rows * (columns + 2), -77.0f);
    std::vector<float> bias(outputs);
    for (int64_t i = 0; i < outputs; ++i) bias[i] = static_cast<float>(i % 5);
    kernels.matmul_quant({.x = {.values = values,
                                .stride = stride,
                                .scales = const_cast<float*>(scales.data()),
                                .group_sums = const_cast<int32_t*>(group_sums.data()),
                                .sums16 = const_cast<int16_t*>(sums16.data()),
                                .sums32 = const_cast<int16_t*>(sums32.data())},
                          .row_count = first_rows,
                          .w = w.data(),
                          .layout = layout,
                          .k = inputs,
                          .panel_end = RoundedUp(outputs, kPanel) / kPanel,
                          .epilogue = {.bias = bias.data(),
                                       .gated = gated,
                                       .outputs = columns,
                                       .out = out.data(),
                                       .out_type = type,
                                       .out_stride = columns + 2}});
    return out;
  }

  QuantLayout layout;
  int64_t rows, outputs, inputs;
  int64_t stride = 0;
  std::vector<int8_t> storage;
  int8_t* values = nullptr;
  std::vector<float> scales;
  std::vector<int32_t> group_sums;
  std::vector<int16_t> sums16;
  std::vector<int16_t> sums32;
  std::vector<uint8_t> w;
};

class AmxQuantTest : public AmxTest {
 protected:
  // `product` by tiles and by vectors alone.
  static void ExpectSameBits(const QuantProduct& product, int64_t rows, bool gated = false,
                             Storage type = Storage::kF32) {
    ASSERT_EQ(Bits(product.Multiply(GetParam().kernels(true), rows, gated, type)),
              Bits(product.Multiply(Avx512Bf16Kernels(), rows, gated, type)))
        << rows << "x" << product.outputs << "x" << product.inputs << ", " << product.layout.bits
        << " bits, group " << product.layout.group << ", sub-block " << product.layout.sub_block;
  }
};

TEST_P(AmxQuantTest, HasTheBitsOfVectorsForEveryTypeAndNumberOfRows) {
  for (const DType type : IntegerBlockTypes()) {
    for (const bool one_zero : {false, true}) {
      const QuantLayout layout = LayoutOf(type, one_zero);
      // Chunks in pairs and not; the last ones shorter, where a row need not have whole blocks.
      const bool whole = layout.sub_block > 0;
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{17, whole ? 256 : 64},
                                 {33, whole ? 512 : 300},
                                 {32, whole ? 768 : 700}}) {
        const QuantProduct product(layout, 70, n, k);
        for (int64_t rows = 1; rows <= 70; rows += rows < 36 ? 1 : 17) {
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(product, rows)) << DTypeName(type);
        }
        EXPECT_FALSE(TilesAreConfigured());
      }
    }
  }
}

// The largest sums that there are and the least ones.
TEST_P(AmxQuantTest, HasTheBitsOfVectorsAtTheEnds) {
  for (const DType type : IntegerBlockTypes()) {
    for (const Fill fill : {Fill::kMin, Fill::kMax}) {
      const QuantProduct product(LayoutOf(type, false), 20, 16, 512, fill);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(product, 20)) << DTypeName(type);
    }
  }
}

TEST_P(AmxQuantTest, HasTheBitsOfVectorsInParts) {
  for (const DType type : {DType::kQ4K, DType::kQ8_0, DType::kI4G128}) {
    const QuantProduct product(LayoutOf(type, false), 1030, 16, 256);
    for (const int64_t rows : {512, 513, 520, 1030}) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(product, rows)) << DTypeName(type);
    }
  }
}

TEST_P(AmxQuantTest, GatesAndRoundsAsVectorsDo) {
  for (const DType type : {DType::kQ4K, DType::kQ6K, DType::kQ4_1, DType::kI8G256}) {
    for (const Storage storage : {Storage::kF32, Storage::kBF16}) {
      for (const int64_t n : {32, 64, 96}) {
        const QuantProduct product(LayoutOf(type, false), 45, n, 512);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(product, 45, false, storage)) << DTypeName(type);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(product, 45, true, storage)) << DTypeName(type);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, AmxQuantTest, ::testing::ValuesIn(kMachines), NameOfMachine);

}  // namespace
}  // namespace tlm
