#include "server/speculation/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "model/base/errors.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/ops.h"
#include "model/sampling/sampler.h"
#include "model/transformer_lm/transformer_lm.h"
#include "tests/support/random_model.h"
#include "tests/support/scripted_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr BatchLimits kLimits{
    .max_tokens = 64, .max_sequences = 8, .max_logits_rows = 8, .max_context = 512};

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  for (int32_t& token : tokens) token = (token * 7 + token / 13) % ScriptedModel::kVocabSize;
  return tokens;
}

// A sequence of a target model that computes as the scripted draft model does.
struct Output {
  std::vector<int32_t> tokens;
  SamplingParams sampling;
  TokenHistory history = {};
  uint32_t index = 0;

  // The target's next tokens.
  std::vector<int32_t> Next(int64_t count) const {
    Sampler sampler;
    std::vector<int32_t> all = tokens;
    for (int64_t i = 0; i < count; ++i) {
      const auto token =
          sampler.Sample(ScriptedModel::LogitsAfter(all), sampling, history,
                         {.output_index = index, .position = all.size()}, LogprobOptions());
      all.push_back(token.value().id);
    }
    return {all.begin() + std::ssize(tokens), all.end()};
  }
  void Append(std::span<const int32_t> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
};

Output SampledOutput(int64_t tokens, uint64_t seed, uint32_t index = 0) {
  return {.tokens = Tokens(tokens, static_cast<int32_t>(seed)),
          .sampling = {.temperature = 1.0f, .seed = seed},
          .index = index};
}

Guess GuessOf(int64_t sequence, const Output& output, int64_t max_tokens) {
  return {.sequence = sequence,
          .tokens = output.tokens,
          .max_tokens = max_tokens,
          .sampling = &output.sampling,
          .history = &output.history,
          .output_index = output.index};
}

class DraftModelTest : public ::testing::Test {
 protected:
  void Make(const BatchLimits& limits, int64_t blocks, int64_t max_prefill_tokens) {
    draft_.reset();
    scripted_.emplace(limits, blocks);
    scripted_->set_on_forward([this](const Batch& batch) {
      computed_.push_back(batch.tokens());
      sequences_.push_back(batch.sequences);
    });
    draft_.emplace(*scripted_, max_prefill_tokens);
  }
  void SetUp() override { Make(kLimits, 64, 1000); }

  std::vector<int32_t> Propose(int64_t sequence, const Output& output, int64_t max_tokens) {
    Guess guess = GuessOf(sequence, output, max_tokens);
    EXPECT_THAT(draft_->Propose({&guess, 1}), IsOk());
    return guess.draft;
  }
  int64_t Lag(int64_t sequence, const Output& output) const {
    return draft_->Lag(sequence, output.tokens);
  }
  // Of all batches since the last call.
  int64_t TakeComputed() {
    const int64_t tokens = std::accumulate(computed_.begin(), computed_.end(), int64_t{0});
    computed_.clear();
    sequences_.clear();
    return tokens;
  }

  std::optional<ScriptedModel> scripted_;
  std::optional<DraftModel> draft_;
  std::vector<int64_t> computed_;   // tokens, by batch
  std::vector<int64_t> sequences_;  // by batch
};

TEST_F(DraftModelTest, GuessesWhatTheSameModelDraws) {
  Output greedy{.tokens = Tokens(100), .sampling = {.temperature = 0.0f}};
  EXPECT_EQ(Propose(1, greedy, 7), greedy.Next(7));
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const Output sampled = SampledOutput(70, seed, /*index=*/static_cast<uint32_t>(seed));
    EXPECT_EQ(Propose(10 + static_cast<int64_t>(seed), sampled, 5), sampled.Next(5));
  }
}

TEST_F(DraftModelTest, GoesOnBehindAcceptedTokens) {
  Output output = SampledOutput(100, 5);
  EXPECT_EQ(Lag(1, output), 100);
  Propose(1, output, 4);
  EXPECT_EQ(TakeComputed(), 100 + 3);
  output.Append(output.Next(5));  // the draft and one more
  EXPECT_EQ(Lag(1, output), 2);
  EXPECT_EQ(Propose(1, output, 4), output.Next(4));
  EXPECT_EQ(TakeComputed(), 2 + 3);
  EXPECT_EQ(Lag(1, output), 1);  // none came: the last one's logits are computed again
  EXPECT_EQ(Propose(1, output, 2), output.Next(2));
  EXPECT_EQ(TakeComputed(), 1 + 1);
}

