#include "model/kv_cache/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tlm {
namespace {

TEST(BlockPoolTest, AllocatesAllOrNothing) {
  BlockPool pool(5);
  std::vector<BlockId> blocks;
  EXPECT_TRUE(pool.Allocate(3, &blocks));
  EXPECT_FALSE(pool.Allocate(3, &blocks));
  EXPECT_EQ(blocks.size(), 3u);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_TRUE(pool.Allocate(2, &blocks));
  EXPECT_EQ(std::set<BlockId>(blocks.begin(), blocks.end()).size(), 5u);
  EXPECT_TRUE(pool.Allocate(0, &blocks));
}

TEST(BlockPoolTest, ABlockIsFreeWhenItsLastOwnerLetsGo) {
  BlockPool pool(1);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.Allocate(1, &blocks));
  pool.AddReference(blocks[0]);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.free_blocks(), 1);
}

TEST(BlockPoolTest, NoBlockHasTwoUnrelatedOwnersInRandomUse) {
  BlockPool pool(40);
  std::mt19937 random(1);
  std::vector<std::vector<BlockId>> owners;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0) {
      std::vector<BlockId> blocks;
      if (pool.Allocate(random() % 8, &blocks)) owners.push_back(std::move(blocks));
    } else if (!owners.empty()) {
      const size_t victim = random() % owners.size();
      for (const BlockId block : owners[victim]) pool.Release(block);
      owners.erase(owners.begin() + victim);
    }
    std::set<BlockId> used;
    int64_t count = 0;
    for (const auto& blocks : owners) {
      used.insert(blocks.begin(), blocks.end());
      count += static_cast<int64_t>(blocks.size());
    }
    ASSERT_EQ(static_cast<int64_t>(used.size()), count);
    ASSERT_EQ(pool.used_blocks(), count);
  }
}

TEST(BlockPoolDeathTest, ReleasingAFreeBlockIsABrokenPromise) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Release(0), "check");
  EXPECT_DEATH(pool.AddReference(5), "check");
}

}  // namespace
}  // namespace tlm
