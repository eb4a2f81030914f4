// Blocks that sequences publish, and find again.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/batching/sequence.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 1000;

std::vector<BlockId> BlocksOf(const Sequence& sequence) {
  return {sequence.blocks().begin(), sequence.blocks().end()};
}

class SequenceCacheTest : public ::testing::Test {
 protected:
  // One that has computed `tokens` tokens in blocks of the pool.
  std::unique_ptr<Sequence> Computed(Request request, int64_t tokens) {
    auto sequence = std::make_unique<Sequence>(std::move(request), 0);
    EXPECT_TRUE(sequence->Grow(pool_, tokens));
    sequence->MarkComputed(tokens);
    return sequence;
  }

  BlockPool pool_{8};
  PrefixCache cache_{pool_};
};

TEST_F(SequenceCacheTest, PublishesFullBlocksOnce) {
  const auto sequence = Computed(GenerateRequest(Prompt(200), 3), 200);
  sequence->PublishBlocks(130, cache_);
  EXPECT_EQ(cache_.size(), 2);
  sequence->PublishBlocks(150, cache_);
  EXPECT_EQ(cache_.stats().published_blocks, 2);
  sequence->PublishBlocks(200, cache_);
  EXPECT_EQ(cache_.size(), 3);
  sequence->ReleaseBlocks(pool_);
  EXPECT_EQ(pool_.idle_blocks(), 3);
  EXPECT_EQ(pool_.used_blocks(), 0);
}

TEST_F(SequenceCacheTest, PublishesNothingThatItHasNotComputed) {
  const auto sequence = Computed(GenerateRequest(Prompt(200), 3), 127);
  sequence->PublishBlocks(200, cache_);
  EXPECT_EQ(cache_.size(), 1);
  sequence->ReleaseBlocks(pool_);  // preempted before the row arrived
  sequence->PublishBlocks(200, cache_);
  EXPECT_EQ(cache_.size(), 1);
}

TEST_F(SequenceCacheTest, TakesOverBlocksThatOthersPublishedBefore) {
  const auto first = Computed(GenerateRequest(Prompt(130), 3), 130);
  const auto second = Computed(GenerateRequest(Prompt(130), 3), 130);
  const BlockId own_last = second->blocks()[2];
  first->PublishBlocks(130, cache_);
  second->PublishBlocks(130, cache_);
  EXPECT_EQ(BlocksOf(*second),
            (std::vector<BlockId>{first->blocks()[0], first->blocks()[1], own_last}));
  EXPECT_EQ(pool_.used_blocks(), 4);
  first->ReleaseBlocks(pool_);
  second->ReleaseBlocks(pool_);
  EXPECT_EQ(pool_.used_blocks(), 0);
}

TEST_F(SequenceCacheTest, StopsPublishingUntilItGivesItsBlocksBack) {
  const auto sequence = Computed(GenerateRequest(Prompt(130), 3), 130);
  sequence->StopPublishing();
  sequence->PublishBlocks(130, cache_);
  EXPECT_EQ(cache_.size(), 0);
  sequence->ReleaseBlocks(pool_);
  ASSERT_TRUE(sequence->Grow(pool_, 130));
  sequence->MarkComputed(130);
  sequence->PublishBlocks(130, cache_);
  EXPECT_EQ(cache_.size(), 2);
  sequence->ReleaseBlocks(pool_);
}

TEST_F(SequenceCacheTest, AdoptsWhatLiesBeforeTheNextWantedRow) {
  const auto publisher = Computed(GenerateRequest(Prompt(200), 3), 200);
  publisher->PublishBlocks(200, cache_);
  const auto adopted = [&](Request request) {
    Sequence sequence(std::move(request), 0);
    EXPECT_EQ(sequence.CachedTokens(cache_), sequence.CachedTokens(cache_));
    const int64_t found = sequence.CachedTokens(cache_);
    sequence.AdoptPrefix(cache_);
    EXPECT_EQ(sequence.computed(), found);
    EXPECT_EQ(static_cast<int64_t>(sequence.blocks().size()), found / 64);
    sequence.ReleaseBlocks(pool_);
    return found;
  };
  EXPECT_EQ(adopted(GenerateRequest(Prompt(64), 3)), 0);
  EXPECT_EQ(adopted(GenerateRequest(Prompt(65), 3)), 64);
  EXPECT_EQ(adopted(GenerateRequest(Prompt(192), 3)), 128);
  EXPECT_EQ(adopted(GenerateRequest(Prompt(300), 3)), 192);
  EXPECT_EQ(adopted(GenerateRequest(Prompt(200, 1), 3)), 0);
  EXPECT_EQ(adopted(ForwardRequest(Prompt(200), {0}, UnreadStream())), 0);
  EXPECT_EQ(adopted(ForwardRequest(Prompt(200), {128, 199}, UnreadStream())), 128);
  EXPECT_EQ(adopted(ScoreRequestFor(Prompt(128), {100})), 64);
  EXPECT_EQ(adopted(ScoreRequestFor(Prompt(129), {100})), 128);
  Request request = GenerateRequest(Prompt(200), 3);
  request.cache.bypass = true;
  EXPECT_EQ(adopted(request), 0);
  request.cache.bypass = false;
  request.generate()->score_prompt = true;
  EXPECT_EQ(adopted(request), 0);
  publisher->ReleaseBlocks(pool_);
}

