// Random use of the prefix cache, compared call by call with a brute-force model.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "model/kv_cache/prefix_cache.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// The scope, then each block's contents: the name of a chain's last block.
using Path = std::vector<int>;

const CacheScope kScopes[] = {{"tenant", "salt"}, {"tenant", ""}};
constexpr int kContents = 4;  // so few that chains meet all the time
constexpr size_t kMaxBlocks = 5;
constexpr size_t kMaxSequences = 8;
constexpr int64_t kPoolBlocks = 24;

struct Sequence {
  Path path;  // whole
  std::vector<BlockHash> hashes;
  std::vector<int32_t> tokens;
  std::vector<BlockId> blocks;  // those of the path's first ones
  size_t published = 0;
};

Sequence RandomSequence(std::mt19937& random) {
  Sequence sequence;
  sequence.path.push_back(static_cast<int>(random() % std::size(kScopes)));
  const CacheScope& scope = kScopes[sequence.path[0]];
  BlockHash hash = RootHash(scope.tenant, scope.salt);
  const size_t blocks = 1 + random() % kMaxBlocks;
  for (size_t i = 0; i < blocks; ++i) {
    const int content = static_cast<int>(random() % kContents);
    sequence.path.push_back(content);
    sequence.tokens.insert(sequence.tokens.end(), kBlockTokens, content);
    hash = ChildHash(hash, std::span(sequence.tokens).last(kBlockTokens));
    sequence.hashes.push_back(hash);
  }
  return sequence;
}

Path First(const Path& path, size_t blocks) {
  return Path(path.begin(), path.begin() + static_cast<ptrdiff_t>(1 + blocks));
}

// The blocks in the cache by their contents, and when each was released.
class NaiveCache {
 public:
  std::vector<BlockId> Match(const Path& path) const {
    std::vector<BlockId> blocks;
    while (blocks.size() + 1 < path.size()) {
      const auto found = nodes_.find(First(path, blocks.size() + 1));
      if (found == nodes_.end()) break;
      blocks.push_back(found->second);
    }
    return blocks;
  }

  BlockId Publish(const Path& path, BlockId parent, BlockId block) {
    if (path.size() > 2) {
      const auto known = nodes_.find(First(path, path.size() - 2));
      if (known == nodes_.end() || known->second != parent) return block;
    }
    return nodes_.emplace(path, block).first->second;
  }

  void Let(BlockId block) { let_go_[block] = ++now_; }

  BlockId Evict(const BlockPool& pool) {
    auto victim = nodes_.end();
    for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
      if (pool.users(node->second) > 0 || HasChild(node->first)) continue;
      if (victim == nodes_.end() || let_go_[node->second] < let_go_[victim->second]) victim = node;
    }
    const BlockId block = victim->second;
    nodes_.erase(victim);
    return block;
  }

  void Flush() { nodes_.clear(); }
  const std::map<Path, BlockId>& nodes() const { return nodes_; }

 private:
  bool HasChild(const Path& path) const {
    return std::ranges::any_of(nodes_, [&](const auto& node) {
      return node.first.size() == path.size() + 1 &&
             std::equal(path.begin(), path.end(), node.first.begin());
    });
  }

  std::map<Path, BlockId> nodes_;
  std::map<BlockId, int64_t> let_go_;
  int64_t now_ = 0;
};

