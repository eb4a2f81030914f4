#include "model/kv_cache/kv_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tlm {
namespace {

constexpr int64_t kLayers = 3;
constexpr size_t kLayerBytes = size_t{16} << 20;

// Untouched memory.
class KvPagesTest : public ::testing::Test {
 protected:
  KvPagesTest()
      : data_(static_cast<std::byte*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    // Small ones: a large one would bring its neighbours along.
    madvise(data_, kBytes, MADV_NOHUGEPAGE);
  }
  ~KvPagesTest() override { munmap(data_, kBytes); }

  // Of each layer, from its beginning; 0 where they do not agree or a hole is among them.
  size_t TouchedOfEachLayer() const {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages(kBytes / page);
    EXPECT_EQ(mincore(data_, kBytes, pages.data()), 0);
    const size_t of_layer = kLayerBytes / page;
    const auto is_touched = [](unsigned char flags) { return (flags & 1) != 0; };
    const auto touched = static_cast<size_t>(std::ranges::count_if(pages, is_touched)) / kLayers;
    for (size_t i = 0; i < pages.size(); ++i) {
      if (is_touched(pages[i]) != (i % of_layer < touched)) return 0;
    }
    return touched * page;
  }

  std::byte* Layer(int64_t layer) const { return data_ + static_cast<size_t>(layer) * kLayerBytes; }

  static constexpr size_t kBytes = kLayers * kLayerBytes;
  std::byte* const data_;
};

bool KernelTouches() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const probe =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool touches = madvise(probe, page, MADV_POPULATE_WRITE) == 0;
  munmap(probe, page);
  return touches;
}

TEST_F(KvPagesTest, StaysAheadOfWhatIsInUse) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  KvPages pages(data_, kLayers, kLayerBytes);
  pages.WaitUntilDone();
  EXPECT_EQ(TouchedOfEachLayer(), 0);
  for (const size_t used : {size_t{1} << 16, size_t{3} << 20}) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::fill_n(Layer(layer), used, std::byte{7});
    }
    pages.Reach(used);
    pages.WaitUntilDone();
    EXPECT_EQ(TouchedOfEachLayer(), used + KvPages::kAhead);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::byte* const end = Layer(layer) + used;
      EXPECT_EQ(std::count(Layer(layer), end, std::byte{7}), static_cast<int64_t>(used));
      EXPECT_EQ(std::count(end, end + KvPages::kAhead, std::byte{0}),
                static_cast<int64_t>(KvPages::kAhead));
    }
  }
}

// The blocks of a long prompt: its first step writes to few of them.
TEST_F(KvPagesTest, TouchesWhatIsInUseAtOnceToo) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  KvPages pages(data_, kLayers, kLayerBytes);
  for (const size_t used : {size_t{1} << 16, size_t{9} << 20}) {
    pages.Reach(used);
    pages.WaitUntilDone();
    EXPECT_EQ(TouchedOfEachLayer(), used + KvPages::kAhead);
  }
}

TEST_F(KvPagesTest, EndsWithTheMemory) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  constexpr size_t kUsed = kLayerBytes / 16;
  for (int64_t layer = 0; layer < kLayers; ++layer) std::fill_n(Layer(layer), kUsed, std::byte{7});
  KvPages pages(data_, kLayers, kLayerBytes);
  for (size_t bytes = kUsed; bytes <= kLayerBytes; bytes += kUsed) {
    pages.Reach(bytes);
    pages.WaitUntilDone();
  }
  EXPECT_EQ(TouchedOfEachLayer(), kLayerBytes);
}

TEST_F(KvPagesTest, MayGoAwayAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    KvPages pages(data_, kLayers, kLayerBytes);
    pages.Reach(size_t{1} << 20);
  }
}

}  // namespace
}  // namespace tlm
