#include "server/batching/scheduler.h"

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {
namespace {

bool IsDecode(const Sequence& sequence) { return sequence.state() == SequenceState::kDecoding; }

bool IsPrefill(const Sequence& sequence) {
  return sequence.state() == SequenceState::kPrefilling && sequence.remaining() > 0;
}

bool IsRunning(const Sequence& sequence) {
  return sequence.state() == SequenceState::kPrefilling || IsDecode(sequence);
}

// The sequence cannot compute a token until its reader takes results.
bool WaitsForReader(const Sequence& sequence) {
  return sequence.remaining() > 0 && sequence.RowsWanted(1) > 0 && sequence.Room() <= 0;
}

void Count(const Chunk& chunk, int64_t sign, StepPlan& plan) {
  const int64_t decodes = chunk.decode ? 1 : 0;
  const int64_t others = chunk.num_tokens - decodes;
  plan.decodes += sign * decodes;
  plan.prefill_tokens += sign * others;
  if (chunk.long_prompt || chunk.decode) plan.long_prompt_tokens += sign * others;
  plan.rows += sign * chunk.num_rows;
  plan.draft_tokens += sign * chunk.num_draft;
}

template <typename Predicate>
void RemoveChunks(StepPlan& plan, Predicate removes) {
  std::erase_if(plan.chunks, [&](const Chunk& chunk) {
    if (!removes(chunk)) return false;
    Count(chunk, -1, plan);
    return true;
  });
}

void AddChunk(const Chunk& chunk, StepPlan& plan) {
  plan.chunks.push_back(chunk);
  Count(chunk, +1, plan);
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, const BatchLimits& limits, BlockPool& pool,
                     PrefixCache* cache)
    : options_(options),
      max_logits_rows_(limits.max_logits_rows),
      max_draft_rows_(limits.max_draft_rows),
      max_running_(std::min(
          {options.max_running_requests, options.max_batch_tokens, limits.max_logits_rows})),
      pool_(pool),
      cache_(cache) {
  TLM_CHECK(options_.max_prefill_tokens > 0 && max_running_ > 0);
}

int64_t Scheduler::decoding() const {
  return std::count_if(running_.begin(), running_.end(), [](const auto& entry) {
    return !entry.second.parked && IsDecode(*entry.first);
  });
}

StepPlan Scheduler::Plan(int64_t max_long_prompt_tokens, int64_t short_step_tokens) {
  StepPlan plan;
  plan.short_step_tokens = short_step_tokens;
  plan.max_long_prompt_tokens =
      std::clamp(max_long_prompt_tokens, int64_t{0}, options_.max_prefill_tokens);
  ++plans_;
  ForgetKeptRooms();
  Extend(plan, /*may_preempt=*/true);
  return plan;
}

void Scheduler::TopUp(StepPlan& plan) {
  DropEnded(plan);
  Extend(plan, /*may_preempt=*/false);
}

void Scheduler::RemoveFromPlan(const Sequence& sequence, StepPlan& plan) {
  const auto entry = running_.find(const_cast<Sequence*>(&sequence));
  if (entry == running_.end()) return;
  TakeOut(sequence, entry->second, plan);
  entry->second.planned = plans_ - 1;
}

void Scheduler::DropEnded(StepPlan& plan) {
  RemoveChunks(plan, [](const Chunk& chunk) { return !IsRunning(*chunk.sequence); });
  std::erase_if(plan.admitted, [](const Sequence* sequence) { return !IsRunning(*sequence); });
}

void Scheduler::Extend(StepPlan& plan, bool may_preempt) {
  RefreshRunning();
  AddDecodes(plan, may_preempt);
  LengthenDecodes(plan);
  if (plan.decodes == 0 && plan.max_long_prompt_tokens == 0) {
    plan.max_long_prompt_tokens = options_.max_prefill_tokens;  // no other prefill runs in the step
  }
  if (plan.max_long_prompt_tokens == 0) return;
  AdmitSmaller(plan);
  if (last_left_ != plans_) AddPrefills(plan);
}

// Looks at each running sequence once: readers take results meanwhile, and the set of parked
// sequences must not change while a plan is made.
void Scheduler::RefreshRunning() {
  decodes_.clear();
  parked_.clear();
  for (auto& [sequence, info] : running_) {
    const bool planned = info.planned == plans_;
    SetPlaces(info, PlacesOf(*sequence), !planned && WaitsForReader(*sequence));
    SetPrefilling(*sequence, info, !info.parked && IsPrefill(*sequence));
    if (info.parked) {
      parked_.push_back(sequence);
    } else if (!planned && IsDecode(*sequence)) {
      decodes_.emplace_back(sequence, &info);
    }
  }
}

void Scheduler::AddDecodes(StepPlan& plan, bool may_preempt) {
  // Seniors come first, because they preempt juniors.
  for (const auto& [sequence, info] : decodes_) {
    if (plan.decodes + plan.prefill_tokens >= options_.max_batch_tokens) return;
    if (plan.rows >= max_logits_rows_) return;
    if (!IsDecode(*sequence)) continue;  // preempted by an earlier one; its info is gone
    if (!GrowByPreempting(*sequence, plan, may_preempt)) continue;
    AddChunk({sequence, sequence->computed(), 1, sequence->RowsWanted(1), /*decode=*/true}, plan);
    info->planned = plans_;
    info->queue->counter->Charge(0, 1);
  }
}

void Scheduler::LengthenDecodes(StepPlan& plan) {
  for (Chunk& chunk : plan.chunks) {
    Sequence& sequence = *chunk.sequence;
    if (!chunk.decode || sequence.remaining() <= chunk.num_tokens) continue;
    const int64_t before = chunk.num_tokens;
    Count(chunk, -1, plan);
    const int64_t more =
        std::min({options_.max_prefill_tokens - plan.prefill_tokens,
                  options_.max_batch_tokens - plan.decodes - plan.prefill_tokens - 1,
                  plan.max_long_prompt_tokens - plan.long_prompt_tokens});
    int64_t tokens = std::max(sequence.LongestChunk(1 + more, MaxRows(sequence, plan)), before);
    if (!sequence.Grow(pool_, sequence.computed() + tokens)) tokens = before;
    chunk.num_tokens = tokens;
    chunk.num_rows = sequence.RowsWanted(tokens);
    chunk.num_draft = sequence.DraftTokens(tokens);
    Count(chunk, +1, plan);
    running_.find(&sequence)->second.queue->counter->Charge(tokens - before, 0);
  }
}

bool Scheduler::GrowByPreempting(Sequence& sequence, StepPlan& plan, bool may_preempt) {
  while (!sequence.Grow(pool_, sequence.computed() + 1)) {
    if (!parked_.empty()) {
      PreemptParked();
      continue;
    }
    if (!may_preempt) return false;
    Sequence* const least_entitled = LeastEntitled();
    if (least_entitled == &sequence) return false;
    PreemptPlanned(*least_entitled, plan);
  }
  return true;
}

void Scheduler::TakeOut(const Sequence& sequence, const RunningInfo& info, StepPlan& plan) {
  const int64_t prefill = plan.prefill_tokens;
  const int64_t decodes = plan.decodes;
  RemoveChunks(plan, [&](const Chunk& chunk) { return chunk.sequence == &sequence; });
  info.queue->counter->Charge(plan.prefill_tokens - prefill, plan.decodes - decodes);
}

void Scheduler::PreemptPlanned(Sequence& sequence, StepPlan& plan) {
  TakeOut(sequence, running_.find(&sequence)->second, plan);
  std::erase(plan.admitted, &sequence);
  Preempt(sequence);
}

void Scheduler::AddPrefills(StepPlan& plan) {
  PrefillOrder turns(queues_, blocker_.queue);
  const int64_t max_prefill_tokens = MaxPrefillTokens(plan);
  while (plan.prefill_tokens < max_prefill_tokens &&
         plan.decodes + plan.prefill_tokens < options_.max_batch_tokens) {
    Sequence* const sequence = turns.Next();
    if (sequence == nullptr) return;
    if (sequence->state() == SequenceState::kWaiting) {
      if (plan.long_prompt_tokens >= plan.max_long_prompt_tokens && !IsShort(*sequence)) continue;
      if (!Admit(*sequence, /*plan=*/nullptr)) {
        turns.StopAdmitting();
        continue;
      }
      plan.admitted.push_back(sequence);
    }
    AddPrefill(*sequence, max_prefill_tokens, plan);
  }
}

void Scheduler::AddPrefill(Sequence& sequence, int64_t max_prefill_tokens, StepPlan& plan) {
  RunningInfo& info = running_.find(&sequence)->second;
  if (info.planned == plans_) return;
  int64_t max_tokens = std::min(max_prefill_tokens - plan.prefill_tokens,
                                options_.max_batch_tokens - plan.decodes - plan.prefill_tokens);
  if (!info.short_prompt) {
    max_tokens = std::min(max_tokens, plan.max_long_prompt_tokens - plan.long_prompt_tokens);
  }
  const int64_t tokens = sequence.LongestChunk(max_tokens, MaxRows(sequence, plan));
  if (tokens <= 0) return;
  AddChunk({.sequence = &sequence,
            .first_position = sequence.computed(),
            .num_tokens = tokens,
            .num_rows = sequence.RowsWanted(tokens),
            .decode = false,
            .long_prompt = !info.short_prompt,
            .num_draft = sequence.DraftTokens(tokens)},
           plan);
  info.planned = plans_;
  info.queue->counter->Charge(tokens, 0);
}

int64_t Scheduler::MaxRows(const Sequence& sequence, const StepPlan& plan) const {
  const int64_t rows = std::min(max_logits_rows_ - plan.rows, sequence.Room());
  return sequence.draft().empty() ? rows : std::min(rows, max_draft_rows_ - plan.draft_tokens + 1);
}

bool Scheduler::IsShort(const Sequence& sequence) const {
  return sequence.remaining() <= options_.short_prompt_tokens;
}

}  // namespace tlm