// The cache's contents as its observer knows them, in the same form as the model's.
class ObservedCache : public PrefixCacheObserver {
 public:
  void OnStored(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                std::span<const int32_t> tokens, BlockId block) override {
    Path path = {scope.salt.empty() ? 1 : 0};
    BlockHash parent_hash = RootHash(scope.tenant, scope.salt);
    if (parent != kNoBlock) {
      path = blocks_.at(parent).path;
      parent_hash = blocks_.at(parent).hash;
    }
    path.push_back(tokens[0]);
    EXPECT_EQ(hash, ChildHash(parent_hash, tokens));
    EXPECT_TRUE(blocks_.try_emplace(block, Block{path, hash}).second) << "stored twice";
    EXPECT_TRUE(nodes_.emplace(path, block).second);
    ++stored;
  }
  void OnEvicted(BlockId block) override {
    const Path path = blocks_.at(block).path;
    const auto next = nodes_.upper_bound(path);
    EXPECT_FALSE(next != nodes_.end() && next->first.size() > path.size() &&
                 std::equal(path.begin(), path.end(), next->first.begin()))
        << "has children";
    nodes_.erase(path);
    blocks_.erase(block);
    ++evicted;
  }
  void OnFlushed() override {
    nodes_.clear();
    blocks_.clear();
    ++flushed;
  }
  const std::map<Path, BlockId>& nodes() const { return nodes_; }

  int64_t stored = 0;
  int64_t evicted = 0;
  int64_t flushed = 0;

 private:
  struct Block {
    Path path;
    BlockHash hash;
  };

  std::map<Path, BlockId> nodes_;
  std::map<BlockId, Block> blocks_;
};

class PrefixCachePropertyTest : public ::testing::Test {
 protected:
  PrefixCachePropertyTest() : pool_(kPoolBlocks), cache_(pool_) {
    for (BlockId block = 0; block < kPoolBlocks; ++block) free_.insert(block);
    cache_.set_observer(&observed_);
  }
  ~PrefixCachePropertyTest() override { cache_.set_observer(nullptr); }

  void Step() {
    const uint32_t choice = random_() % 100;
    if (choice == 0) {
      Flush();
    } else if (choice < 20 && sequences_.size() < kMaxSequences) {
      Admit();
    } else if (choice < 50) {
      WithOne([this](Sequence& sequence) { Grow(sequence); });
    } else if (choice < 85) {
      WithOne([this](Sequence& sequence) { PublishNext(sequence); });
    } else if (!sequences_.empty()) {
      Leave();
    }
  }

  void CheckInvariants() {
    std::map<BlockId, int64_t> users;
    for (const Sequence& sequence : sequences_) {
      for (size_t i = 0; i < sequence.blocks.size(); ++i) {
        ++users[sequence.blocks[i]];
        ASSERT_EQ(held_.at(sequence.blocks[i]), First(sequence.path, i + 1));
      }
    }
    for (BlockId block = 0; block < kPoolBlocks; ++block) {
      const auto used = users.find(block);
      ASSERT_EQ(pool_.users(block), used == users.end() ? 0 : used->second);
    }
    ASSERT_EQ(pool_.used_blocks(), static_cast<int64_t>(users.size()));
    ASSERT_EQ(pool_.free_blocks() + pool_.idle_blocks() + pool_.used_blocks(), kPoolBlocks);
    CompareWithModel();
  }

  void LeaveAll() {
    while (!sequences_.empty()) Leave();
  }

  BlockPool pool_;
  PrefixCache cache_;
  ObservedCache observed_;

 private:
  void CompareWithModel() {
    ASSERT_EQ(cache_.size(), static_cast<int64_t>(model_.nodes().size()));
    int64_t idle = 0;
    for (const auto& [path, block] : model_.nodes()) {
      idle += pool_.users(block) == 0;
      if (path.size() == 2) continue;
      const BlockId parent = model_.nodes().at(First(path, path.size() - 2));
      ASSERT_TRUE(pool_.users(parent) > 0 || pool_.users(block) == 0);
    }
    ASSERT_EQ(pool_.idle_blocks(), idle);
    ASSERT_EQ(observed_.nodes(), model_.nodes());
  }

  template <typename Action>
  void WithOne(Action action) {
    if (!sequences_.empty()) action(sequences_[random_() % sequences_.size()]);
  }

  void Admit() {
    Sequence sequence = RandomSequence(random_);
    const int64_t matched = cache_.Match(sequence.hashes, sequence.tokens, &sequence.blocks);
    EXPECT_EQ(matched, static_cast<int64_t>(sequence.blocks.size()));
    EXPECT_EQ(sequence.blocks, model_.Match(sequence.path));
    sequence.published = sequence.blocks.size();
    sequences_.push_back(std::move(sequence));
  }

