// A model that computes everything and then says what it is told.
#ifndef TLM_TESTS_BENCHMARKS_SPECULATION_TEACHER_H_
#define TLM_TESTS_BENCHMARKS_SPECULATION_TEACHER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/mutex.h"
#include "model/transformer_lm/language_model.h"

namespace tlm::bench {

// What the outputs of one seed are.
struct Lesson {
  int64_t prompt_tokens = 0;
  std::vector<int32_t> output;
};

// Replaces the tokens that a model samples for lesson i, known by the seed i of its sampling
// parameters: every pass costs what the model's own text would, and the text is any text. Other
// seeds, and positions behind a lesson, keep what the model samples. The engine's thread calls the
// LanguageModel's methods, and another one the rest; several engines may take turns, one being
// given work when the model is idle.
class Teacher final : public LanguageModel {
 public:
  // `model` outlives it.
  explicit Teacher(LanguageModel& model) : model_(model) {}

  // With a probability of `agreement` for each token a lesson's own one is said, by its seed and
  // position alone; else another.
  void Teach(std::vector<Lesson> lessons, double agreement = 1);
  // Nothing is launched. Behind the end of all requests: it stays so.
  void WaitUntilIdle();

  // LanguageModel.
  int64_t vocab_size() const override { return model_.vocab_size(); }
  const BatchLimits& limits() const override { return model_.limits(); }
  int64_t num_kv_blocks() const override { return model_.num_kv_blocks(); }
  int max_launched() const override { return model_.max_launched(); }
  bool TakesPendingTokens() const override { return model_.TakesPendingTokens(); }
  void Launch(const Batch& batch) override;
  absl::StatusOr<BatchResult> Wait() override;
  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    return model_.CopyKvBlock(from, to);
  }

 private:
  int32_t Say(const SamplingJob& job, int32_t sampled) const TLM_REQUIRES(mutex_);

  LanguageModel& model_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Lesson> lessons_ TLM_GUARDED_BY(mutex_);
  double agreement_ TLM_GUARDED_BY(mutex_) = 1;
  std::deque<const Batch*> launched_ TLM_GUARDED_BY(mutex_);  // of the engine
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_SPECULATION_TEACHER_H_
