// Checks that determinism_test can fail: backends with the mistakes that the promise rules out run
// through the same schedules and are caught, each by the intended check.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/golden/rounds.h"
#include "tests/support/faulty_ops.h"
#include "tests/support/host_sampling.h"

namespace tlm {
namespace {

// Samples on the host in a wrong way: the logits are right, the token is not.
class WrongSamplerModel : public LanguageModel {
 public:
  using Tokens = std::vector<absl::StatusOr<SampledToken>>;
  explicit WrongSamplerModel(LanguageModel& model) : model_(model) {}

  int64_t vocab_size() const override { return model_.vocab_size(); }
  const BatchLimits& limits() const override { return model_.limits(); }
  int64_t num_kv_blocks() const override { return model_.num_kv_blocks(); }
  void Launch(const Batch& batch) override {
    wanted_rows_ = batch.host_rows;
    launched_ = batch;
    launched_.host_rows.resize(batch.logits_rows.size());
    std::iota(launched_.host_rows.begin(), launched_.host_rows.end(), 0);
    model_.Launch(launched_);
  }
  absl::StatusOr<BatchResult> Wait() override {
    absl::StatusOr<BatchResult> result = model_.Wait();
    if (!result.ok()) return result;
    result->tokens = Sample(launched_.jobs, result->logits, std::move(result->tokens));
    logits_ = SelectRows(result->logits, wanted_rows_, vocab_size());
    result->logits = logits_;
    return result;
  }
  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    return model_.CopyKvBlock(from, to);
  }

 private:
  // `right` are the results of the jobs; `logits` are the logits of all rows.
  virtual Tokens Sample(std::span<const SamplingJob> jobs, std::span<const float> logits,
                        Tokens right) const = 0;

  LanguageModel& model_;
  Batch launched_;  // with all rows
  std::vector<int32_t> wanted_rows_;
  std::vector<float> logits_;
};

// Noise indexed by a row's rank in the batch, not by the request.
class RankNoiseModel : public WrongSamplerModel {
 public:
  using WrongSamplerModel::WrongSamplerModel;

 private:
  Tokens Sample(std::span<const SamplingJob> jobs, std::span<const float> logits,
                Tokens) const override {
    std::vector<float> noisy(logits.begin(), logits.end());
    for (size_t i = 0; i < noisy.size(); ++i) {
      std::minstd_rand random(static_cast<uint32_t>(i + 1));
      random.discard(3);
      noisy[i] += std::extreme_value_distribution<float>()(random);
    }
    return SampleAll(jobs, noisy, vocab_size());
  }
};

// Does the same only after a draft's tokens: the first row of each draft is right.
class DraftRankNoiseModel : public WrongSamplerModel {
 public:
  using WrongSamplerModel::WrongSamplerModel;

 private:
  Tokens Sample(std::span<const SamplingJob> jobs, std::span<const float> logits,
                Tokens) const override {
    std::vector<SamplingJob> changed(jobs.begin(), jobs.end());
    for (SamplingJob& job : changed) {
      if (!job.draft.empty()) job.key.position = static_cast<uint64_t>(job.row);
    }
    return SampleAll(changed, logits, vocab_size());
  }
};

// Accepts a guess if it is the most likely token, regardless of the sampled token.
class ArgmaxJudgeModel : public WrongSamplerModel {
 public:
  using WrongSamplerModel::WrongSamplerModel;

 private:
  Tokens Sample(std::span<const SamplingJob> jobs, std::span<const float> logits,
                Tokens right) const override {
    const auto vocab = static_cast<size_t>(vocab_size());
    for (size_t i = 0; i + 1 < jobs.size(); ++i) {
      if (jobs[i + 1].draft.empty() || !right[i].ok()) continue;
      const int32_t guess = jobs[i + 1].draft.back();
      const auto row = logits.subspan(static_cast<size_t>(jobs[i].row) * vocab, vocab);
      if (std::ranges::max_element(row) - row.begin() == guess) right[i]->id = guess;
    }
    return right;
  }
};

struct Caught {
  int64_t outputs = 0;  // outputs that differ from the request alone
  int64_t logits = 0;   // prefixes with two hashes
};

// `drafter` makes the drafts in all of the schedules, wherever one is possible.
Caught RunSchedules(Machine machine, int max_outputs = kMaxOutputs,
                    std::optional<Drafter> drafter = std::nullopt) {
  ScheduleRunner runner("qwen3", DType::kF32, max_outputs);
  runner.set_machine(std::move(machine));
  std::mt19937_64 random(7);
  Caught caught;
  const Outcomes alone = runner.Execute(AloneSchedule(), 1, random).passes[0];
  for (int i = 0; i < 4; ++i) {
    Schedule schedule = RandomSchedule(random);
    // All tokens come from the machine itself.
    schedule.resume_one_in = schedule.claim_one_in = 0;
    if (drafter.has_value()) {
      schedule.options.speculation = Speculation::kAlways;
      schedule.options.max_draft_tokens = 6;
      schedule.drafter = *drafter;
      schedule.truth = 80;
    }
    const ScheduleRun together = runner.Execute(schedule, 1, random, &alone);
    caught.outputs += Compare(together, alone).different;
  }
  caught.logits = runner.book().contradictions;
  return caught;
}

template <typename Model>
Machine WithModel() {
  return {.backend = {}, .ops = {}, .model = [](LanguageModel& model) {
            return std::make_unique<Model>(model);
          }};
}
template <typename WrongOps>
Machine WithOps() {
  return {
      .backend = {}, .ops = [](Ops& ops) { return std::make_unique<WrongOps>(ops); }, .model = {}};
}

TEST(DeterminismControlsTest, ASoundBackendPasses) {
  for (const std::optional<Drafter> drafter :
       {std::optional<Drafter>(), std::optional(Drafter::kKnown),
        std::optional(Drafter::kGreedyModel)}) {
    const Caught caught = RunSchedules({}, kMaxOutputs, drafter);
    EXPECT_EQ(caught.outputs, 0);
    EXPECT_EQ(caught.logits, 0);
  }
}

struct Mistake {
  const char* name;
  Machine (*machine)();
  bool changes_logits;  // else it is the token that is wrong
  std::optional<Drafter> drafter = {};
  int max_outputs = kMaxOutputs;
};
class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsCaught) {
  const Caught caught =
      RunSchedules(GetParam().machine(), GetParam().max_outputs, GetParam().drafter);
  EXPECT_GT(caught.outputs, 0);
  EXPECT_EQ(caught.logits > 0, GetParam().changes_logits);
}

INSTANTIATE_TEST_SUITE_P(
    DeterminismControls, MistakeTest,
    ::testing::Values(
        Mistake{"SumsThatDependOnTheBatchSize", WithOps<BatchDependentOps>, true},
        Mistake{"AttentionThatDependsOnChunkBorders", WithOps<ChunkSplitOps>, true, {}, 1},
        Mistake{"NoiseIndexedByRankInTheBatch", WithModel<RankNoiseModel>, false},
        Mistake{"NoiseIndexedByRankInTheDrafts", WithModel<DraftRankNoiseModel>, false,
                Drafter::kKnown},
        Mistake{"GuessesJudgedByTheMostLikelyToken", WithModel<ArgmaxJudgeModel>, false,
                Drafter::kGreedyModel},
        Mistake{"CacheEntriesOfRejectedDrafts", WithOps<StaleDraftOps>, true, Drafter::kKnown}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