  void Grow(Sequence& sequence) {
    const size_t missing = sequence.hashes.size() - sequence.blocks.size();
    const int64_t count = missing == 0 ? 0 : static_cast<int64_t>(1 + random_() % missing);
    const bool fits = count <= pool_.available_blocks();
    std::set<BlockId> expected = free_;
    if (fits) {
      for (int64_t i = pool_.free_blocks(); i < count; ++i) expected.insert(model_.Evict(pool_));
    }
    const size_t before = sequence.blocks.size();
    const int64_t free_before = pool_.free_blocks();
    ASSERT_EQ(pool_.Allocate(count, &sequence.blocks), fits);
    for (size_t i = before; i < sequence.blocks.size(); ++i) {
      const BlockId block = sequence.blocks[i];
      ASSERT_EQ(expected.erase(block), 1u);
      free_.erase(block);
      held_[block] = First(sequence.path, i + 1);
    }
    if (fits && count > free_before) {
      ASSERT_TRUE(expected.empty());
    }
  }

  void PublishNext(Sequence& sequence) {
    const size_t next = sequence.published;
    if (next >= sequence.blocks.size()) return;
    const BlockId own = sequence.blocks[next];
    const BlockId parent = next == 0 ? kNoBlock : sequence.blocks[next - 1];
    const std::span tokens = std::span(sequence.tokens).subspan(next * kBlockTokens, kBlockTokens);
    const BlockId block =
        cache_.Publish(kScopes[sequence.path[0]], parent, sequence.hashes[next], tokens, own);
    ASSERT_EQ(block, model_.Publish(First(sequence.path, next + 1), parent, own));
    sequence.blocks[next] = block;
    ++sequence.published;
    if (pool_.users(own) == 0) free_.insert(own);
  }

  void Leave() {
    const size_t index = random_() % sequences_.size();
    std::vector<BlockId> blocks = std::move(sequences_[index].blocks);
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(index));
    if (random_() % 2 == 0) std::ranges::reverse(blocks);
    for (const BlockId block : blocks) {
      const int64_t free_before = pool_.free_blocks();
      pool_.Release(block);
      if (pool_.free_blocks() > free_before) free_.insert(block);
      if (pool_.users(block) == 0) model_.Let(block);
    }
  }

  void Flush() {
    const int64_t idle = pool_.idle_blocks();
    const int64_t free_before = pool_.free_blocks();
    ASSERT_EQ(cache_.Flush(), idle);
    ASSERT_EQ(pool_.free_blocks(), free_before + idle);
    for (const auto& [path, block] : model_.nodes()) {
      if (pool_.users(block) == 0) free_.insert(block);
    }
    model_.Flush();
  }

  std::mt19937 random_{7};
  std::vector<Sequence> sequences_;
  NaiveCache model_;
  std::set<BlockId> free_;        // as the model expects
  std::map<BlockId, Path> held_;  // what was put into a block last
};

TEST_F(PrefixCachePropertyTest, DoesWhatTheModelDoes) {
  for (int step = 0; step < 60000; ++step) {
    Step();
    CheckInvariants();
    if (HasFatalFailure()) FAIL() << "in step " << step;
  }
  EXPECT_GT(cache_.stats().evicted_blocks, 1000);
  EXPECT_GT(cache_.stats().hit_tokens, 1000 * kBlockTokens);
  LeaveAll();
  EXPECT_EQ(pool_.used_blocks(), 0);
  std::vector<BlockId> all;
  EXPECT_TRUE(pool_.Allocate(kPoolBlocks, &all));
  EXPECT_EQ(cache_.size(), 0);
  EXPECT_TRUE(observed_.nodes().empty());
  EXPECT_EQ(observed_.stored, cache_.stats().published_blocks);
  EXPECT_EQ(observed_.evicted, cache_.stats().evicted_blocks);
  EXPECT_GT(observed_.flushed, 100);
}

}  // namespace
}  // namespace tlm
