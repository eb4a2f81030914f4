// Guessed tokens change when an output's tokens come, never which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/support/known_drafts.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 512;

KnownDrafts Oracle(int truth) { return KnownDrafts(truth, ScriptedModel::kVocabSize); }

LoopSetup Always(int max_launched = 1) {
  LoopSetup setup;
  setup.options.speculation = Speculation::kAlways;
  setup.options.max_draft_tokens = 5;
  setup.max_launched = max_launched;
  return setup;
}

// With everything that depends on the output's own tokens.
Request Sampled(int64_t prompt_tokens, int64_t max_new_tokens, uint64_t seed) {
  Request request =
      GenerateRequest(Prompt(prompt_tokens, static_cast<uint32_t>(seed)), max_new_tokens);
  SamplingParams& sampling = request.generate()->sampling;
  sampling.temperature = 0.9f;
  sampling.seed = seed;
  if (seed % 2 == 0) sampling.repetition_penalty = 1.3f;
  if (seed % 3 == 0) sampling.frequency_penalty = 0.4f;
  if (seed % 4 == 0) request.generate()->stop.ending_ids = EndingIds({3, 9});
  if (seed % 5 == 0) request.generate()->stop.min_new_tokens = max_new_tokens / 2;
  return request;
}

class DraftsTest : public ::testing::TestWithParam<std::tuple<int, int>> {  // launched, truth
 protected:
  static int max_launched() { return std::get<0>(GetParam()); }
  static int truth() { return std::get<1>(GetParam()); }
};

TEST_P(DraftsTest, TokensAreThoseWithoutGuesses) {
  KnownDrafts oracle = Oracle(truth());
  LoopBench bench(Always(max_launched()), &oracle);
  std::vector<std::pair<std::shared_ptr<CollectingReader>, std::vector<int32_t>>> all;
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Request request = Sampled(1 + 11 * static_cast<int64_t>(seed), 60, seed);
    const std::vector<int32_t> alone = GenerateAlone(request, kContext);
    oracle.Add(request.prompt, alone);
    all.emplace_back(bench.Submit(request, seed % 3 == 0 ? 3 : TokenStream::kUnbounded), alone);
    if (seed % 4 == 0) bench.Step();
  }
  bench.StepUntilNothingCanBeDone();
  for (const auto& [reader, alone] : all) {
    EXPECT_EQ(reader->collected().token_ids(), alone);
    const SpeculationCounts& counts = OnlyEnd(*reader).speculation;
    EXPECT_LE(counts.accepted, counts.drafted);
    accepted += counts.accepted;
    drafted += counts.drafted;
  }
  EXPECT_GT(drafted, 500);
  if (truth() == 100) {
    EXPECT_EQ(accepted, drafted);
  }
  if (truth() == 0) {
    EXPECT_LT(accepted * 10, drafted);
  }
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(oracle.forgotten().size(), 24);
}

INSTANTIATE_TEST_SUITE_P(Truth, DraftsTest,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values(0, 50, 90, 100)));

TEST(EngineLoopDraftsTest, RightGuessesSaveSteps) {
  KnownDrafts oracle = Oracle(100);
  LoopBench bench(Always(), &oracle);
  const Request request = GenerateRequest(Prompt(10), 61);
  oracle.Add(request.prompt, GenerateAlone(request, kContext));
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  // The prompt's step gives one, every other six.
  EXPECT_EQ(OnlyEnd(*reader).steps, 11);
  EXPECT_EQ(OnlyEnd(*reader).speculation.drafted, 50);
  EXPECT_EQ(OnlyEnd(*reader).speculation.accepted, 50);
  EXPECT_EQ(OnlyEnd(*reader).speculation.steps_saved, 50);
  EXPECT_EQ(bench.stats.decode_tokens, 60);
}

TEST(EngineLoopDraftsTest, WrongGuessesGiveTheirBlocksBack) {
  KnownDrafts oracle = Oracle(0);
  LoopSetup setup = Always();
  LoopBench bench(setup, &oracle);
  const Request request = GenerateRequest(Prompt(59), 12);
  oracle.Add(request.prompt, GenerateAlone(request, kContext));
  const auto reader = bench.Submit(request);
  bench.Step();
  bench.Step();  // positions 59 to 64, those behind 59 wrong
  EXPECT_EQ(bench.model.launches(), 2);
  EXPECT_EQ(bench.stats.kv_blocks_used, 1);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
}

TEST(EngineLoopDraftsTest, ARequestMayRefuseGuesses) {
  KnownDrafts oracle = Oracle(100);
  LoopBench bench(Always(), &oracle);
  Request request = GenerateRequest(Prompt(10), 31);
  oracle.Add(request.prompt, GenerateAlone(request, kContext));
  request.generate()->max_draft_tokens = 0;
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*reader).steps, 31);
  EXPECT_EQ(oracle.guesses(), 0);
}

TEST(EngineLoopDraftsTest, ABrokenSourceIsLeftAlone) {
  KnownDrafts oracle = Oracle(100);
  LoopBench bench(Always(), &oracle);
  const Request request = GenerateRequest(Prompt(10), 31);
  oracle.set_fails();
  const auto reader = bench.Submit(request);
  int64_t told = 0;
  while (bench.Step()) told += bench.stats.fault.ok() ? 0 : 1;
  EXPECT_EQ(told, 1);
  EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
}

TEST(EngineLoopDraftsTest, GuessesStopWhereThePoolIsFull) {
  KnownDrafts oracle = Oracle(90);
  LoopSetup setup = Always();
  setup.blocks = 6;
  LoopBench bench(setup, &oracle);
  std::vector<std::pair<std::shared_ptr<CollectingReader>, std::vector<int32_t>>> all;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Request request = Sampled(40 + 10 * static_cast<int64_t>(seed), 100, seed);
    const std::vector<int32_t> alone = GenerateAlone(request, kContext);
    oracle.Add(request.prompt, alone);
    all.emplace_back(bench.Submit(request), alone);
  }
  bench.StepUntilNothingCanBeDone();
  for (const auto& [reader, alone] : all) EXPECT_EQ(reader->collected().token_ids(), alone);
  EXPECT_GT(bench.stats.preemptions, 0);
}

}  // namespace
}  // namespace tlm