TEST_F(DraftModelTest, ComputesAgainWhatWasRejected) {
  Output output = SampledOutput(60, 6);
  std::vector<int32_t> draft = Propose(1, output, 9);
  EXPECT_EQ(draft_->used_blocks(), 2);
  TakeComputed();
  // Two are right, then another token.
  draft.resize(3);
  draft[2] = (draft[2] + 1) % ScriptedModel::kVocabSize;
  output.Append(draft);
  EXPECT_EQ(Lag(1, output), 1);
  EXPECT_EQ(Propose(1, output, 1), output.Next(1));
  EXPECT_EQ(TakeComputed(), 1);
  EXPECT_EQ(draft_->used_blocks(), 1);  // that of positions 64 and on was given back
}

TEST_F(DraftModelTest, SequencesOfDifferentProgressShareBatches) {
  std::deque<Output> outputs;
  for (const int64_t tokens : {1, 30, 64, 65, 100}) {
    outputs.push_back(SampledOutput(tokens, static_cast<uint64_t>(tokens)));
  }
  Propose(2, outputs[2], 3);
  outputs[2].Append(outputs[2].Next(1));
  TakeComputed();
  std::vector<Guess> guesses;
  for (int64_t i = 0; i < std::ssize(outputs); ++i) {
    guesses.push_back(GuessOf(i, outputs[static_cast<size_t>(i)], 2 + i % 3));
  }
  EXPECT_THAT(draft_->Propose(guesses), IsOk());
  for (const Guess& guess : guesses) {
    EXPECT_EQ(guess.draft, outputs[static_cast<size_t>(guess.sequence)].Next(guess.max_tokens))
        << guess.sequence;
  }
  EXPECT_GE(*std::ranges::max_element(sequences_), 3);
  // The prompts' 197 tokens take four batches, the last of them have two more rounds at most.
  EXPECT_LE(std::ssize(computed_), 6);
}

TEST_F(DraftModelTest, JobsKnowTheGuessesBeforeThem) {
  const Output output = SampledOutput(10, 3, /*index=*/2);
  std::vector<std::vector<int32_t>> drafts;
  std::vector<uint64_t> positions;
  scripted_->set_on_forward([&](const Batch& batch) {
    for (const SamplingJob& job : batch.jobs) {
      drafts.emplace_back(job.draft.begin(), job.draft.end());
      positions.push_back(job.key.position);
      EXPECT_EQ(job.key.output_index, 2u);
      EXPECT_EQ(job.params, &output.sampling);
      EXPECT_EQ(job.history, &output.history);
    }
  });
  const std::vector<int32_t> draft = Propose(1, output, 3);
  EXPECT_THAT(drafts,
              ElementsAre(IsEmpty(), ElementsAre(draft[0]), ElementsAre(draft[0], draft[1])));
  EXPECT_THAT(positions, ElementsAre(10, 11, 12));
}

TEST_F(DraftModelTest, LongPromptsAreComputedOverSeveralCalls) {
  Make(kLimits, 64, /*max_prefill_tokens=*/100);
  const Output longer = SampledOutput(250, 1);
  const Output shorter = SampledOutput(30, 2);
  std::vector<Guess> guesses{GuessOf(1, longer, 3), GuessOf(2, shorter, 3)};
  EXPECT_THAT(draft_->Propose(guesses), IsOk());
  EXPECT_THAT(guesses[0].draft, IsEmpty());
  EXPECT_EQ(guesses[1].draft, shorter.Next(3));
  EXPECT_EQ(Lag(1, longer), 250 - (100 - 29));
  TakeComputed();
  EXPECT_THAT(Propose(1, longer, 3), IsEmpty());
  EXPECT_EQ(TakeComputed(), 100);
  EXPECT_EQ(Propose(1, longer, 3), longer.Next(3));
  EXPECT_EQ(TakeComputed(), 250 - 171 + 2);
}

