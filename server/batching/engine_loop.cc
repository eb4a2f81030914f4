#include "server/batching/engine_loop.h"

#include <algorithm>
#include <utility>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/batching/batch_builder.h"

namespace tlm {
namespace {

SchedulerLimits LimitsFor(const EngineOptions& options, const BatchLimits& limits) {
  return {.max_batch_tokens = options.max_batch_tokens,
          .max_prefill_tokens = options.max_prefill_tokens,
          .max_running_sequences = options.max_running_requests,
          .max_logits_rows = limits.max_logits_rows};
}

absl::Status CancelledByCaller() { return Cancelled("the caller cancelled the request"); }

}  // namespace

EngineLoop::EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
                       std::shared_ptr<RequestQueue> queue)
    : model_(model),
      clock_(clock),
      queue_(std::move(queue)),
      pool_(model.num_kv_blocks()),
      scheduler_(LimitsFor(options, model.limits()), pool_) {
  UpdateStats();
}

bool EngineLoop::Step() {
  TakeArrivals();
  const absl::Time begin = clock_.Now();
  DropUnwanted(begin);
  const StepPlan plan = scheduler_.Plan();
  const QueueLoad left_queue = LeaveQueue(plan);
  if (!plan.chunks.empty()) {
    StartChunks(plan, begin);
    BuildBatch(plan, &batch_);
    const absl::StatusOr<std::span<const float>> logits = model_.Forward(batch_);
    const absl::Time end = clock_.Now();
    ++report_.stats.steps;
    if (logits.ok()) {
      TakeResults(plan, *logits, end);
    } else {
      FailChunks(plan, logits.status(), end);
    }
    MeasureDrain(left_queue, end - begin);
  }
  EraseFinished();
  UpdateStats();
  return !plan.chunks.empty();
}

void EngineLoop::TakeArrivals() {
  for (Request& request : queue_->Take()) {
    request.stream->SetWaker(queue_);
    for (const auto& stream : request.branch_streams) stream->SetWaker(queue_);
    const int64_t outputs = 1 + static_cast<int64_t>(request.branch_streams.size());
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), next_number_));
    outputs_left_[next_number_] = outputs;
    next_number_ += outputs;
    ++never_admitted_;
    scheduler_.Add(*sequences_.back());
  }
}

void EngineLoop::DropUnwanted(absl::Time now) {
  for (const auto& sequence : sequences_) {
    DropDetachedBranches(*sequence, now);
    if (sequence->stream().detached() && sequence->branches() == 0) {
      End(*sequence, CancelledByCaller(), Finish(), now);
    } else if (sequence->request().deadline <= now) {
      const bool queued = sequence->queued();
      End(*sequence,
          WithReason(DeadlineExceeded("the deadline passed while the request was {}",
                                      queued ? "queued" : "running"),
                     queued ? "EXPIRED_IN_QUEUE" : "EXPIRED_RUNNING"),
          Finish(), now);
    }
  }
  EraseFinished();
}

void EngineLoop::DropDetachedBranches(Sequence& sequence, absl::Time now) {
  const auto& streams = sequence.request().branch_streams;
  for (size_t branch = 0; branch < streams.size(); ++branch) {
    if (streams[branch] == nullptr || !streams[branch]->detached()) continue;
    EndBranch(sequence, branch, sequence.BranchEnd(CancelledByCaller(), now));
  }
}

QueueLoad EngineLoop::LeaveQueue(const StepPlan& plan) {
  QueueLoad left;
  for (Sequence* sequence : plan.admitted) {
    if (!sequence->queued()) continue;
    LeaveQueue(*sequence);
    ++left.requests;
    left.prompt_tokens += sequence->input_tokens();
  }
  return left;
}

void EngineLoop::LeaveQueue(Sequence& sequence) {
  sequence.LeaveQueue();
  --never_admitted_;
  queue_->Release(sequence.input_tokens());
}

