// Draft sources for schedules: right, wrong, and partly right.
#ifndef TLM_TESTS_GOLDEN_DRAFT_SOURCES_H_
#define TLM_TESTS_GOLDEN_DRAFT_SOURCES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "model/config/model_config.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/speculation/draft_model.h"
#include "tests/support/known_drafts.h"
#include "tests/support/status_matchers.h"

namespace tlm {

enum class Drafter {
  kNobody,
  kKnown,        // KnownDrafts
  kSameModel,    // the model itself, on the CPU: right
  kOtherModel,   // a model with other random weights: wrong
  kGreedyModel,  // the model's most likely tokens, which are not always the sampled ones
};
inline constexpr int kDrafters = 5;

// A DraftModel with its model.
class ModelDrafts : public DraftSource {
 public:
  // With `greedy`, it guesses the most likely token whatever a request's parameters are. `weights`
  // need not outlive the call.
  static std::unique_ptr<ModelDrafts> Load(const ModelConfig& config, const ModelWeights& weights,
                                           const BatchLimits& limits, const KvPlan& cache,
                                           WeightFormat format = WeightFormat::kAsGiven,
                                           bool greedy = false) {
    auto ops = CpuOps::Create(/*threads=*/1);
    EXPECT_THAT(ops, IsOk());
    auto model = TransformerLM::Load(config, weights, **ops, limits, cache, format);
    EXPECT_THAT(model, IsOk());
    return std::unique_ptr<ModelDrafts>(
        new ModelDrafts(*std::move(ops), *std::move(model), greedy));
  }

  int64_t Lag(int64_t sequence, std::span<const int32_t> tokens) const override {
    return drafts_.Lag(sequence, tokens);
  }
  absl::Status Propose(std::span<Guess> guesses) override {
    for (Guess& guess : guesses) {
      if (greedy_) guess.sampling = &most_likely_;
    }
    return drafts_.Propose(guesses);
  }
  void Forget(int64_t sequence) override { drafts_.Forget(sequence); }

 private:
  ModelDrafts(std::unique_ptr<Ops> ops, std::unique_ptr<TransformerLM> model, bool greedy)
      : ops_(std::move(ops)), model_(std::move(model)), greedy_(greedy), drafts_(*model_) {}

  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<TransformerLM> model_;
  const bool greedy_;
  const SamplingParams most_likely_ = {.temperature = 0};
  DraftModel drafts_;
};

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_DRAFT_SOURCES_H_
