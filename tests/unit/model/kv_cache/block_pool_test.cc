#include "model/kv_cache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <utility>

namespace tlm {
namespace {

// Evicts in the order of release and records the calls.
class FifoKeeper : public BlockKeeper {
 public:
  void OnIdle(BlockId block) override { idle.push_back(block); }
  void OnUsed(BlockId block) override { std::erase(idle, block); }
  BlockId Evict() override {
    const BlockId block = idle.front();
    idle.pop_front();
    evicted.push_back(block);
    return block;
  }

  std::deque<BlockId> idle;
  std::vector<BlockId> evicted;
};

class KeptBlocksTest : public ::testing::Test {
 protected:
  KeptBlocksTest() : pool_(4) {
    pool_.set_keeper(&keeper_);
    EXPECT_TRUE(pool_.Allocate(3, &blocks_));
  }

  void Let(BlockId block) {
    pool_.Keep(block);
    pool_.Release(block);
  }

  void ExpectCounts(int64_t free, int64_t idle, int64_t used) {
    EXPECT_EQ(pool_.free_blocks(), free);
    EXPECT_EQ(pool_.idle_blocks(), idle);
    EXPECT_EQ(pool_.used_blocks(), used);
    EXPECT_EQ(pool_.available_blocks(), free + idle);
  }

  FifoKeeper keeper_;
  BlockPool pool_;
  std::vector<BlockId> blocks_;
};

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

TEST(BlockPoolTest, ABlockIsFreeWhenItsLastUserLetsGo) {
  BlockPool pool(1);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.Allocate(1, &blocks));
  pool.AddReference(blocks[0]);
  EXPECT_EQ(pool.users(blocks[0]), 2);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_EQ(pool.users(blocks[0]), 0);
}

TEST(BlockPoolTest, NoBlockHasTwoUnrelatedUsersInRandomUse) {
  BlockPool pool(40);
  std::mt19937 random(1);
  std::vector<std::vector<BlockId>> users;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0) {
      std::vector<BlockId> blocks;
      if (pool.Allocate(random() % 8, &blocks)) users.push_back(std::move(blocks));
    } else if (!users.empty()) {
      const size_t victim = random() % users.size();
      for (const BlockId block : users[victim]) pool.Release(block);
      users.erase(users.begin() + victim);
    }
    std::set<BlockId> used;
    int64_t count = 0;
    for (const auto& blocks : users) {
      used.insert(blocks.begin(), blocks.end());
      count += static_cast<int64_t>(blocks.size());
    }
    ASSERT_EQ(static_cast<int64_t>(used.size()), count);
    ASSERT_EQ(pool.used_blocks(), count);
  }
}

TEST_F(KeptBlocksTest, AKeptBlockIsIdleWithoutUsers) {
  ExpectCounts(1, 0, 3);
  pool_.Keep(blocks_[0]);
  pool_.Keep(blocks_[0]);
  ExpectCounts(1, 0, 3);
  pool_.Release(blocks_[0]);
  ExpectCounts(1, 1, 2);
  EXPECT_EQ(keeper_.idle, (std::deque<BlockId>{blocks_[0]}));
}

TEST_F(KeptBlocksTest, AUserMakesAnIdleBlockUsedAgain) {
  Let(blocks_[0]);
  pool_.AddReference(blocks_[0]);
  EXPECT_TRUE(keeper_.idle.empty());
  ExpectCounts(1, 0, 3);
  pool_.AddReference(blocks_[0]);
  pool_.Release(blocks_[0]);
  EXPECT_TRUE(keeper_.idle.empty());
  pool_.Release(blocks_[0]);
  ExpectCounts(1, 1, 2);
}

TEST_F(KeptBlocksTest, FreeBlocksAreTakenBeforeIdleOnes) {
  Let(blocks_[0]);
  Let(blocks_[1]);
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool_.Allocate(1, &taken));
  EXPECT_TRUE(keeper_.evicted.empty());
  ASSERT_TRUE(pool_.Allocate(1, &taken));
  EXPECT_EQ(keeper_.evicted, (std::vector<BlockId>{blocks_[0]}));
  EXPECT_EQ(taken.back(), blocks_[0]);
  ExpectCounts(0, 1, 3);
}

TEST_F(KeptBlocksTest, NothingIsEvictedInVain) {
  Let(blocks_[0]);
  Let(blocks_[1]);
  std::vector<BlockId> taken;
  EXPECT_FALSE(pool_.Allocate(4, &taken));
  EXPECT_TRUE(keeper_.evicted.empty());
  EXPECT_TRUE(taken.empty());
  ExpectCounts(1, 2, 1);
}

TEST_F(KeptBlocksTest, AnEvictedBlockIsKeptNoMore) {
  Let(blocks_[0]);
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool_.Allocate(2, &taken));
  for (const BlockId block : taken) pool_.Release(block);
  ExpectCounts(2, 0, 2);
}

TEST_F(KeptBlocksTest, AForgottenBlockIsFreeAtOnceOrWhenItsUsersLetGo) {
  Let(blocks_[0]);
  pool_.Forget(blocks_[0]);
  ExpectCounts(2, 0, 2);
  pool_.Forget(blocks_[0]);
  ExpectCounts(2, 0, 2);
  pool_.Keep(blocks_[1]);
  pool_.Forget(blocks_[1]);
  ExpectCounts(2, 0, 2);
  pool_.Release(blocks_[1]);
  ExpectCounts(3, 0, 1);
}

TEST(BlockPoolDeathTest, UsingAFreeBlockIsABrokenPromise) {
  BlockPool pool(2);
  FifoKeeper keeper;
  pool.set_keeper(&keeper);
  EXPECT_DEATH(pool.Release(0), "check");
  EXPECT_DEATH(pool.AddReference(0), "check");
  EXPECT_DEATH(pool.AddReference(5), "check");
  EXPECT_DEATH(pool.Keep(0), "check");
}

}  // namespace
}  // namespace tlm