TEST_F(DraftModelTest, AFullPoolForgetsTheOldest) {
  Make(kLimits, /*blocks=*/4, 1000);
  const Output a = SampledOutput(64, 1);
  const Output b = SampledOutput(100, 2);
  const Output c = SampledOutput(70, 3);
  Propose(1, a, 1);
  Propose(2, b, 1);
  Propose(1, a, 1);
  EXPECT_EQ(draft_->used_blocks(), 3);
  EXPECT_EQ(Propose(3, c, 3), c.Next(3));
  EXPECT_EQ(Lag(2, b), 100);
  EXPECT_EQ(Lag(1, a), 1);
  EXPECT_EQ(draft_->used_blocks(), 3);
}

TEST_F(DraftModelTest, WhatDoesNotFitGuessesLessOrNothing) {
  Make(kLimits, /*blocks=*/3, 1000);
  const Output a = SampledOutput(62, 1);
  const Output b = SampledOutput(100, 2);
  const Output huge = SampledOutput(200, 3);
  // The draft is cut at the end of the last block.
  std::vector<Guess> guesses{GuessOf(1, a, 5), GuessOf(2, b, 5), GuessOf(3, huge, 5)};
  Propose(2, b, 1);
  EXPECT_THAT(draft_->Propose(guesses), IsOk());
  EXPECT_EQ(guesses[1].draft, b.Next(5));
  EXPECT_EQ(guesses[0].draft, a.Next(3));
  EXPECT_THAT(guesses[2].draft, IsEmpty());
  EXPECT_EQ(draft_->used_blocks(), 3);
  // It costs nobody a block.
  EXPECT_THAT(Propose(3, huge, 1), IsEmpty());
  EXPECT_EQ(Lag(1, a), 1);
  EXPECT_EQ(Lag(2, b), 1);
}

TEST_F(DraftModelTest, StopsAtTheEndOfItsContext) {
  Make({.max_tokens = 64, .max_sequences = 8, .max_logits_rows = 8, .max_context = 70}, 64, 1000);
  Output output = SampledOutput(67, 4);
  EXPECT_EQ(Propose(1, output, 10), output.Next(3));
  EXPECT_EQ(draft_->used_blocks(), 2);
  output.Append(output.Next(3));
  EXPECT_THAT(Propose(1, output, 10), IsEmpty());
  EXPECT_EQ(draft_->used_blocks(), 0);  // of no use any more
  output.Append(Tokens(100));
  EXPECT_THAT(Propose(1, output, 10), IsEmpty());
}

TEST_F(DraftModelTest, AFaultForgetsEverything) {
  const Output a = SampledOutput(10, 1);
  const Output b = SampledOutput(20, 2);
  Propose(1, a, 2);
  std::vector<Guess> guesses{GuessOf(1, a, 4), GuessOf(2, b, 4)};
  int64_t forwards = 0;
  scripted_->set_on_forward([&](const Batch&) {
    if (++forwards == 2) scripted_->FailOnce(Internal("the device is gone"));
  });
  EXPECT_THAT(draft_->Propose(guesses),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("is gone")));
  EXPECT_EQ(forwards, 2);
  EXPECT_THAT(guesses[0].draft, IsEmpty());
  EXPECT_THAT(guesses[1].draft, IsEmpty());
  EXPECT_EQ(draft_->used_blocks(), 0);
  EXPECT_EQ(Lag(1, a), 10);
  EXPECT_THAT(draft_->Propose(guesses), IsOk());
  EXPECT_EQ(guesses[0].draft, a.Next(4));
  EXPECT_EQ(guesses[1].draft, b.Next(4));
}

TEST_F(DraftModelTest, AJobThatFailsEndsItsOwnDraft) {
  Output a{.tokens = Tokens(10), .sampling = {.temperature = 0.0f}};
  const Output b = SampledOutput(20, 2);
  scripted_->set_nan_token(a.Next(2)[1]);
  std::vector<Guess> guesses{GuessOf(1, a, 5), GuessOf(2, b, 2)};
  EXPECT_THAT(draft_->Propose(guesses), IsOk());
  EXPECT_EQ(guesses[0].draft, a.Next(2));
  EXPECT_EQ(guesses[1].draft, b.Next(2));
}

