#include "server/batching/step_pipeline.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "server/batching/batch_builder.h"

namespace tlm {
namespace {

bool HasUnknownToken(const Chunk& chunk) {
  return chunk.first_position + chunk.num_tokens >
         static_cast<int64_t>(chunk.sequence->tokens().size() + chunk.sequence->draft().size());
}

bool SamplesByUnknownToken(const Chunk& chunk) {
  const Sequence& sequence = *chunk.sequence;
  return chunk.num_rows > 0 && sequence.tokens_in_flight() > 0 &&
         (sequence.mask() != nullptr || sequence.request().generate()->sampling.has_penalties());
}

}  // namespace

StepResults::StepResults(const LaunchedStep& step, absl::StatusOr<BatchResult> result,
                         int64_t vocab_size)
    : step_(step), result_(std::move(result)), vocab_size_(static_cast<size_t>(vocab_size)) {
  if (!result_.ok()) return;
  TLM_CHECK(result_->logits.size() == step.batch.host_rows.size() * vocab_size_);
  TLM_CHECK(result_->tokens.size() == step.batch.jobs.size());
}

RowResults StepResults::NextRow() {
  const Batch& batch = step_.batch;
  const int32_t row = static_cast<int32_t>(row_++);
  TLM_CHECK(row < batch.rows());
  RowResults results;
  if (host_row_ < batch.host_rows.size() && batch.host_rows[host_row_] == row) {
    results.logits = result_->logits.subspan(host_row_++ * vocab_size_, vocab_size_);
  }
  const size_t first = job_;
  while (job_ < batch.jobs.size() && batch.jobs[job_].row == row) ++job_;
  results.jobs = std::span(batch.jobs).subspan(first, job_ - first);
  results.tokens = std::span(result_->tokens).subspan(first, job_ - first);
  return results;
}

StepPipeline::StepPipeline(LanguageModel& model)
    : model_(model),
      max_steps_(std::clamp(static_cast<size_t>(model.max_launched()), size_t{1}, kMaxSteps)) {}

StepPipeline::~StepPipeline() {
  for (; launched_ > 0; --launched_) (void)model_.Wait();
}

bool StepPipeline::CanLaunch(const StepPlan& plan) const {
  if (plan.chunks.empty() || launched_ >= max_steps_) return false;
  const bool takes_unknown = launched_ == 0 || model_.TakesPendingTokens();
  return std::none_of(plan.chunks.begin(), plan.chunks.end(), [&](const Chunk& chunk) {
    return SamplesByUnknownToken(chunk) || (!takes_unknown && HasUnknownToken(chunk));
  });
}

void StepPipeline::Launch(StepPlan plan, absl::Time now) {
  TLM_CHECK(launched_ < max_steps_ && !plan.chunks.empty());
  LaunchedStep& step = steps_[(oldest_ + launched_++) % kMaxSteps];
  step.plan = std::move(plan);
  step.begin = now;
  BuildBatch(step.plan, &step.batch);
  model_.Launch(step.batch);
  for (const Chunk& chunk : step.plan.chunks) {
    chunk.sequence->MarkLaunched(chunk.num_tokens, model_.limits().max_context);
  }
}

StepResults StepPipeline::Wait() {
  TLM_CHECK(launched_ > 0);
  const LaunchedStep& step = steps_[oldest_];
  StepResults results(step, model_.Wait(), model_.vocab_size());
  oldest_ = (oldest_ + 1) % kMaxSteps;
  --launched_;
  for (const Chunk& chunk : step.plan.chunks) chunk.sequence->MarkStepEnded();
  return results;
}

}  // namespace tlm
