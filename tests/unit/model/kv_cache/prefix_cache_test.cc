#include "model/kv_cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "model/ops/ops.h"

namespace tlm {
namespace {

// A chain of blocks, one for each number: the tokens of a block depend on its number alone.
struct Chain {
  explicit Chain(const std::vector<int>& numbers, std::string_view tenant = "",
                 std::string_view salt = "") {
    BlockHash hash = RootHash(tenant, salt);
    for (const int number : numbers) {
      for (int i = 0; i < kBlockTokens; ++i) tokens.push_back(1000 * number + i);
      hash = ChildHash(hash, std::span(tokens).last(kBlockTokens));
      hashes.push_back(hash);
    }
  }

  std::vector<BlockHash> hashes;
  std::vector<int32_t> tokens;
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(int64_t blocks = 8) : pool_(blocks) {
    cache_ = std::make_unique<PrefixCache>(pool_);
  }

  std::vector<BlockId> Take(int64_t count) {
    std::vector<BlockId> blocks;
    EXPECT_TRUE(pool_.Allocate(count, &blocks));
    return blocks;
  }

  std::vector<BlockId> Match(const Chain& chain) {
    std::vector<BlockId> blocks;
    const int64_t matched = cache_->Match(chain.hashes, chain.tokens, &blocks);
    EXPECT_EQ(matched, static_cast<int64_t>(blocks.size()));
    return blocks;
  }

  BlockId Publish(const Chain& chain, size_t index, BlockId parent, BlockId block) {
    const size_t first_token = index * kBlockTokens;
    return cache_->Publish({}, parent, chain.hashes[index],
                           std::span(chain.tokens).subspan(first_token, kBlockTokens), block);
  }

  // Publishes one after another, beginning with block number `first`.
  void Publish(const Chain& chain, std::vector<BlockId>* blocks, size_t first = 0) {
    for (size_t i = first; i < blocks->size(); ++i) {
      (*blocks)[i] = Publish(chain, i, i == 0 ? kNoBlock : (*blocks)[i - 1], (*blocks)[i]);
    }
  }

  void Release(const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) pool_.Release(block);
  }

  // Computes and publishes the chain, then lets go of it.
  std::vector<BlockId> Leave(const Chain& chain) {
    std::vector<BlockId> blocks = Match(chain);
    const size_t matched = blocks.size();
    for (const BlockId block : Take(chain.hashes.size() - matched)) blocks.push_back(block);
    Publish(chain, &blocks, matched);
    Release(blocks);
    return blocks;
  }

  // How many blocks of it are known.
  size_t Known(const Chain& chain) {
    const std::vector<BlockId> blocks = Match(chain);
    Release(blocks);
    return blocks.size();
  }

  BlockPool pool_;
  std::unique_ptr<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, PublishingAgainChangesNothing) {
  const Chain chain({1, 2});
  std::vector<BlockId> blocks = Take(2);
  const std::vector<BlockId> before = blocks;
  Publish(chain, &blocks);
  Publish(chain, &blocks);
  EXPECT_EQ(blocks, before);
  EXPECT_EQ(pool_.users(blocks[0]), 1);
  EXPECT_EQ(cache_->stats().published_blocks, 2);
}

TEST_F(PrefixCacheTest, TheBlockGivenUpStaysWithItsOtherUsers) {
  const Chain chain({1});
  const std::vector<BlockId> canonical = Leave(chain);
  std::vector<BlockId> shared = Take(1);
  const BlockId own = shared[0];
  pool_.AddReference(own);
  Publish(chain, &shared);
  EXPECT_EQ(shared, canonical);
  EXPECT_EQ(pool_.users(own), 1);
}

TEST_F(PrefixCacheTest, TenantsAndSaltsNeverMeet) {
  Leave(Chain({1, 2}, "acme", "s"));
  EXPECT_EQ(Known(Chain({1, 2}, "acme", "s")), 2u);
  for (const auto& [tenant, salt] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"acme", ""},
                                                        {"", "s"},
                                                        {"acmes", ""},
                                                        {"", "acmes"},
                                                        {"acm", "es"},
                                                        {"s", "acme"},
                                                        {"acme", std::string("s\0", 2)},
                                                        {"Acme", "s"}}) {
    EXPECT_EQ(Known(Chain({1, 2}, tenant, salt)), 0u) << tenant << "/" << salt;
  }
}

