// Blocks of earlier requests found again: fewer tokens computed, the same results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 512;
constexpr int32_t kNan = 17;

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int32_t> WithoutNan(int64_t tokens, uint32_t seed = 0) {
  std::vector<int32_t> prompt = Prompt(tokens, seed);
  std::replace(prompt.begin(), prompt.end(), kNan, kNan + 1);
  return prompt;
}

class EngineLoopCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<CollectingReader> Run(Request request) {
    const auto reader = bench_.Submit(std::move(request));
    bench_.StepUntilNothingCanBeDone();
    EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
    return reader;
  }
  // Generates, as alone; how many tokens were cached.
  int64_t Generate(const Request& request) {
    const auto reader = Run(request);
    EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
    return CachedOf(*reader);
  }
  static int64_t CachedOf(const CollectingReader& reader) {
    return reader.collected().starts.at(0).cached_prompt_tokens;
  }

  LoopBench bench_;
};

TEST_F(EngineLoopCacheTest, TheSamePromptIsComputedOnceButForItsEnd) {
  for (const int64_t length : {1, 63, 64, 65, 128, 129, 200}) {
    const Request request = GenerateRequest(Prompt(length, static_cast<uint32_t>(length)), 5);
    const auto first = Run(request);
    EXPECT_EQ(CachedOf(*first), 0);
    EXPECT_EQ(OnlyEnd(*first).computed_prompt_tokens, length);
    const int64_t before = bench_.stats.prefill_tokens;
    const auto second = Run(request);
    const int64_t cached = (length - 1) / 64 * 64;
    EXPECT_EQ(CachedOf(*second), cached);
    EXPECT_EQ(OnlyEnd(*second).computed_prompt_tokens, length - cached);
    EXPECT_EQ(bench_.stats.prefill_tokens - before, length - cached);
    EXPECT_EQ(OnlyEnd(*second).kv_blocks_peak, OnlyEnd(*first).kv_blocks_peak);
    EXPECT_EQ(second->collected().token_ids(), first->collected().token_ids());
    EXPECT_EQ(second->collected().token_ids(), GenerateAlone(request, kContext));
  }
}

TEST_F(EngineLoopCacheTest, SharedBeginningsAreFound) {
  const std::vector<int32_t> system = Prompt(150);
  EXPECT_EQ(Generate(GenerateRequest(Joined(system, Prompt(30, 1)), 5)), 0);
  EXPECT_EQ(Generate(GenerateRequest(Joined(system, Prompt(40, 2)), 5)), 128);
  EXPECT_EQ(bench_.stats.prefix_cache.lookups, 2);
  EXPECT_EQ(bench_.stats.prefix_cache.hit_tokens, 128);
}

TEST_F(EngineLoopCacheTest, TheNextTurnOfAChatFindsPromptAndAnswer) {
  std::vector<int32_t> chat = Prompt(70);
  int64_t computed = 0;
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const Request request = GenerateRequest(chat, 60);
    // All but the last token drawn has been computed.
    EXPECT_EQ(Generate(request), computed / 64 * 64);
    chat = Joined(chat, GenerateAlone(request, kContext));
    computed = static_cast<int64_t>(chat.size()) - 1;
    chat = Joined(chat, Prompt(20, turn));
  }
}

TEST_F(EngineLoopCacheTest, TenantsSaltsAndBypassKeepRequestsApart) {
  Request request = GenerateRequest(Prompt(130), 3);
  EXPECT_EQ(Generate(request), 0);
  request.tenant = "other";
  EXPECT_EQ(Generate(request), 0);
  request.cache.salt = "pepper";
  EXPECT_EQ(Generate(request), 0);
  request.cache.bypass = true;
  EXPECT_EQ(Generate(request), 0);
  request.cache.bypass = false;
  EXPECT_EQ(Generate(request), 128);

  Request unpublished = GenerateRequest(Prompt(130, 1), 3);
  unpublished.cache.bypass = true;
  EXPECT_EQ(Generate(unpublished), 0);
  unpublished.cache.bypass = false;
  EXPECT_EQ(Generate(unpublished), 0);
}

