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
  Reader RunAsAlone(const Request& request) {
    const Reader reader = bench_.Submit(request);
    bench_.StepUntilNothingCanBeDone();
    bench_.ExpectAsAlone(reader);
    EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
    return reader;
  }
  // As alone; how many tokens were cached.
  int64_t Generate(const Request& request) { return CachedOf(*RunAsAlone(request)); }
  // A request with a bad row, which ends it.
  Reader RunPoisoned(Request request) {
    bench_.model.set_nan_token(kNan);
    const Reader reader = bench_.Submit(std::move(request));
    bench_.StepUntilNothingCanBeDone();
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
    return reader;
  }
  static int64_t CachedOf(const CollectingReader& reader) {
    return reader.collected().starts.at(0).cached_prompt_tokens;
  }

  LoopBench bench_;
};

TEST_F(EngineLoopCacheTest, TheSamePromptIsComputedOnceButForItsEnd) {
  for (const int64_t length : {1, 63, 64, 65, 128, 129, 200}) {
    const Request request = GenerateRequest(Prompt(length, static_cast<uint32_t>(length)), 5);
    const Reader first = RunAsAlone(request);
    EXPECT_EQ(CachedOf(*first), 0);
    EXPECT_EQ(OnlyEnd(*first).computed_prompt_tokens, length);
    const int64_t before = bench_.stats.prefill_tokens;
    const Reader second = RunAsAlone(request);
    const int64_t cached = (length - 1) / 64 * 64;
    EXPECT_EQ(CachedOf(*second), cached);
    EXPECT_EQ(OnlyEnd(*second).computed_prompt_tokens, length - cached);
    EXPECT_EQ(bench_.stats.prefill_tokens - before, length - cached);
    EXPECT_EQ(OnlyEnd(*second).kv_blocks_peak, OnlyEnd(*first).kv_blocks_peak);
  }
  EXPECT_EQ(bench_.stats.prefix_cache.lookups, 2 * 7);
  EXPECT_EQ(bench_.stats.prefix_cache.hit_tokens, 64 + 64 + 128 + 192);
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

TEST_F(EngineLoopCacheTest, ForwardPublishesToo) {
  const std::vector<int32_t> prompt = Prompt(200);
  RunAsAlone(ForwardRequest(prompt, {3, 140, 150}, nullptr));
  EXPECT_EQ(Generate(GenerateRequest(prompt, 3)), 128);
}

// A cached continuation must not be overwritten by the next one.
TEST_F(EngineLoopCacheTest, ScoreLeavesCachedContinuationsAlone) {
  const Request request = ScoreRequestFor(Prompt(64), {100, 100});
  const Request chat =
      GenerateRequest(Joined(request.prompt, request.score()->continuations[0]), 40);
  Generate(chat);
  EXPECT_EQ(CachedOf(*RunAsAlone(request)), 0);  // the row at 63 is wanted
  EXPECT_EQ(Generate(chat), 128);
}

TEST_F(EngineLoopCacheTest, SeveralOutputsShareWhatIsFound) {
  Request request = GenerateRequest(Prompt(200), 70);
  request.generate()->sampling.temperature = 1.0f;
  for (const int64_t cached : {0, 192}) {
    const Readers readers = bench_.SubmitOutputs(request, 3);
    bench_.Step();
    EXPECT_EQ(bench_.stats.kv_blocks_used, 3 + 3);
    bench_.Finish();
    for (const Reader& reader : readers) {
      EXPECT_EQ(CachedOf(*reader), cached);
      EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, reader == readers[0] ? 200 - cached : 0);
    }
  }
}

TEST_F(EngineLoopCacheTest, OfARequestThatFailsWhatWasSoundBeforeIsKept) {
  std::vector<int32_t> prompt = WithoutNan(200);
  prompt[199] = kNan;
  RunPoisoned(GenerateRequest(prompt, 5));
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  prompt[150] = kNan;
  const Reader bad = RunPoisoned(ForwardRequest(prompt, {100, 150, 180}, nullptr));
  EXPECT_EQ(bad->collected().rows.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 1);  // before the row at 100
  EXPECT_EQ(Generate(GenerateRequest(WithoutNan(200), 1)), 64);
}

TEST_F(EngineLoopCacheTest, AFlushForgetsWhatIsKnownAndWhatIsBeingComputed) {
  Generate(GenerateRequest(Prompt(200), 3));
  const Request running = GenerateRequest(Prompt(100, 1), 200);
  bench_.Submit(running);
  for (int i = 0; i < 40; ++i) bench_.Step();
  EXPECT_EQ(bench_.loop.FlushPrefixCache(), 3);
  bench_.Step();
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  bench_.Finish();
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

}  // namespace
}  // namespace tlm