TEST_F(SequenceCacheTest, AContinuationIsNeitherAdoptedNorPublished) {
  Request request = ScoreRequestFor(Prompt(70), {1, 100});
  std::vector<int32_t> tokens = request.prompt;
  const std::vector<int32_t>& ids = request.score()->continuations[1];
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const auto publisher = Computed(GenerateRequest(tokens, 3), 170);
  publisher->PublishBlocks(170, cache_);
  EXPECT_EQ(cache_.size(), 2);
  Sequence sequence(std::move(request), 1);
  ASSERT_TRUE(sequence.Grow(pool_, sequence.cache_tokens()));
  sequence.MarkComputed(70);
  EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  sequence.MarkComputed(99);
  sequence.PublishBlocks(169, cache_);
  EXPECT_EQ(sequence.blocks()[0], publisher->blocks()[0]);
  EXPECT_NE(sequence.blocks()[1], publisher->blocks()[1]);
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  sequence.ReleaseBlocks(pool_);  // preempted in the middle of it
  sequence.AdoptPrefix(cache_);
  EXPECT_EQ(sequence.computed(), 64);
  sequence.ReleaseBlocks(pool_);
  publisher->ReleaseBlocks(pool_);
}

TEST_F(SequenceCacheTest, CountsPromptTokensOnceHoweverTheyWereComputed) {
  Sequence sequence(GenerateRequest(Prompt(200), 3), 0);
  sequence.AdoptPrefix(cache_);
  ASSERT_TRUE(sequence.Grow(pool_, 200));
  sequence.MarkStarted(absl::UnixEpoch());
  sequence.MarkComputed(50);
  sequence.ReleaseBlocks(pool_);
  const auto publisher = Computed(GenerateRequest(Prompt(200), 3), 130);
  publisher->PublishBlocks(130, cache_);
  sequence.AdoptPrefix(cache_);
  EXPECT_EQ(sequence.computed(), 128);
  EXPECT_EQ(sequence.cached_prompt_tokens(), 0);  // at its first step
  ASSERT_TRUE(sequence.Grow(pool_, 200));
  sequence.MarkComputed(72);
  sequence.ReleaseBlocks(pool_);
  ASSERT_TRUE(sequence.Grow(pool_, 200));
  sequence.MarkComputed(200);
  const StreamEnd end = sequence.End(absl::OkStatus(), Finish(), absl::UnixEpoch());
  EXPECT_EQ(end.computed_prompt_tokens, 50 + 72);
  EXPECT_EQ(end.kv_blocks_peak, 4);
  sequence.ReleaseBlocks(pool_);
  publisher->ReleaseBlocks(pool_);
}

TEST_F(SequenceCacheTest, ABranchPublishesBehindWhatItShares) {
  Sequence parent(ThreeOutputs(130), 0);
  ASSERT_TRUE(parent.Grow(pool_, 130));
  parent.MarkComputed(130);
  parent.PublishBlocks(130, cache_);
  const auto branches = parent.TakeBranches();
  ASSERT_TRUE(branches[0]->ShareBlocks(parent, pool_));
  for (int32_t token = 0; token < 62; ++token) branches[0]->Append(token, kContext);
  ASSERT_TRUE(branches[0]->Grow(pool_, 192));
  branches[0]->MarkComputed(62);
  branches[0]->PublishBlocks(192, cache_);
  EXPECT_EQ(cache_.size(), 3);
  EXPECT_EQ(cache_.stats().published_blocks, 3);
  branches[0]->ReleaseBlocks(pool_);
  parent.ReleaseBlocks(pool_);
}

TEST_F(SequenceCacheTest, ABranchOfAPreemptedParentSharesNothing) {
  Sequence parent(ThreeOutputs(130), 0);
  ASSERT_TRUE(parent.Grow(pool_, 130));
  parent.MarkComputed(130);
  parent.ReleaseBlocks(pool_);
  const auto branches = parent.TakeBranches();
  EXPECT_FALSE(branches[0]->ShareBlocks(parent, pool_));
  EXPECT_EQ(branches[0]->computed(), 0);
  EXPECT_EQ(pool_.used_blocks(), 0);
}

}  // namespace
}  // namespace tlm
