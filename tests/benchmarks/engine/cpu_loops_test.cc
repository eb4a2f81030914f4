// Every loop computes as many products as it says; how fast it is, no test can tell.
#include "tests/benchmarks/engine/cpu_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model/ops/cpu/kernels/isa.h"

#define TLM_ISA_NAMESPACE cpu_loops_emulated
#define TLM_AMX_TILES "tests/support/amx/emulated_tiles.h"
#include "tests/benchmarks/engine/cpu_loops_amx.inc"

namespace tlm::bench {
namespace {

struct alignas(64) Line {
  uint32_t words[16];
};

std::vector<Line> Memory(int64_t bytes, uint32_t word) {
  EXPECT_EQ(bytes % 64, 0);
  std::vector<Line> lines(static_cast<size_t>(bytes) / sizeof(Line));
  for (Line& line : lines) std::fill_n(line.words, 16, word);
  return lines;
}

// `ones`: 4 bytes of operands that are all 1, so that the sums count the products.
template <typename Sum>
void ExpectAllProducts(const ProductLoop& loop, uint32_t ones) {
  SCOPED_TRACE(loop.instruction);
  const std::vector<Line> x = Memory(loop.x_bytes, ones), w = Memory(loop.w_bytes, ones);
  std::vector<Line> sums = Memory(loop.sums_bytes, 0xffffffff);
  loop.run(reinterpret_cast<const char*>(x.data()), reinterpret_cast<const char*>(w.data()),
           reinterpret_cast<char*>(sums.data()));
  std::vector<Sum> each(static_cast<size_t>(loop.sums_bytes) / sizeof(Sum));
  std::memcpy(each.data(), sums.data(), static_cast<size_t>(loop.sums_bytes));
  for (const Sum sum : each) ASSERT_EQ(sum, each[0]);
  EXPECT_EQ(2.0 * static_cast<double>(each[0]) * static_cast<double>(each.size()), loop.flops);
}

constexpr uint32_t kOneFloat = 0x3f800000, kTwoBf16 = 0x3f803f80, kFourBytes = 0x01010101;

TEST(CpuLoopsTest, ComputesTheProductsItCounts) {
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(std::string(IsaName(isa)));
    const CpuLoops* loops = LoopsOf(IsaName(isa));
    ASSERT_NE(loops, nullptr);
    ExpectAllProducts<float>(loops->floats, kOneFloat);
    EXPECT_EQ(loops->bf16.run != nullptr, HasBf16Products(isa));
    if (loops->bf16.run != nullptr) ExpectAllProducts<float>(loops->bf16, kTwoBf16);
    if (loops->int8.run != nullptr) ExpectAllProducts<int32_t>(loops->int8, kFourBytes);
  }
  EXPECT_EQ(LoopsOf("avx1024"), nullptr);
}

TEST(CpuLoopsTest, ComputesTheProductsItCountsOnEmulatedTiles) {
  ExpectAllProducts<float>(cpu_loops_emulated::TileLoop<false>(), kTwoBf16);
  ExpectAllProducts<int32_t>(cpu_loops_emulated::TileLoop<true>(), kFourBytes);
}

TEST(CpuLoopsTest, ReadsEveryByte) {
  for (const Isa isa : AvailableIsas()) {
    std::vector<Line> lines = Memory(2 * 4096, 0);
    const auto* data = reinterpret_cast<const char*>(lines.data());
    for (const auto read : LoopsOf(IsaName(isa))->read) {
      EXPECT_EQ(read(data, 2 * 4096), 0u);
      for (Line& line : lines) {
        line.words[15] = 0x80000000;
        EXPECT_EQ(read(data, 2 * 4096), 0x80000000u);
        line.words[15] = 0;
      }
    }
  }
}

}  // namespace
}  // namespace tlm::bench
