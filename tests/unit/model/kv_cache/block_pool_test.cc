#include "model/kv_cache/block_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>

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

TEST_F(KeptBlocksTest, AKeptBlockIsIdleWithoutUsers) {
  ExpectCounts(1, 0, 3);
  pool_.Keep(blocks_[0]);
  pool_.Keep(blocks_[0]);
  ExpectCounts(1, 0, 3);
  pool_.Release(blocks_[0]);
  ExpectCounts(1, 1, 2);
  EXPECT_EQ(keeper_.idle, (std::deque<BlockId>{blocks_[0]}));
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
