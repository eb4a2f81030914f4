// Whether determinism_test can fail: backends with the mistakes that the promise rules out, run
// through the same schedules, are caught, each by what it should be caught by.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "tests/golden/schedules.h"
#include "tests/support/batch_dependent_ops.h"
#include "tests/support/chunk_split_ops.h"
#include "tests/support/host_sampling.h"

namespace tlm {
namespace {

// A device's sampler whose noise is indexed by a row's rank in the batch, not by the request: the
// logits are right, the token is not.
class RankNoiseModel : public LanguageModel {
 public:
  explicit RankNoiseModel(LanguageModel& model) : model_(model) {}

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
    result->tokens = SampleAll(launched_.jobs, Noisy(result->logits), vocab_size());
    logits_ = SelectRows(result->logits, wanted_rows_, vocab_size());
    result->logits = logits_;
    return result;
  }
  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    return model_.CopyKvBlock(from, to);
  }

 private:
  std::vector<float> Noisy(std::span<const float> logits) const {
    std::vector<float> noisy(logits.begin(), logits.end());
    for (size_t i = 0; i < noisy.size(); ++i) {
      std::minstd_rand random(static_cast<uint32_t>(i + 1));
      random.discard(3);
      noisy[i] += std::extreme_value_distribution<float>()(random);
    }
    return noisy;
  }

  LanguageModel& model_;
  Batch launched_;  // with all rows
  std::vector<int32_t> wanted_rows_;
  std::vector<float> logits_;
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
  const Caught caught =
      RunSchedules({.backend = {},
                    .ops = [](Ops& ops) { return std::make_unique<BatchDependentOps>(ops); },
                    .model = {}});
  EXPECT_GT(caught.outputs, 0);
  EXPECT_GT(caught.logits, 0);
}

TEST(DeterminismControlsTest, AttentionThatDependsOnChunkBordersIsCaught) {
  const Caught caught =
      RunSchedules({.backend = {},
                    .ops = [](Ops& ops) { return std::make_unique<ChunkSplitOps>(ops); },
                    .model = {}},
                   /*max_outputs=*/1);
  EXPECT_GT(caught.outputs, 0);
  EXPECT_GT(caught.logits, 0);
}

TEST(DeterminismControlsTest, NoiseIndexedByRankInTheBatchIsCaught) {
  const Caught caught = RunSchedules({.backend = {}, .ops = {}, .model = [](LanguageModel& model) {
                                        return std::make_unique<RankNoiseModel>(model);
                                      }});
  EXPECT_GT(caught.outputs, 0);
  EXPECT_EQ(caught.logits, 0);  // it is the token that is wrong
}

}  // namespace
}  // namespace tlm
