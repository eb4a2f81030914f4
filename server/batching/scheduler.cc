#include "server/batching/scheduler.h"

#include <algorithm>
#include <tuple>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

bool IsDecode(const Sequence& sequence) { return sequence.state() == SequenceState::kDecoding; }

// No token of it can be computed until its reader takes rows.
bool WaitsForReader(const Sequence& sequence) {
  return sequence.delivers_rows() && sequence.RowsWanted(1) > 0 &&
         sequence.stream().RoomForRows() <= 0;
}

// Rows its reader has room for; drawn and scored tokens always fit.
int64_t RoomForRows(const Sequence& sequence, int64_t rows) {
  return sequence.delivers_rows() ? std::min(rows, sequence.stream().RoomForRows()) : rows;
}

}  // namespace

bool Scheduler::BySeniority::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(b->request().priority, a->number()) <
         std::tuple(a->request().priority, b->number());
}

bool Scheduler::ByUrgency::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(b->request().priority, a->request().deadline, a->number()) <
         std::tuple(a->request().priority, b->request().deadline, b->number());
}

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool)
    : limits_{.max_batch_tokens = limits.max_batch_tokens,
              .max_prefill_tokens = limits.max_prefill_tokens,
              .max_running_sequences = std::min(
                  {limits.max_running_sequences, limits.max_batch_tokens, limits.max_logits_rows}),
              .max_logits_rows = limits.max_logits_rows},
      pool_(pool) {
  TLM_CHECK(limits_.max_prefill_tokens > 0 && limits_.max_running_sequences > 0);
}

void Scheduler::Add(Sequence& sequence) { waiting_.insert(&sequence); }

std::optional<BlockCopy> Scheduler::AddBranch(const Sequence& parent, Sequence& branch) {
  if (PlacesTaken() >= limits_.max_running_sequences || !branch.ShareBlocks(parent, pool_)) {
    Add(branch);
    return std::nullopt;
  }
  Run(branch);
  if (branch.computed() % kBlockTokens == 0) return std::nullopt;
  const size_t last = branch.blocks().size() - 1;
  return BlockCopy{.from = parent.blocks()[last], .to = branch.blocks()[last]};
}

void Scheduler::Remove(Sequence& sequence) {
  waiting_.erase(&sequence);
  running_.erase(&sequence);
  sequence.set_running(false);
  sequence.ReleaseBlocks(pool_);
}

StepPlan Scheduler::Plan() {
  StepPlan plan;
  Budget budget{.tokens = limits_.max_batch_tokens,
                .prefill_tokens = limits_.max_prefill_tokens,
                .rows = limits_.max_logits_rows};
  PlanDecodes(budget, plan);
  PlanPrefills(budget, plan);
  return plan;
}

void Scheduler::PlanDecodes(Budget& budget, StepPlan& plan) {
  // Seniors first: they preempt only juniors and parked ones, which are not in the plan yet.
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    Sequence& sequence = **it;
    if (!IsDecode(sequence) || !GrowByPreempting(sequence)) continue;
    plan.chunks.push_back({&sequence, sequence.computed(), 1, 1});
    --budget.tokens;
    --budget.rows;
  }
}

void Scheduler::PlanPrefills(Budget& budget, StepPlan& plan) {
  std::vector<Sequence*> prefilling;
  for (Sequence* sequence : running_) {
    if (!IsDecode(*sequence) && !WaitsForReader(*sequence)) prefilling.push_back(sequence);
  }
  std::sort(prefilling.begin(), prefilling.end(), ByUrgency());

  auto running = prefilling.begin();
  auto waiting = waiting_.begin();
  bool admitting = true;
  while (budget.tokens > 0 && budget.prefill_tokens > 0) {
    const bool any_waiting = admitting && waiting != waiting_.end();
    if (!any_waiting && running == prefilling.end()) break;
    if (any_waiting && (running == prefilling.end() || ByUrgency()(*waiting, *running))) {
      Sequence& sequence = **waiting++;
      // Not only when its first token waits: it would take blocks just to be parked with them.
      if (RoomForRows(sequence, 1) <= 0) continue;
      admitting = Admit(sequence);
      if (!admitting) continue;
      plan.admitted.push_back(&sequence);
      AddPrefill(sequence, budget, plan);
    } else {
      AddPrefill(**running++, budget, plan);
    }
  }
}

void Scheduler::AddPrefill(Sequence& sequence, Budget& budget, StepPlan& plan) const {
  const int64_t tokens = sequence.LongestChunk(std::min(budget.tokens, budget.prefill_tokens),
                                               RoomForRows(sequence, budget.rows));
  if (tokens == 0) return;
  const int64_t rows = sequence.RowsWanted(tokens);
  plan.chunks.push_back({&sequence, sequence.computed(), tokens, rows});
  budget.tokens -= tokens;
  budget.prefill_tokens -= tokens;
  budget.rows -= rows;
}

bool Scheduler::GrowByPreempting(Sequence& sequence) {
  while (!sequence.Grow(pool_, sequence.computed() + 1)) {
    Sequence* const victim = ChooseVictim(sequence);
    if (victim == nullptr) return false;
    Preempt(*victim);
  }
  return true;
}

Sequence* Scheduler::ChooseVictim(const Sequence& for_whom) const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (WaitsForReader(**it)) return *it;
  }
  Sequence* const most_junior = *running_.rbegin();
  return most_junior == &for_whom ? nullptr : most_junior;
}

bool Scheduler::Admit(Sequence& sequence) {
  if (!MakeRoom(sequence)) return false;
  TLM_CHECK(sequence.Grow(pool_, sequence.cache_tokens()));
  waiting_.erase(&sequence);
  Run(sequence);
  return true;
}

void Scheduler::Run(Sequence& sequence) {
  running_.insert(&sequence);
  sequence.set_running(true);
}

bool Scheduler::MakeRoom(const Sequence& sequence) {
  std::vector<Sequence*> parked;  // juniors first
  int64_t active = 0;             // places of the others
  int64_t available = pool_.free_blocks();
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (WaitsForReader(**it)) {
      parked.push_back(*it);
      available += static_cast<int64_t>((*it)->blocks().size());
    } else {
      active += PlacesOf(**it);
    }
  }
  const int64_t places = PlacesOf(sequence);
  int64_t needed = BlocksFor(sequence.cache_tokens());
  if (active > 0) needed += active + places - 1;
  if (active + places > limits_.max_running_sequences || available < needed) return false;
  for (Sequence* other : parked) {
    if (PlacesTaken() + places <= limits_.max_running_sequences && pool_.free_blocks() >= needed) {
      break;
    }
    Preempt(*other);
  }
  return true;
}

int64_t Scheduler::PlacesOf(const Sequence& sequence) const {
  // One that wants more than there are must be admitted all the same; some branches wait then.
  return std::min(1 + sequence.branches(), limits_.max_running_sequences);
}

int64_t Scheduler::PlacesTaken() const {
  int64_t places = 0;
  for (const Sequence* sequence : running_) places += PlacesOf(*sequence);
  return places;
}

void Scheduler::Preempt(Sequence& sequence) {
  running_.erase(&sequence);
  sequence.set_running(false);
  sequence.ReleaseBlocks(pool_);
  sequence.CountPreemption();
  ++preemptions_;
  waiting_.insert(&sequence);
}

}  // namespace tlm