TEST_F(DraftModelTest, ForgottenSequencesHoldNoBlocks) {
  const Output output = SampledOutput(130, 1);
  Propose(1, output, 2);
  EXPECT_EQ(draft_->used_blocks(), 3);
  draft_->Forget(1);
  draft_->Forget(1);
  EXPECT_EQ(draft_->used_blocks(), 0);
  EXPECT_EQ(Lag(1, output), 130);
}

// Many sequences, in every order, accepted and rejected drafts, in a pool that is too small for
// them: a guess is always what the same model draws.
TEST_F(DraftModelTest, GuessesAreRightWhateverCameBefore) {
  Make({.max_tokens = 48, .max_sequences = 3, .max_logits_rows = 3, .max_context = 300}, 11, 90);
  std::mt19937 random(7);
  const auto below = [&random](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(limit));
  };
  std::map<int64_t, Output> outputs;
  int64_t guessed = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t added = below(8);
    outputs.try_emplace(added, SampledOutput(1 + below(200), static_cast<uint64_t>(i)));
    std::vector<Guess> guesses;
    for (const auto& [sequence, output] : outputs) {
      if (below(3) > 0) guesses.push_back(GuessOf(sequence, output, 1 + below(6)));
    }
    std::ranges::shuffle(guesses, random);
    ASSERT_THAT(draft_->Propose(guesses), IsOk());
    for (const Guess& guess : guesses) {
      ASSERT_LE(std::ssize(guess.draft), guess.max_tokens);
      Output& output = outputs.at(guess.sequence);
      ASSERT_EQ(guess.draft, output.Next(std::ssize(guess.draft)));
      guessed += std::ssize(guess.draft);
      // Some tokens as guessed, some others.
      std::vector<int32_t> next = output.Next(1 + below(6));
      if (below(2) == 0) next.back() = static_cast<int32_t>(below(ScriptedModel::kVocabSize));
      output.Append(next);
    }
    if (const int64_t ended = below(8); outputs.erase(ended) > 0) draft_->Forget(ended);
  }
  EXPECT_GT(guessed, 300);
  for (const auto& [sequence, output] : outputs) draft_->Forget(sequence);
  EXPECT_EQ(draft_->used_blocks(), 0);
}

// Two transformers on one backend, which they use in turns.
TEST(DraftTransformerTest, SharesTheBackendOfTheModel) {
  auto ops = CpuOps::Create(2);
  ASSERT_THAT(ops, IsOk());
  ASSERT_TRUE((*ops)->TakesSeveralModels());
  const RandomModel random(SmallConfig("llama"), DType::kF32, 5);
  ModelConfig narrow = SmallConfig("llama");
  narrow.d_ff = 8;
  narrow.num_heads = narrow.num_kv_heads = 1;
  narrow.head_dim = narrow.d_model = 8;
  const RandomModel other(narrow, DType::kF32, 6);
  const auto load = [&](const RandomModel& model, int64_t max_tokens) {
    return *TransformerLM::Load(
        model.config(), model.weights(), **ops,
        {.max_tokens = max_tokens, .max_sequences = 4, .max_logits_rows = 4, .max_context = 128},
        {.num_blocks = 8});
  };
  const auto target = load(random, 64);
  const auto same = load(random, 16);
  const auto small = load(other, 2);
  const Output output{.tokens = Tokens(50), .sampling = {.temperature = 1.0f, .seed = 3}};
  // What the target draws, one at a time, while the others have their turns.
  DraftModel draft(*target), interloper(*small), copy(*same);
  std::vector<int32_t> drawn;
  Output so_far = output;
  for (int i = 0; i < 6; ++i) {
    Guess guess = GuessOf(1, so_far, 1);
    ASSERT_THAT(draft.Propose({&guess, 1}), IsOk());
    ASSERT_THAT(guess.draft, SizeIs(1));
    drawn.push_back(guess.draft[0]);
    so_far.Append(guess.draft);
    Guess turn = GuessOf(1, output, 2);
    ASSERT_THAT(interloper.Propose({&turn, 1}), IsOk());
  }
  Guess guess = GuessOf(1, output, 6);
  ASSERT_THAT(copy.Propose({&guess, 1}), IsOk());
  while (guess.draft.empty()) ASSERT_THAT(copy.Propose({&guess, 1}), IsOk());
  EXPECT_EQ(guess.draft, drawn);
}

}  // namespace
}  // namespace tlm
