#include "server/net/heap.h"

#include <gtest/gtest.h>

#include <vector>

namespace tlm {
namespace {

constexpr int64_t kBase = int64_t{100} << 20;
constexpr int64_t kMuch = HeapTrimmer::kGrowthBytes;

// The numbers of the looks, of so many at the same size, at which it wants to trim.
std::vector<int> Trims(HeapTrimmer& trimmer, int64_t free_bytes, int looks) {
  std::vector<int> trims;
  for (int look = 1; look <= looks; ++look) {
    if (trimmer.ShouldTrim(free_bytes)) trims.push_back(look);
  }
  return trims;
}

TEST(HeapTrimmerTest, LeavesASteadyHeapAlone) {
  HeapTrimmer trimmer;
  EXPECT_EQ(Trims(trimmer, kBase, 1000), std::vector<int>());
  EXPECT_EQ(Trims(trimmer, kBase + kMuch - 1, 1000), std::vector<int>());
}

TEST(HeapTrimmerTest, TrimsTwiceAfterGrowthHasEnded) {
  HeapTrimmer trimmer;
  trimmer.ShouldTrim(kBase);
  EXPECT_FALSE(trimmer.ShouldTrim(kBase + kMuch));
  EXPECT_EQ(Trims(trimmer, kBase + kMuch, 1000),
            (std::vector<int>{HeapTrimmer::kFirstTrimPolls, HeapTrimmer::kSecondTrimPolls}));
}

TEST(HeapTrimmerTest, WaitsWhileItGrows) {
  HeapTrimmer trimmer;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(trimmer.ShouldTrim(kBase + i * kMuch));
}

TEST(HeapTrimmerTest, GrowthCountsFromWhatIsLeft) {
  HeapTrimmer trimmer;
  trimmer.ShouldTrim(kBase);
  trimmer.ShouldTrim(kBase + kMuch);
  Trims(trimmer, kBase + kMuch, 1000);
  EXPECT_EQ(Trims(trimmer, kBase, 1000), std::vector<int>());
  trimmer.ShouldTrim(kBase + kMuch);
  EXPECT_EQ(Trims(trimmer, kBase + kMuch, 1000).size(), 2u);
}

}  // namespace
}  // namespace tlm
