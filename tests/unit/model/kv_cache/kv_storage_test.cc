#include "model/kv_cache/kv_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/ops/cpu/cpu_device.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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

  // From the beginning; 0 where a hole is among them.
  size_t Touched() const {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages(kBytes / page);
    EXPECT_EQ(mincore(data_, kBytes, pages.data()), 0);
    const auto is_touched = [](unsigned char flags) { return (flags & 1) != 0; };
    const auto touched = static_cast<size_t>(std::ranges::count_if(pages, is_touched));
    return std::all_of(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(touched), is_touched)
               ? touched * page
               : 0;
  }

  static constexpr size_t kBytes = 384 * kMiB;
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

TEST_F(KvPagesTest, StaysAQuarterAheadOfWhatIsInUse) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  KvPages pages(data_, kBytes);
  pages.WaitUntilDone();
  EXPECT_EQ(Touched(), 0);
  // In whole pieces of 2 MiB.
  for (const auto& [used, touched] :
       {std::pair{kMiB, kMiB}, {7 * kMiB, 8 * kMiB}, {16 * kMiB, 20 * kMiB}}) {
    std::fill_n(data_, used, std::byte{7});
    pages.Reach(used);
    pages.WaitUntilDone();
    const size_t ahead = touched - used;
    EXPECT_EQ(Touched(), touched);
    EXPECT_EQ(std::count(data_, data_ + used, std::byte{7}), static_cast<int64_t>(used));
    EXPECT_EQ(std::count(data_ + used, data_ + used + ahead, std::byte{0}),
              static_cast<int64_t>(ahead));
  }
}

// The blocks of a long prompt: its first step writes to few of them.
TEST_F(KvPagesTest, TouchesWhatIsInUseAtOnceToo) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  KvPages pages(data_, kBytes);
  for (const size_t used : {kMiB / 4, 40 * kMiB}) {
    pages.Reach(used);
    pages.WaitUntilDone();
    EXPECT_EQ(Touched(), used > kMiB ? 50 * kMiB : used);
  }
}

TEST_F(KvPagesTest, IsNeverFurtherAheadThanItsLimit) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  KvPages pages(data_, kBytes);
  const size_t used = 4 * KvPages::kMaxAheadBytes + 6 * kMiB;
  pages.Reach(used);
  pages.WaitUntilDone();
  EXPECT_EQ(Touched(), used + KvPages::kMaxAheadBytes);
}

TEST_F(KvPagesTest, EndsWithTheMemory) {
  if (!KernelTouches()) GTEST_SKIP() << "the kernel is older than 5.14";
  constexpr size_t kPart = 8 * kMiB;
  constexpr size_t kUsed = kPart / 16;
  std::fill_n(data_, kUsed, std::byte{7});
  KvPages pages(data_, kPart);
  for (size_t bytes = kUsed; bytes <= kPart; bytes += kUsed) {
    pages.Reach(bytes);
    pages.WaitUntilDone();
  }
  EXPECT_EQ(Touched(), kPart);
}

TEST_F(KvPagesTest, MayGoAwayAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    KvPages pages(data_, kBytes);
    pages.Reach(kMiB);
  }
}

TEST(KvStorageTest, ABlockHasThePartsOfAllLayersInARow) {
  CpuDevice device("test", "portable");
  auto storage = KvStorage::Create(device, {3, 2, 16, DType::kF32}, 5);
  ASSERT_THAT(storage, IsOk());
  const size_t part = size_t{2} * 2 * 16 * kBlockTokens * sizeof(float);
  EXPECT_EQ(storage->bytes(), 5 * 3 * part);
  // Every part of every block is written once, by its layer.
  for (int64_t index = 0; index < 3; ++index) {
    const KvLayer layer = storage->layer(index);
    EXPECT_EQ(layer.block_bytes(), part);
    EXPECT_EQ(layer.stride_bytes(), 3 * part);
    for (size_t block = 0; block < 5; ++block) {
      std::fill_n(static_cast<std::byte*>(layer.data) + block * layer.stride_bytes(), part,
                  static_cast<std::byte>(1 + 10 * block + static_cast<size_t>(index)));
    }
  }
  for (BlockId block = 0; block < 5; ++block) {
    for (size_t index = 0; index < 3; ++index) {
      const std::byte* const begin = storage->block(block) + index * part;
      EXPECT_EQ(std::count(begin, begin + part,
                           static_cast<std::byte>(1 + 10 * static_cast<size_t>(block) + index)),
                static_cast<ptrdiff_t>(part));
    }
  }
}

TEST(KvStorageTest, EightBitRowsHaveAScaleEach) {
  const KvShape shape{3, 2, 16, DType::kF8E4M3};
  EXPECT_EQ(shape.bytes_per_token(), size_t{2} * 3 * 2 * (16 + 1));
  CpuDevice device("test", "portable");
  auto storage = KvStorage::Create(device, shape, 5);
  ASSERT_THAT(storage, IsOk());
  EXPECT_EQ(storage->bytes(), 5 * kBlockTokens * shape.bytes_per_token());
  const KvLayer layer = storage->layer(1);
  EXPECT_EQ(layer.head_bytes(), size_t{kBlockTokens} * (16 + 1));
  EXPECT_EQ(layer.block_bytes(), 4 * layer.head_bytes());
}

}  // namespace
}  // namespace tlm
