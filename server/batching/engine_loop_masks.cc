// The part of EngineLoop that handles constraints: which tokens may follow in an output.
#include <algorithm>
#include <memory>

#include "server/batching/engine_loop.h"

namespace tlm {
namespace {

// The longest wait for tokens that need no sampling; after it the step is launched without them.
constexpr absl::Duration kMaxRunWait = absl::Milliseconds(1);

}  // namespace

void EngineLoop::SetMask(Sequence& sequence) {
  if (!sequence.generates()) return;
  const GenerateWork& work = *sequence.request().generate();
  if (!work.constraint.has_value()) return;
  sequence.SetMask(std::make_shared<OutputMask>(
      *work.constraint, OutputMask::Options{.max_wait = options_.max_mask_wait}));
}

void EngineLoop::FollowMasks(absl::Time now) {
  absl::Duration wait = std::min(kMaxRunWait, step_time_ * options_.max_run_wait);
  for (const auto& sequence : sequences_) {
    const OutputMask* const mask = sequence->mask();
    if (mask == nullptr || sequence->state() == SequenceState::kFinished) continue;
    if (sequence->awaits_mask()) sequence->set_awaits_mask(!mask->ready());
    if (!MayHaveForcedRun(*sequence)) continue;
    if (!mask->ready() && wait > absl::ZeroDuration()) {
      const absl::Time begin = clock_.Now();
      mask->WaitFor(wait);
      wait -= clock_.Now() - begin;
    }
    // Scores need logits: every token is sampled, and a run becomes a draft (AddPendingDraft).
    const LogprobOptions& score = sequence->request().generate()->score;
    const bool scored = score.logprob || score.top > 0;
    if (mask->ready() && !mask->run().empty() && !scored) AppendForcedRun(*sequence, now);
  }
  EraseFinished();
}

// Requires a sampled token, because branches begin with one each.
bool EngineLoop::MayHaveForcedRun(const Sequence& sequence) {
  return sequence.generated_tokens() > 0 && !sequence.verifies() && !sequence.in_flight() &&
         sequence.state() == SequenceState::kDecoding;
}

void EngineLoop::AppendForcedRun(Sequence& sequence, absl::Time now) {
  OutputMask& mask = *sequence.mask();
  report_.streams.push_back(sequence.request().stream);
  // The sequence may have been planned as the end of a prompt, whose row would be before the run.
  scheduler_.RemoveFromPlan(sequence, ahead_);
  // Leaves room for the row after the run.
  while (!mask.run().empty() && sequence.Room() > 1 && sequence.MayAppend(mask.run().front())) {
    const int32_t token = mask.run().front();
    RecordToken(sequence, now);
    if (metrics_ != nullptr) metrics_->AddConstrainedToken(/*forced=*/true);
    const std::optional<Finish> finish = sequence.AppendForced(token, model_.limits().max_context);
    sequence.stream().PushToken({.id = token, .score = {}, .top = {}});
    if (finish.has_value()) return End(sequence, absl::OkStatus(), *finish, now);
    mask.Advance(token);
  }
}

void EngineLoop::AdvanceMask(Sequence& sequence, int32_t token) {
  OutputMask& mask = *sequence.mask();
  if (metrics_ != nullptr) {
    metrics_->AddConstrainedToken(/*forced=*/false);
    metrics_->AddMaskWait(mask.TakeWait());
  }
  if (!mask.Advance(token)) sequence.set_mask_after(true);
  if (sequence.rows_in_flight() == 0) QueueMask(sequence);
}

void EngineLoop::QueueMask(Sequence& sequence) {
  if (sequence.mask_after()) masks_.Add(sequence.shared_mask());
  sequence.set_mask_after(false);
}

void EngineLoop::WaitForMask(Sequence& sequence) {
  sequence.CancelFirstRow();
  QueueMask(sequence);
  sequence.set_awaits_mask(sequence.mask()->WakeWhenReady(queue_));
  // The sequence may have been planned as if it had one more token.
  scheduler_.RemoveFromPlan(sequence, ahead_);
  if (metrics_ != nullptr) metrics_->AddMaskWait(sequence.mask()->TakeWait());
}

}  // namespace tlm