TEST_F(PrefixCacheTest, AHashIsNotBelieved) {
  Leave(Chain({1, 2, 3}));
  Chain liar({1, 7, 8});
  liar.hashes = Chain({1, 2, 3}).hashes;
  EXPECT_EQ(Known(liar), 1u);
  liar.hashes[0] = Chain({1, 2}).hashes[1];
  EXPECT_EQ(Known(liar), 0u);
}

TEST_F(PrefixCacheTest, OneTokenThatDiffersIsAMiss) {
  Leave(Chain({1}));
  for (const size_t at : {0, kBlockTokens - 1}) {
    Chain other({1});
    ++other.tokens[at];
    EXPECT_EQ(Known(other), 0u);
  }
}

TEST_F(PrefixCacheTest, ABlockMustFollowTheOneMatchedBefore) {
  Leave(Chain({1, 2}));
  Chain second({2});
  second.hashes[0] = Chain({1, 2}).hashes[1];
  EXPECT_EQ(Known(second), 0u);
  Leave(Chain({3}));
  Chain other({3, 2});
  other.hashes[1] = second.hashes[0];
  EXPECT_EQ(Known(other), 1u);
}

TEST_F(PrefixCacheTest, OfTwoContentsWithOneHashTheFirstStays) {
  const std::vector<BlockId> first = Leave(Chain({1}));
  Chain collision({2});
  collision.hashes = Chain({1}).hashes;
  const BlockId block = Take(1)[0];
  EXPECT_EQ(Publish(collision, 0, kNoBlock, block), block);
  EXPECT_EQ(Known(collision), 0u);
  EXPECT_EQ(Match(Chain({1})), first);
  EXPECT_EQ(pool_.users(block), 1);
}

TEST_F(PrefixCacheTest, CountsWholeBlocksAskedForAndFound) {
  Leave(Chain({1, 2}));
  const PrefixCacheStats before = cache_->stats();
  Known(Chain({1, 2, 3}));
  Known(Chain({4}));
  EXPECT_EQ(cache_->stats().lookups - before.lookups, 2);
  EXPECT_EQ(cache_->stats().queried_tokens - before.queried_tokens, 4 * kBlockTokens);
  EXPECT_EQ(cache_->stats().hit_tokens - before.hit_tokens, 2 * kBlockTokens);
}

TEST_F(PrefixCacheTest, ALookupOnlyCounts) {
  const std::vector<BlockId> left = Leave(Chain({1, 2}));
  const PrefixCacheStats before = cache_->stats();
  const Chain chain({1, 2, 3});
  EXPECT_EQ(cache_->Lookup(chain.hashes, chain.tokens), 2);
  EXPECT_EQ(cache_->Lookup({}, {}), 0);
  EXPECT_EQ(pool_.users(left[0]), 0);
  EXPECT_EQ(cache_->stats().lookups, before.lookups);
}

TEST_F(PrefixCacheTest, ThePoolOutlivesTheCache) {
  Leave(Chain({1, 2}));
  const std::vector<BlockId> used = Match(Chain({1}));
  cache_ = nullptr;
  EXPECT_EQ(pool_.free_blocks(), 7);
  Release(used);
  EXPECT_EQ(Take(8).size(), 8u);
}

TEST(BlockHashTest, IsTheBeginningOfASha256) {
  // printf 'r\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' | sha256sum
  const BlockHash root = RootHash("", "");
  EXPECT_EQ(root[0], 0xbfd800033f0b70bbu);
  EXPECT_EQ(root[1], 0x607cba62f11b554au);
  std::vector<int32_t> tokens(kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  const BlockHash child = ChildHash(root, tokens);
  EXPECT_NE(child, root);
  EXPECT_NE(child, ChildHash(child, tokens));
  tokens[63] = -1;
  EXPECT_NE(child, ChildHash(root, tokens));
}

TEST(PrefixCacheDeathTest, PublishingAFreeBlockIsABrokenPromise) {
  BlockPool pool(2);
  PrefixCache cache(pool);
  const Chain chain({1});
  EXPECT_DEATH(cache.Publish({}, kNoBlock, chain.hashes[0], chain.tokens, 0), "check");
}

}  // namespace
}  // namespace tlm
