// What engine_bench leaves out, and how it tells tokens apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/backend/backend.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/engine_tests.h"
#include "tests/benchmarks/engine/request_run.h"

namespace tlm::bench {
namespace {

EnginePlan SmallPlan() {
  EnginePlan plan;
  plan.prompts = {2 * kBlockTokens};
  plan.decodes = {{.sequences = 1, .depth = 0}, {.sequences = 8, .depth = 0}};
  plan.decode_tokens = kBlockTokens;
  plan.load = {.requests = 3, .prompt_tokens = kBlockTokens, .output_tokens = kBlockTokens};
  plan.batch_tokens = 64;
  plan.repetitions = 1;
  return plan;
}

std::vector<std::string> Names(const std::vector<EnginePlan::TooLarge>& tests) {
  std::vector<std::string> names;
  for (const EnginePlan::TooLarge& test : tests) names.push_back(test.name);
  return names;
}

TEST(EnginePlanTest, LeavesOutTheLargestTestsUntilTheOthersFit) {
  const std::string load =
      "3 requests " + std::to_string(kBlockTokens) + "/" + std::to_string(kBlockTokens);
  const std::string tg = "tg" + std::to_string(kBlockTokens);
  const std::string pp = "pp" + std::to_string(2 * kBlockTokens);
  // 9 blocks for the requests, whose last token has a block of its own, 8 and 1 for decoding, 2 for
  // the prompt.
  for (const auto& [blocks, names] : std::vector<std::pair<int64_t, std::vector<std::string>>>{
           {9, {}},
           {8, {load}},
           {7, {load, tg + " x 8"}},
           {1, {load, tg + " x 8", pp}},
           {-5, {load, tg + " x 8", pp, tg}}}) {
    EnginePlan plan = SmallPlan();
    const std::vector<EnginePlan::TooLarge> dropped =
        plan.DropUntilFits([blocks = blocks](const BatchLimits&) { return blocks; });
    EXPECT_EQ(Names(dropped), names) << blocks;
    EXPECT_EQ(plan.empty(), blocks < 1);
    EXPECT_LE(plan.KvBlocks(), std::max<int64_t>(blocks, 1));
    for (const EnginePlan::TooLarge& test : dropped) {
      EXPECT_GT(test.needed_blocks, test.affordable_blocks);
      EXPECT_EQ(test.affordable_blocks, std::max<int64_t>(blocks, 0));
    }
  }
}

TEST(EnginePlanTest, RoomGrowsWithTheLimitsThatFall) {
  EnginePlan plan = SmallPlan();
  // Without the eight sequences there is room for the requests.
  const auto dropped = plan.DropUntilFits(
      [](const BatchLimits& limits) -> int64_t { return limits.max_sequences > 3 ? 7 : 20; });
  EXPECT_THAT(Names(dropped), testing::SizeIs(2));
  EXPECT_EQ(plan.Limits().max_sequences, 1);
}

TEST(KvRoomTest, IsWhatWeightsAndWorkspaceLeave) {
  const auto backend = CreateBackend({.kind = BackendKind::kCpu, .threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ModelChoice choice{.preset = "cs336-tinystories"};
  const BatchLimits limits = SmallPlan().Limits();
  const auto unlimited = KvRoom::Of(choice, *backend->ops, 0);
  const auto little = KvRoom::Of(choice, *backend->ops, 1);
  const auto some = KvRoom::Of(choice, *backend->ops, uint64_t{1} << 30);
  ASSERT_TRUE(unlimited.ok() && little.ok() && some.ok());
  EXPECT_EQ(unlimited->Blocks(limits), std::numeric_limits<int64_t>::max());
  EXPECT_LT(little->Blocks(limits), 0);
  const auto more =
      KvRoom::Of(choice, *backend->ops, (uint64_t{1} << 30) + 10 * some->block_bytes());
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->Blocks(limits), some->Blocks(limits) + 10);
  BatchLimits wider = limits;
  wider.max_tokens *= 64;
  EXPECT_LT(some->Blocks(wider), some->Blocks(limits));
}

// Of two requests to a model with random weights, one of `outputs` tokens each.
uint64_t Digest(int64_t outputs, bool logprobs) {
  auto backend = CreateBackend({.kind = BackendKind::kCpu, .threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const BatchLimits limits{
      .max_tokens = 16, .max_sequences = 2, .max_logits_rows = 2, .max_context = 32};
  const auto model =
      LoadBenchModel({.preset = "cs336-tinystories"}, *std::move(backend), limits, 4);
  EXPECT_TRUE(model.ok()) << model.status();
  const auto figures = RunRequests(
      *(*model)->model,
      {.max_batch_tokens = 16,
       .max_prefill_tokens = 16,
       .max_running_requests = 2,
       .max_queued_requests = 2,
       .max_queued_tokens = 64,
       .prefix_cache = false,
       .max_decode_stretch = 0},
      {.requests = 2, .prompt_tokens = 5, .output_tokens = outputs, .logprobs = logprobs});
  EXPECT_TRUE(figures.ok()) << figures.status();
  return figures->token_digest;
}

TEST(RequestRunTest, EqualTokensHaveEqualDigests) {
  EXPECT_EQ(Digest(6, false), Digest(6, false));
  EXPECT_EQ(Digest(6, true), Digest(6, true));
  EXPECT_NE(Digest(6, false), Digest(7, false));
  EXPECT_NE(Digest(6, false), Digest(6, true));
}

}  // namespace
}  // namespace tlm::bench
