// The steps that the model was given and has not answered yet.
#ifndef TLM_SERVER_BATCHING_STEP_PIPELINE_H_
#define TLM_SERVER_BATCHING_STEP_PIPELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/ops/batch.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/scheduler.h"

namespace tlm {

// A step and all that its results are about.
struct LaunchedStep {
  StepPlan plan;
  Batch batch;
  absl::Time begin;
};

// What one row has given: logits, or tokens by jobs.
struct RowResults {
  std::span<const float> logits;  // [vocab_size], or none
  std::span<const SamplingJob> jobs;
  std::span<absl::StatusOr<SampledToken>> tokens;  // by jobs
};

// What a step has given, row by row. Valid until the next step is launched.
class StepResults {
 public:
  // `step` outlives it.
  StepResults(const LaunchedStep& step, absl::StatusOr<BatchResult> result, int64_t vocab_size);

  const StepPlan& plan() const { return step_.plan; }
  absl::Time begin() const { return step_.begin; }
  // INTERNAL when the device failed: there are no rows then.
  const absl::Status& status() const { return result_.status(); }
  // The rows of the plan's chunks, in their order.
  RowResults NextRow();

 private:
  const LaunchedStep& step_;
  absl::StatusOr<BatchResult> result_;
  const size_t vocab_size_;
  size_t row_ = 0;  // rows, rows for the host and jobs taken
  size_t host_row_ = 0;
  size_t job_ = 0;
};

// Launches steps and gives their results in the same order; with a model that allows it, a step is
// launched while the one before it still computes:
//
//   model     | step n        | step n + 1    | step n + 2
//   engine      | plan n + 1 |  | results of n, plan n + 2 |  | results of n + 1, ...
//               launched at once                launched at once
//
// What a step that computes refers to stays: its batch here, its sequences with their owner while
// they are in_flight(). The sequences of a step may end before it does; its results are then
// surplus. The blocks they gave back may be used at once: whatever is launched later comes later.
//
// Not thread-safe: the engine thread owns it.
class StepPipeline {
 public:
  // `model` outlives it.
  explicit StepPipeline(LanguageModel& model);
  // Waits for what is left.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  bool empty() const { return launched_ == 0; }
  // Whether `plan`, made after the last launch, may be launched now: it has work, the model takes
  // one more batch, with tokens that are not known yet if there are some, and no sampling depends
  // on such: penalties count all tokens of a sequence, and what may follow depends on them.
  bool CanLaunch(const StepPlan& plan) const;
  // Marks the chunks launched. CanLaunch(), or empty() and the plan has work.
  void Launch(StepPlan plan, absl::Time now);
  // Waits for the oldest step, which there must be.
  StepResults Wait();

 private:
  // A token that is not known belongs to the step before: there cannot be two of those.
  static constexpr size_t kMaxSteps = 2;

  LanguageModel& model_;
  const size_t max_steps_;
  std::array<LaunchedStep, kMaxSteps> steps_;  // a ring
  size_t oldest_ = 0;
  size_t launched_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_STEP_PIPELINE_H_