void EngineLoop::StartChunks(const StepPlan& plan, absl::Time now) {
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *chunk.sequence;
    if (sequence.started()) continue;
    const StreamStart start{.queue_time = sequence.MarkStarted(now)};
    sequence.stream().PushStart(start);
    report_.streams.push_back(sequence.request().stream);
    for (const auto& stream : sequence.request().branch_streams) {
      if (stream == nullptr) continue;
      stream->PushStart(start);
      report_.streams.push_back(stream);
    }
  }
}

void EngineLoop::FailChunks(const StepPlan& plan, const absl::Status& error, absl::Time now) {
  const absl::Status status = DeviceFault(error);
  for (const Chunk& chunk : plan.chunks) End(*chunk.sequence, status, Finish(), now);
}

absl::Status EngineLoop::DeviceFault(const absl::Status& error) {
  report_.stats.fault = error;
  return Internal("the device failed while computing: {}", std::string(error.message()));
}

void EngineLoop::MeasureDrain(const QueueLoad& started, absl::Duration elapsed) {
  // With nothing left waiting the queue's pace is that of the arrivals, not the engine's.
  if (never_admitted_ == 0) return;
  drained_requests_.Record(static_cast<double>(started.requests), elapsed);
  drained_tokens_.Record(static_cast<double>(started.prompt_tokens), elapsed);
  queue_->SetDrainRate({.requests_per_second = drained_requests_.per_second(),
                        .prompt_tokens_per_second = drained_tokens_.per_second()});
}

void EngineLoop::End(Sequence& sequence, const absl::Status& status, const Finish& finish,
                     absl::Time now) {
  scheduler_.Remove(sequence);
  if (sequence.queued()) LeaveQueue(sequence);
  const StreamEnd branch_end = sequence.BranchEnd(status, now);
  for (size_t branch = 0; branch < sequence.request().branch_streams.size(); ++branch) {
    if (sequence.request().branch_streams[branch] == nullptr) continue;
    EndBranch(sequence, branch, branch_end);
  }
  PushEnd(sequence.request().stream, sequence.request_number(), sequence.End(status, finish, now));
}

void EngineLoop::EndBranch(Sequence& sequence, size_t branch, const StreamEnd& end) {
  PushEnd(sequence.TakeBranchStream(branch), sequence.request_number(), end);
}

void EngineLoop::PushEnd(const std::shared_ptr<TokenStream>& stream, int64_t request_number,
                         StreamEnd end) {
  stream->PushEnd(std::move(end));
  report_.streams.push_back(stream);
  const auto left = outputs_left_.find(request_number);
  if (--left->second > 0) return;
  outputs_left_.erase(left);
  ++report_.ended;
  ++report_.stats.finished_requests;
}

void EngineLoop::EndAll(const absl::Status& status) {
  TakeArrivals();
  const absl::Time now = clock_.Now();
  for (const auto& sequence : sequences_) End(*sequence, status, Finish(), now);
  EraseFinished();
  UpdateStats();
}

void EngineLoop::EraseFinished() {
  std::erase_if(sequences_, [](const std::unique_ptr<Sequence>& sequence) {
    return sequence->state() == SequenceState::kFinished;
  });
  if (sequences_.empty()) TLM_CHECK(pool_.used_blocks() == 0 && outputs_left_.empty());
}

void EngineLoop::UpdateStats() {
  EngineStats& stats = report_.stats;
  stats.running_requests = scheduler_.running();
  stats.waiting_requests = scheduler_.waiting() - never_admitted_;
  stats.kv_blocks_used = pool_.used_blocks();
  stats.kv_blocks_total = pool_.total_blocks();
  stats.preemptions = scheduler_.preemptions();
  stats.drained_requests_per_second = drained_requests_.per_second();
  stats.drained_prompt_tokens_per_second = drained_tokens_.per_second();
}

absl::Time EngineLoop::NextDeadline() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& sequence : sequences_) {
    earliest = std::min(earliest, sequence->request().deadline);
  }
  return earliest;
}

EngineLoop::Report EngineLoop::TakeReport() {
  Report report{.streams = std::exchange(report_.streams, {}),
                .ended = std::exchange(report_.ended, 0),
                .stats = report_.stats};
  return report;
}

}  // namespace tlm
