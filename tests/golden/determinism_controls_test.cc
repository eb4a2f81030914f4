// Whether determinism_test can fail: backends with the mistakes that the promise rules out, run
// through the same schedules, are caught, each by what it should be caught by.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/golden/schedules.h"
#include "tests/support/batch_dependent_ops.h"
#include "tests/support/chunk_split_ops.h"

namespace tlm {
namespace {

// A device's sampler whose noise is indexed by a row's rank in the batch, not by the request: the
// logits are right, the draw is not.
class RankNoiseModel : public LanguageModel {
 public:
  explicit RankNoiseModel(LanguageModel& model) : model_(model) {}

  int64_t vocab_size() const override { return model_.vocab_size(); }
  const BatchLimits& limits() const override { return model_.limits(); }
  int64_t num_kv_blocks() const override { return model_.num_kv_blocks(); }
  absl::StatusOr<std::span<const float>> Forward(const Batch& batch) override {
    const auto logits = model_.Forward(batch);
    if (!logits.ok()) return logits;
    noisy_.assign(logits->begin(), logits->end());
    const size_t vocab = static_cast<size_t>(vocab_size());
    for (size_t i = 0; i < noisy_.size(); ++i) {
      const size_t rank = i / vocab;
      std::minstd_rand random(static_cast<uint32_t>(rank * vocab + i % vocab + 1));
      random.discard(3);
      noisy_[i] += std::extreme_value_distribution<float>()(random);
    }
    return std::span<const float>(noisy_);
  }
  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    return model_.CopyKvBlock(from, to);
  }

 private:
  LanguageModel& model_;
  std::vector<float> noisy_;
};

struct Caught {
  int64_t outputs = 0;  // that differ from those of the request alone
  int64_t logits = 0;   // prefixes with two hashes
};

Caught RunSchedules(Machine machine, int max_outputs = kMaxOutputs) {
  ScheduleRunner runner("qwen3", DType::kF32, max_outputs);
  runner.set_machine(std::move(machine));
  std::mt19937_64 random(7);
  Caught caught;
  const Outcomes alone = runner.Execute(AloneSchedule(), 1, random).passes[0];
  for (int i = 0; i < 4; ++i) {
    const ScheduleRun together = runner.Execute(RandomSchedule(random), 1, random, nullptr);
    caught.outputs += Compare(together, alone).different;
  }
  caught.logits = runner.book().contradictions;
  return caught;
}

TEST(DeterminismControlsTest, ASoundBackendPasses) {
  const Caught caught = RunSchedules({});
  EXPECT_EQ(caught.outputs, 0);
  EXPECT_EQ(caught.logits, 0);
}

TEST(DeterminismControlsTest, SumsThatDependOnTheBatchSizeAreCaught) {
  const Caught caught = RunSchedules(
      {.ops = [](Ops& ops) { return std::make_unique<BatchDependentOps>(ops); }, .model = {}});
  EXPECT_GT(caught.outputs, 0);
  EXPECT_GT(caught.logits, 0);
}

TEST(DeterminismControlsTest, AttentionThatDependsOnChunkBordersIsCaught) {
  const Caught caught = RunSchedules(
      {.ops = [](Ops& ops) { return std::make_unique<ChunkSplitOps>(ops); }, .model = {}},
      /*max_outputs=*/1);
  EXPECT_GT(caught.outputs, 0);
  EXPECT_GT(caught.logits, 0);
}

TEST(DeterminismControlsTest, NoiseIndexedByRankInTheBatchIsCaught) {
  const Caught caught = RunSchedules({.ops = {}, .model = [](LanguageModel& model) {
                                        return std::make_unique<RankNoiseModel>(model);
                                      }});
  EXPECT_GT(caught.outputs, 0);
  EXPECT_EQ(caught.logits, 0);  // it is the draw that is wrong
}

}  // namespace
}  // namespace tlm
