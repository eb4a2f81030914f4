// Guessed tokens change when an output's tokens come, never which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

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
  Readers readers;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Request request = Sampled(1 + 11 * static_cast<int64_t>(seed), 60, seed);
    oracle.Add(request.prompt, GenerateAlone(request, kContext));
    readers.push_back(bench.Submit(request, seed % 3 == 0 ? 3 : TokenStream::kUnbounded));
    if (seed % 4 == 0) bench.Step();
  }
  bench.Finish();
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (const Reader& reader : readers) {
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
  EXPECT_EQ(oracle.forgotten().size(), 24);
}

INSTANTIATE_TEST_SUITE_P(Truth, DraftsTest,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values(0, 50, 90, 100)));

// One greedy request, whose tokens the source of drafts knows.
class EngineLoopDraftsTest : public ::testing::Test {
 protected:
  LoopBench& Start(int truth, const Request& request) {
    oracle_.emplace(Oracle(truth));
    bench_.emplace(Always(), &*oracle_);
    oracle_->Add(request.prompt, GenerateAlone(request, kContext));
    reader_ = bench_->Submit(request);
    return *bench_;
  }

  std::optional<KnownDrafts> oracle_;
  std::optional<LoopBench> bench_;
  Reader reader_;
};

TEST_F(EngineLoopDraftsTest, RightGuessesSaveSteps) {
  LoopBench& bench = Start(100, GenerateRequest(Prompt(10), 61));
  bench.Finish();
  // The prompt's step gives one, every other six.
  EXPECT_EQ(OnlyEnd(*reader_).steps, 11);
  EXPECT_EQ(OnlyEnd(*reader_).speculation.drafted, 50);
  EXPECT_EQ(OnlyEnd(*reader_).speculation.accepted, 50);
  EXPECT_EQ(OnlyEnd(*reader_).speculation.steps_saved, 50);
  EXPECT_EQ(bench.stats.decode_tokens, 60);
}

TEST_F(EngineLoopDraftsTest, WrongGuessesGiveTheirBlocksBack) {
  LoopBench& bench = Start(0, GenerateRequest(Prompt(59), 12));
  bench.Step();
  bench.Step();  // positions 59 to 64, those after 59 wrong
  EXPECT_EQ(bench.model.launches(), 2);
  EXPECT_EQ(bench.stats.kv_blocks_used, 1);
  bench.Finish();
}

TEST_F(EngineLoopDraftsTest, ARequestMayRefuseGuesses) {
  Request request = GenerateRequest(Prompt(10), 31);
  request.generate()->max_draft_tokens = 0;
  Start(100, request).Finish();
  EXPECT_EQ(OnlyEnd(*reader_).steps, 31);
  EXPECT_EQ(oracle_->guesses(), 0);
}

TEST_F(EngineLoopDraftsTest, ABrokenSourceIsLeftAlone) {
  LoopBench& bench = Start(100, GenerateRequest(Prompt(10), 31));
  oracle_->set_fails();
  int64_t told = 0;
  while (bench.Step()) told += bench.stats.fault.ok() ? 0 : 1;
  EXPECT_EQ(told, 1);
  bench.Finish();
}

TEST_F(EngineLoopDraftsTest, GuessesStopWhereThePoolIsFull) {
  KnownDrafts oracle = Oracle(90);
  LoopSetup setup = Always();
  setup.blocks = 6;
  LoopBench bench(setup, &oracle);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Request request = Sampled(40 + 10 * static_cast<int64_t>(seed), 100, seed);
    oracle.Add(request.prompt, GenerateAlone(request, kContext));
    bench.Submit(request);
  }
  bench.Finish();
  EXPECT_GT(bench.stats.preemptions, 0);
}

}  // namespace
}  // namespace tlm
