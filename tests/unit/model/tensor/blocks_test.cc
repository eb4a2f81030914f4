// Blocks of random bits against the formula of blocks.h, element by element.
#include "model/tensor/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/support/block_model.h"

namespace tlm {
namespace {

// A block's bytes as the formula names them.
class Bytes {
 public:
  explicit Bytes(const std::byte* from) : from_(from) {}

  int At(size_t byte) const { return std::to_integer<int>(from_[byte]); }
  int Signed(size_t byte) const { return At(byte) < 128 ? At(byte) : At(byte) - 256; }
  int Bits(size_t byte, int first, int count) const {
    return At(byte) >> first & ((1 << count) - 1);
  }
  // A binary16, by its fields.
  float Half(size_t byte) const {
    const int bits = At(byte) + 256 * At(byte + 1);
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return static_cast<float>(bits >> 15 != 0 ? -magnitude : magnitude);
  }
  float Float(size_t byte) const {
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(At(byte + i)) << (8 * i);
    return std::bit_cast<float>(bits);
  }

 private:
  const std::byte* from_;
};

// What the formula needs of one element.
struct Terms {
  int q = 0;
  int zero = 0;
  float scale = 0;
  int s = 1;
  float min = 0;
  int t = 1;
};

// Element i of 32 in 16 bytes.
int Nibble(const Bytes& block, size_t begin, size_t i) {
  return block.Bits(begin + i % 16, i < 16 ? 0 : 4, 4);
}

int FifthBit(const Bytes& block, size_t begin, size_t i) {
  return block.Bits(begin + i / 8, static_cast<int>(i % 8), 1) << 4;
}

// The factor `which` (0: s, 1: t) of sub-block g: six bits of the first eight bytes for the first
// four; for the others four bits of the last four bytes, the high two at the top of the first.
int Factor(const Bytes& block, size_t g, size_t which) {
  constexpr size_t kBegin = 4;
  if (g < 4) return block.Bits(kBegin + 4 * which + g, 0, 6);
  return block.Bits(kBegin + 8 + g - 4, which == 0 ? 0 : 4, 4) |
         block.Bits(kBegin + 4 * which + g - 4, 6, 2) << 4;
}

Terms TermsOfK(DType type, const Bytes& block, size_t i) {
  const size_t g = i / 32;
  const bool has_fifth = type == DType::kQ5K;
  const size_t nibbles = has_fifth ? 48 : 16;
  int q = block.Bits(nibbles + g / 2 * 32 + i % 32, g % 2 == 0 ? 0 : 4, 4);
  if (has_fifth) q |= block.Bits(16 + i % 32, static_cast<int>(g), 1) << 4;
  return {.q = q,
          .scale = block.Half(0),
          .s = Factor(block, g, 0),
          .min = block.Half(2),
          .t = Factor(block, g, 1)};
}

Terms TermsOfQ6K(const Bytes& block, size_t i) {
  const size_t half = i / 128;
  const size_t quarter = i % 128 / 32;
  const size_t j = i % 32;
  const int low = block.Bits(half * 64 + quarter % 2 * 32 + j, quarter < 2 ? 0 : 4, 4);
  const int high = block.Bits(128 + half * 32 + j, static_cast<int>(2 * quarter), 2);
  return {
      .q = low | high << 4, .zero = 32, .scale = block.Half(208), .s = block.Signed(192 + i / 16)};
}

Terms TermsOfOwn(DType type, const Bytes& block, size_t i) {
  const bool is_int4 = type <= DType::kI4G256;
  return {.q = is_int4 ? block.Bits(5 + i / 2, i % 2 == 0 ? 0 : 4, 4) : block.At(5 + i),
          .zero = block.At(4),
          .scale = block.Float(0)};
}

Terms TermsOf(DType type, const Bytes& block, size_t i) {
  switch (type) {
    case DType::kQ8_0:
      return {.q = block.Signed(2 + i) + 128, .zero = 128, .scale = block.Half(0)};
    case DType::kQ4_0:
      return {.q = Nibble(block, 2, i), .zero = 8, .scale = block.Half(0)};
    case DType::kIq4Nl:
      return {.q = kIq4NlValues[Nibble(block, 2, i)] + 128, .zero = 128, .scale = block.Half(0)};
    case DType::kQ4_1:
      return {.q = Nibble(block, 4, i), .scale = block.Half(0), .min = -block.Half(2)};
    case DType::kQ5_0:
      return {.q = Nibble(block, 6, i) | FifthBit(block, 2, i), .zero = 16, .scale = block.Half(0)};
    case DType::kQ5_1:
      return {.q = Nibble(block, 8, i) | FifthBit(block, 4, i),
              .scale = block.Half(0),
              .min = -block.Half(2)};
    case DType::kQ4K:
    case DType::kQ5K:
      return TermsOfK(type, block, i);
    case DType::kQ6K:
      return TermsOfQ6K(block, i);
    default:
      return TermsOfOwn(type, block, i);
  }
}

float Element(const Terms& terms) {
  const float scale = terms.scale * static_cast<float>(terms.s);
  const float min = terms.min * static_cast<float>(terms.t);
  return static_cast<float>(terms.q - terms.zero) * scale - min;
}

// Blocks of random bits whose scales and minima are finite: small, large and subnormal ones.
std::vector<std::byte> RandomBlocks(DType type, size_t count, std::mt19937& random) {
  const size_t size = BlockOf(type).bytes;
  std::vector<std::byte> result(count * size);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random() & 0xffu);
  const bool is_own = FormatOf(type).zero < 0;
  const size_t high_byte = is_own ? 3 : type == DType::kQ6K ? 209 : 1;
  for (size_t i = 0; i < count; ++i) {
    std::byte* const block = result.data() + i * size;
    // The exponent's last bit that is wholly in the byte: no infinity, no NaN.
    const std::byte finite{static_cast<unsigned char>(is_own ? 0xbf : 0xfb)};
    block[high_byte] &= finite;
    if (FormatOf(type).has_min) block[3] &= finite;
  }
  return result;
}

class BlocksTest : public ::testing::TestWithParam<DType> {
 protected:
  const DType type_ = GetParam();
  const DTypeBlock size_ = BlockOf(type_);
  std::mt19937 random_{static_cast<uint32_t>(type_)};
};

TEST_P(BlocksTest, ElementsAreThoseOfTheFormula) {
  constexpr size_t kBlocks = 300;
  const std::vector<std::byte> blocks = RandomBlocks(type_, kBlocks, random_);
  std::vector<float> elements(kBlocks * size_.elements);
  Dequantise(type_, blocks.data(), kBlocks, elements.data());
  for (size_t i = 0; i < elements.size(); ++i) {
    const Bytes block(blocks.data() + i / size_.elements * size_.bytes);
    const float expected = Element(TermsOf(type_, block, i % size_.elements));
    ASSERT_EQ(std::bit_cast<uint32_t>(elements[i]), std::bit_cast<uint32_t>(expected))
        << "element " << i << ": " << elements[i] << ", by the formula " << expected;
  }
}

TEST_P(BlocksTest, PartsAreThoseOfTheFormulaAndWithinTheFormat) {
  const BlockFormat format = FormatOf(type_);
  const std::vector<std::byte> bytes = RandomBlocks(type_, 1, random_);
  BlockValues values;
  ReadBlock(type_, bytes.data(), &values);
  for (size_t i = 0; i < size_.elements; ++i) {
    const Terms terms = TermsOf(type_, Bytes(bytes.data()), i);
    EXPECT_EQ(values.q[i], terms.q) << i;
    EXPECT_LT(values.q[i], 1 << format.bits) << i;
    EXPECT_EQ(values.zero, terms.zero);
    EXPECT_EQ(values.scale, terms.scale);
    EXPECT_EQ(values.min, terms.min);
    if (format.sub_block == 0) continue;
    const size_t g = i / static_cast<size_t>(format.sub_block);
    EXPECT_EQ(values.s[g], terms.s) << i;
    if (format.has_min) {
      EXPECT_EQ(values.t[g], terms.t) << i;
    }
  }
  EXPECT_TRUE(format.zero == values.zero || format.zero < 0);
  EXPECT_TRUE(format.has_min || values.min == 0);
}

TEST_P(BlocksTest, MayBeAtAnyAddress) {
  const std::vector<std::byte> blocks = RandomBlocks(type_, 2, random_);
  std::vector<float> expected(2 * size_.elements);
  Dequantise(type_, blocks.data(), 2, expected.data());
  for (size_t shift = 1; shift < 8; ++shift) {
    std::vector<std::byte> moved(shift + blocks.size());
    std::memcpy(moved.data() + shift, blocks.data(), blocks.size());
    std::vector<float> elements(expected.size());
    Dequantise(type_, moved.data() + shift, 2, elements.data());
    EXPECT_EQ(elements, expected) << shift;
  }
}

std::string NameOf(const ::testing::TestParamInfo<DType>& info) { return DTypeName(info.param); }

INSTANTIATE_TEST_SUITE_P(Types, BlocksTest, ::testing::ValuesIn(IntegerBlockTypes()), NameOf);

class OwnBlocksTest : public ::testing::TestWithParam<DType> {};

TEST_P(OwnBlocksTest, AreReadAsTheyWereWritten) {
  const DType type = GetParam();
  const DTypeBlock size = BlockOf(type);
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    BlockValues written = {};
    for (size_t i = 0; i < size.elements; ++i) {
      written.q[i] = static_cast<uint8_t>(random() % (1u << FormatOf(type).bits));
    }
    written.scale = std::ldexp(static_cast<float>(random() % 999 + 1), -20);
    written.zero = static_cast<int>(random() % 256);
    // A byte on each side, which must stay.
    std::vector<std::byte> bytes(size.bytes + 2, std::byte{0xa5});
    WriteBlock(type, written, bytes.data() + 1);
    EXPECT_EQ(bytes.front(), std::byte{0xa5});
    EXPECT_EQ(bytes.back(), std::byte{0xa5});

    BlockValues read;
    ReadBlock(type, bytes.data() + 1, &read);
    EXPECT_EQ(std::memcmp(read.q, written.q, size.elements), 0);
    EXPECT_EQ(read.scale, written.scale);
    EXPECT_EQ(read.zero, written.zero);
    EXPECT_EQ(read.min, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OwnBlocksTest, ::testing::ValuesIn(OwnBlockTypes()), NameOf);

// Every pattern of bits, by the definition of e4m3.
TEST(FloatBlocksTest, ElementsAreThoseOfTheFormula) {
  for (const DType type : {DType::kF8G32, DType::kF8G128}) {
    const DTypeBlock size = BlockOf(type);
    std::vector<std::byte> bytes(size.bytes + 1);
    std::vector<uint8_t> q(size.elements);
    std::vector<float> elements(size.elements);
    for (size_t first = 0; first < 256; first += size.elements) {
      for (size_t i = 0; i < size.elements; ++i) q[i] = static_cast<uint8_t>(first + i);
      WriteF8Block(0.37f, q, bytes.data() + 1);
      Dequantise(type, bytes.data() + 1, 1, elements.data());
      for (size_t i = 0; i < size.elements; ++i) {
        const int exponent = q[i] >> 3 & 15;
        const int fraction = (q[i] & 7) + (exponent == 0 ? 0 : 8);
        const double value = std::ldexp(fraction, std::max(exponent, 1) - 10);
        if ((q[i] & 0x7f) == 0x7f) {
          EXPECT_TRUE(std::isnan(elements[i])) << int{q[i]};
        } else {
          EXPECT_EQ(elements[i], 0.37f * static_cast<float>(q[i] >= 128 ? -value : value))
              << int{q[i]};
        }
      }
    }
  }
}

}  // namespace
}  // namespace tlm