TEST_F(EngineLoopCacheTest, ForwardFindsWhatLiesBeforeItsFirstRow) {
  const std::vector<int32_t> prompt = Prompt(250);
  Generate(GenerateRequest(prompt, 1));
  const std::vector<std::pair<std::vector<int64_t>, int64_t>> cases = {
      {{0, 249}, 0}, {{63}, 0}, {{64}, 64}, {{130, 140}, 128}, {{191}, 128}, {{249}, 192}};
  for (const auto& [positions, cached] : cases) {
    const auto reader = Run(ForwardRequest(prompt, positions, nullptr));
    EXPECT_EQ(CachedOf(*reader), cached);
    EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, positions.back() + 1 - cached);
    const Collected collected = reader->collected();
    ASSERT_EQ(collected.rows.size(), positions.size());
    for (const LogitsRow& row : collected.rows) {
      EXPECT_EQ(row.logits, ScriptedModel::LogitsAfter(
                                std::span(prompt).first(static_cast<size_t>(row.position) + 1)));
    }
  }
}

TEST_F(EngineLoopCacheTest, ForwardPublishesToo) {
  const std::vector<int32_t> prompt = Prompt(200);
  Run(ForwardRequest(prompt, {3, 140, 150}, nullptr));
  EXPECT_EQ(Generate(GenerateRequest(prompt, 3)), 128);
}

TEST_F(EngineLoopCacheTest, ScorePublishesThePromptAndNoContinuation) {
  Request request = ScoreRequestFor(Prompt(100), {100, 1, 90});
  const auto expected = ContinuationScoresAlone(request);
  for (const int64_t cached : {0, 64}) {
    const auto reader = Run(request);
    EXPECT_EQ(CachedOf(*reader), cached);
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectScores(EntriesOf(reader->collected().scored, static_cast<int64_t>(i)), expected[i]);
    }
  }
  for (const std::vector<int32_t>& ids : request.score()->continuations) {
    EXPECT_EQ(Generate(GenerateRequest(Joined(request.prompt, ids), 3)), 64);
    bench_.loop.FlushPrefixCache();
    Run(request);
  }
}

// A cached continuation must not be overwritten by the next one.
TEST_F(EngineLoopCacheTest, ScoreLeavesCachedContinuationsAlone) {
  const Request request = ScoreRequestFor(Prompt(64), {100, 100});
  const Request chat =
      GenerateRequest(Joined(request.prompt, request.score()->continuations[0]), 40);
  Generate(chat);
  const auto expected = ContinuationScoresAlone(request);
  const auto reader = Run(request);
  EXPECT_EQ(CachedOf(*reader), 0);  // the row at 63 is wanted
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectScores(EntriesOf(reader->collected().scored, static_cast<int64_t>(i)), expected[i]);
  }
  EXPECT_EQ(Generate(chat), 128);
}

TEST_F(EngineLoopCacheTest, PromptScoresAreComputedFromTheBeginning) {
  Request request = GenerateRequest(Prompt(200), 3);
  Generate(request);
  request.generate()->score_prompt = true;
  const auto reader = Run(request);
  EXPECT_EQ(CachedOf(*reader), 0);
  EXPECT_EQ(reader->collected().scored.size(), 199);
  std::vector<SampledToken> scored;
  for (const ScoredEntry& entry : reader->collected().scored) scored.push_back(entry.token);
  ExpectScores(scored, ScoresAlone(request.prompt, 1, 0));
  EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
}

TEST_F(EngineLoopCacheTest, SeveralOutputsShareWhatIsFound) {
  Request request = GenerateRequest(Prompt(200), 70);
  request.generate()->sampling.temperature = 1.0f;
  for (const int64_t cached : {0, 192}) {
    const auto readers = bench_.SubmitOutputs(request, 3);
    bench_.Step();
    EXPECT_EQ(bench_.stats.kv_blocks_used, 3 + 3);
    bench_.StepUntilNothingCanBeDone();
    EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(CachedOf(*readers[i]), cached);
      EXPECT_EQ(OnlyEnd(*readers[i]).computed_prompt_tokens, i == 0 ? 200 - cached : 0);
      EXPECT_EQ(readers[i]->collected().token_ids(),
                GenerateAlone(OnlyOutput(request, i), kContext));
    }
  }
}

