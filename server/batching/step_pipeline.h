// Tracks the steps that were launched on the model and have not returned results yet.
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

// A launched step with everything its results refer to.
struct LaunchedStep {
  StepPlan plan;
  Batch batch;
  absl::Time begin;
};

// The results of one row: logits, or the tokens of its jobs.
struct RowResults {
  std::span<const float> logits;  // [vocab_size], or empty
  std::span<const SamplingJob> jobs;
  std::span<absl::StatusOr<SampledToken>> tokens;  // one per job
};

// The results of a step, row by row. Valid until the next step is launched.
class StepResults {
 public:
  // `step` outlives it.
  StepResults(const LaunchedStep& step, absl::StatusOr<BatchResult> result, int64_t vocab_size);

  const StepPlan& plan() const { return step_.plan; }
  absl::Time begin() const { return step_.begin; }
  // INTERNAL when the device failed; there are no rows then.
  const absl::Status& status() const { return result_.status(); }
  // Returns the next row, in the order of the plan's chunks.
  RowResults NextRow();

 private:
  const LaunchedStep& step_;
  absl::StatusOr<BatchResult> result_;
  const size_t vocab_size_;
  size_t row_ = 0;  // rows, rows for the host and jobs taken
  size_t host_row_ = 0;
  size_t job_ = 0;
};

// Launches steps and returns their results in the same order. If the model allows it, a step is
// launched while the previous one still computes:
//
//   model     | step n        | step n + 1    | step n + 2
//   engine      | plan n + 1 |  | results of n, plan n + 2 |  | results of n + 1, ...
//               launched at once                launched at once
//
// Everything that a running step refers to stays alive: its batch here, and its sequences with
// their owner while they are in_flight(). A sequence may end before a step that contains it; that
// step's results for it are then surplus. Its blocks may be reused at once, because later launches
// run later.
//
// Not thread-safe: the engine thread owns it.
class StepPipeline {
 public:
  // `model` outlives it.
  explicit StepPipeline(LanguageModel& model);
  // Waits for the launched steps.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  bool empty() const { return launched_ == 0; }
  // Returns whether `plan`, made after the last launch, may be launched now. It must have work; the
  // model must take one more batch, with unknown tokens if the plan has some; and no sampling may
  // depend on an unknown token (penalties count all tokens of a sequence, and masks depend on
  // them).
  bool CanLaunch(const StepPlan& plan) const;
  // Launches the plan and marks its chunks launched. Requires CanLaunch(), or empty() and a plan
  // with work.
  void Launch(StepPlan plan, absl::Time now);
  // Waits for the oldest step; there must be one.
  StepResults Wait();

 private:
  // An unknown token comes from the previous step, so only one running step may precede a launch.
  static constexpr size_t kMaxSteps = 2;

  LanguageModel& model_;
  const size_t max_steps_;
  std::array<LaunchedStep, kMaxSteps> steps_;  // a ring
  size_t oldest_ = 0;
  size_t launched_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_STEP_PIPELINE_H_
