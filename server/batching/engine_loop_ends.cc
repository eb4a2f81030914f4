// The part of EngineLoop that ends outputs: because their readers have detached, because their time
// is up, or because they are complete.
#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "server/batching/engine_loop.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

absl::Status CancelledByCaller() { return Cancelled("the caller cancelled the request"); }

// The soft limit applies even if the hard one has passed since.
bool SoftLimitPassed(const Request& request, absl::Time now) {
  return request.generate() != nullptr && request.soft_deadline <= now &&
         request.soft_deadline <= request.deadline;
}

}  // namespace

void EngineLoop::DropUnwanted(absl::Time now) {
  const ServiceEstimates estimates = rates_.Estimates();
  for (const auto& sequence : sequences_) {
    if (sequence->state() != SequenceState::kFinished) DropIfUnwanted(*sequence, estimates, now);
  }
  EraseFinished();
}

void EngineLoop::DropIfUnwanted(Sequence& sequence, const ServiceEstimates& estimates,
                                absl::Time now) {
  const Request& request = sequence.request();
  if (!request.branch_streams.empty()) DropDetachedBranches(sequence, now);
  if (sequence.stream().detached() && sequence.branches() == 0) {
    End(sequence, CancelledByCaller(), Finish(), now);
  } else if (SoftLimitPassed(request, now)) {
    EndUncomputed(sequence, {.reason = FinishReason::kTimeLimit}, now);
  } else if (request.deadline <= now) {
    End(sequence, Expired(sequence.queued() ? RequestStage::kQueued : RequestStage::kRunning),
        Finish(), now);
  } else if (Infeasible(sequence, estimates, now)) {
    End(sequence,
        WithReason(DeadlineExceeded("the deadline cannot be met any more: the request has waited "
                                    "too long to be computed before it"),
                   "INFEASIBLE"),
        Finish(), now);
  }
}

void EngineLoop::DropDetachedBranches(Sequence& sequence, absl::Time now) {
  const auto& streams = sequence.request().branch_streams;
  for (size_t branch = 0; branch < streams.size(); ++branch) {
    if (streams[branch] == nullptr || !streams[branch]->detached()) continue;
    EndBranch(sequence, branch, sequence.BranchEnd(CancelledByCaller(), now));
  }
}

bool EngineLoop::Infeasible(Sequence& sequence, const ServiceEstimates& estimates, absl::Time now) {
  const absl::Time deadline = sequence.request().deadline;
  if (!sequence.queued() || deadline == absl::InfiniteFuture()) return false;
  LeastWork work = sequence.least_work();
  if (!estimates.Unreachable({}, work, now, deadline)) return false;
  if (!cache_.has_value()) return true;
  work.prefill_tokens = std::max(work.prefill_tokens - sequence.CachedTokens(*cache_), int64_t{1});
  return estimates.Unreachable({}, work, now, deadline);
}

void EngineLoop::EndUncomputed(Sequence& sequence, const Finish& finish, absl::Time now) {
  if (!sequence.started()) StartStreams(sequence, now);
  End(sequence, absl::OkStatus(), finish, now);
}

void EngineLoop::End(Sequence& sequence, const absl::Status& status, const Finish& finish,
                     absl::Time now) {
  scheduler_.Remove(sequence);
  if (draft_source_ != nullptr) draft_source_->Forget(sequence.number());
  if (sequence.queued()) LeaveQueue(sequence);
  if (status.ok() && sequence.generates()) {
    rates_.RecordOutput(sequence.generated_tokens(),
                        sequence.request().generate()->stop.max_new_tokens);
  } else if (absl::IsDeadlineExceeded(status) && sequence.started()) {
    rates_.RecordLateOutput();
  }
  StreamEnd branch_end = sequence.BranchEnd(status, now);
  branch_end.reason = finish.reason;
  for (size_t branch = 0; branch < sequence.request().branch_streams.size(); ++branch) {
    if (sequence.request().branch_streams[branch] == nullptr) continue;
    EndBranch(sequence, branch, branch_end);
  }
  PushEnd(sequence.request().stream, sequence.request_number(), sequence.End(status, finish, now));
  any_finished_ = true;
}

void EngineLoop::EndChunks(const StepPlan& plan, const absl::Status& status, absl::Time now) {
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.sequence->state() == SequenceState::kFinished) continue;
    End(*chunk.sequence, status, Finish(), now);
  }
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
  while (!pipeline_.empty()) pipeline_.Wait();  // their results are dropped
  const absl::Time now = clock_.Now();
  for (const auto& sequence : sequences_) {
    if (sequence->state() != SequenceState::kFinished) End(*sequence, status, Finish(), now);
  }
  EraseFinished();
  UpdateStats();
}

void EngineLoop::EraseFinished() {
  if (std::exchange(any_finished_, false)) {
    Scheduler::DropEnded(ahead_);
    std::erase_if(sequences_, [this](const std::unique_ptr<Sequence>& sequence) {
      if (sequence->state() != SequenceState::kFinished) return false;
      any_finished_ |= sequence->in_flight();
      return !sequence->in_flight();
    });
  }
  if (sequences_.empty()) TLM_CHECK(pool_.used_blocks() == 0 && outputs_left_.empty());
}

}  // namespace tlm