TEST_F(EngineLoopCacheTest, OfTwoThatComputeTheSameOneIsKept) {
  const Request request = GenerateRequest(Prompt(200), 40);
  const auto first = bench_.Submit(request);
  const auto second = bench_.Submit(request);
  bench_.StepUntilNothingCanBeDone();
  for (const auto& reader : {first, second}) {
    EXPECT_EQ(CachedOf(*reader), 0);
    EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
  }
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 239 / 64);
}

TEST_F(EngineLoopCacheTest, NothingOfAPoisonedRequestIsFound) {
  bench_.model.set_nan_token(kNan);
  std::vector<int32_t> poisoned = WithoutNan(200);
  poisoned[199] = kNan;
  const auto bad = Run(GenerateRequest(poisoned, 5));
  EXPECT_EQ(OnlyEnd(*bad).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  EXPECT_EQ(Generate(GenerateRequest(WithoutNan(200), 1)), 0);
}

TEST_F(EngineLoopCacheTest, OfARequestThatFailsWhatWasSoundBeforeIsKept) {
  bench_.model.set_nan_token(kNan);
  std::vector<int32_t> prompt = WithoutNan(200);
  prompt[150] = kNan;
  const auto bad = Run(ForwardRequest(prompt, {100, 150, 180}, nullptr));
  EXPECT_EQ(OnlyEnd(*bad).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(bad->collected().rows.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 1);  // before the row at 100
  EXPECT_EQ(Generate(GenerateRequest(WithoutNan(200), 1)), 64);
}

TEST_F(EngineLoopCacheTest, AFlushForgetsWhatIsKnownAndWhatIsBeingComputed) {
  Generate(GenerateRequest(Prompt(200), 3));
  const Request running = GenerateRequest(Prompt(100, 1), 200);
  const auto reader = bench_.Submit(running);
  for (int i = 0; i < 40; ++i) bench_.Step();
  EXPECT_EQ(bench_.loop.FlushPrefixCache(), 3);
  bench_.Step();
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  bench_.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(running, kContext));
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  EXPECT_EQ(Generate(GenerateRequest(Prompt(200), 3)), 0);
  EXPECT_EQ(Generate(running), 0);
  EXPECT_EQ(Generate(running), 64);
}

TEST(EngineLoopCacheOffTest, NothingIsKept) {
  LoopBench bench(SetupWith(&EngineOptions::prefix_cache, false));
  for (int i = 0; i < 2; ++i) {
    const auto reader = bench.Submit(GenerateRequest(Prompt(200), 3));
    bench.StepUntilNothingCanBeDone();
    EXPECT_EQ(reader->collected().starts[0].cached_prompt_tokens, 0);
    EXPECT_EQ(bench.stats.kv_blocks_cached, 0);
    EXPECT_EQ(bench.stats.prefix_cache.lookups, 0);
  }
  EXPECT_EQ(bench.loop.FlushPrefixCache(), 0);
}

TEST(EngineLoopCachePressureTest, APreemptedSequenceFindsItsOwnBlocksAgain) {
  LoopBench bench({.blocks = 8, .max_context = 384});
  const Request first = GenerateRequest(Prompt(120), 250);
  const Request second = GenerateRequest(Prompt(150, 1), 200);
  const auto a = bench.Submit(first);
  const auto b = bench.Submit(second);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(a->collected().token_ids(), GenerateAlone(first, 384));
  EXPECT_EQ(b->collected().token_ids(), GenerateAlone(second, 384));
  EXPECT_GT(OnlyEnd(*b).preemptions, 0);
  EXPECT_EQ(b->collected().starts[0].cached_prompt_tokens, 0);
  EXPECT_EQ(OnlyEnd(*b).computed_prompt_tokens, 150);
  EXPECT_GT(bench.stats.prefix_cache.hit_tokens, 0);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

// Full of cached blocks, the pool is as good as empty.
TEST(EngineLoopCachePressureTest, CachedBlocksMakeWay) {
  LoopBench bench({.blocks = 8});
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Request request = GenerateRequest(Prompt(300, seed), 200);
    const auto reader = bench.Submit(request);
    bench.StepUntilNothingCanBeDone();
    EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
    EXPECT_EQ(bench.stats.preemptions, 0);
  }
  EXPECT_GT(bench.stats.prefix_cache.evicted_blocks, 100);
}

}  // namespace
}  // namespace tlm
