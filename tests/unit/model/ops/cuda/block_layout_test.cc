#include "model/ops/cuda/weights/block_layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/support/block_model.h"

namespace tlm {
namespace {

TEST(BlockLayoutTest, TakesTheBytesOfTheBlocksAndOfWiderFactors) {
  for (const std::vector<DType>& types : {GgufBlockTypes(), OwnBlockTypes(), Float8BlockTypes()}) {
    for (const DType type : types) {
      size_t expected = StoredBytes(type, 64 * 512);
      // Sixteen factors of six bits each 256 elements.
      if (type == DType::kQ4K || type == DType::kQ5K) expected += 64 * 512 / 256 * 16 * 2 / 8;
      EXPECT_EQ(BlockLayout(64, 512, type).bytes(), expected) << DTypeName(type);
    }
  }
}

TEST(BlockLayoutTest, StripsAndSpansAreWhole) {
  const BlockLayout layout(33, 288, DType::kQ8_0);
  EXPECT_EQ(layout.strips(), 2);
  EXPECT_EQ(layout.spans(), 3);
  EXPECT_EQ(layout.strip_bytes(), StoredBytes(DType::kQ8_0, 32 * 384));
  EXPECT_EQ(layout.bytes(), 2 * layout.strip_bytes());
  EXPECT_EQ(BlockLayout(0, 288, DType::kQ8_0).bytes(), 0u);
}

TEST(BlockLayoutTest, BytesThatDoNotFitBecomeTheMost) {
  EXPECT_EQ(BlockLayout(std::numeric_limits<int64_t>::max() / 2, 1 << 30, DType::kQ8_0).bytes(),
            std::numeric_limits<size_t>::max());
}

TEST(BlockLayoutTest, ArraysOfCellsBeginAtMultiplesOf16Bytes) {
  for (const std::vector<DType>& types : {GgufBlockTypes(), OwnBlockTypes(), Float8BlockTypes()}) {
    for (const DType type : types) {
      const StripFormat& format = BlockLayout(1, 256, type).format();
      for (const int spans : {1, 2}) {
        EXPECT_EQ(format.high_at(spans) % 16, 0) << DTypeName(type);
        EXPECT_EQ(format.entries_at(spans) % 16, 0) << DTypeName(type);
        EXPECT_EQ(format.heads_at(spans) % 16, 0) << DTypeName(type);
        EXPECT_EQ(format.zeros_at(spans) % 16, 0) << DTypeName(type);
        EXPECT_EQ(format.cell_bytes(spans) % 16, 0) << DTypeName(type);
      }
    }
  }
}

// Where block_format.h says that they are.
TEST(BlockLayoutTest, LanesFindTheirFourInputsTogether) {
  BlockValues values{};
  for (size_t i = 0; i < 256; ++i) values.q[i] = static_cast<uint8_t>(i);
  values.scale = 0.5f;
  values.zero = 77;
  const BlockLayout bytes(32, 256, DType::kI8G256);
  std::vector<std::byte> strip(bytes.strip_bytes());
  bytes.Write(values, 5, 0, strip.data());
  // Input 218 is of span 1, half 1, step 1 of it, and there of lane 1 the third.
  const size_t at = 4096 + 2048 + (5 * 4 + 1) * 16 + 1 * 4 + 2;
  EXPECT_EQ(std::to_integer<int>(strip[at]), 218);
  EXPECT_EQ(std::to_integer<int>(strip[8192 + 32 * 4 + 5]), 77);

  for (size_t i = 0; i < 256; ++i) values.q[i] = i == 218 ? 9 : 0;
  const BlockLayout nibbles(32, 256, DType::kI4G256);
  strip.assign(nibbles.strip_bytes(), std::byte{0});
  nibbles.Write(values, 5, 0, strip.data());
  // Step 5 of span 1: the second of word 2, nibble 3.
  EXPECT_EQ(std::to_integer<int>(strip[2048 + 5 * 64 + 1 * 16 + 2 * 4 + 1]), 9 << 4);
}

}  // namespace
}  // namespace tlm
