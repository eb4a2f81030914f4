// The part of Scheduler that decides which sequences run: places, blocks, preemption.
#include <algorithm>
#include <tuple>

#include "model/ops/ops.h"
#include "server/batching/scheduler.h"

namespace tlm {
namespace {

// A sequence that did not fit is tried again after this many plans even if no room became free:
// others may have published blocks that it can share.
constexpr int64_t kPlansBetweenTries = 16;

}  // namespace

bool Scheduler::BySeniority::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(b->request().priority, a->number()) <
         std::tuple(a->request().priority, b->number());
}

void Scheduler::Add(Sequence& sequence) {
  queues_.Join(sequence);
  queues_.Wait(sequence);
}

std::optional<BlockCopy> Scheduler::AddBranch(Sequence& parent, Sequence& branch) {
  queues_.Join(branch);
  // The parent kept a place for this branch while it was among the parent's branches.
  if (const auto entry = running_.find(&parent); entry != running_.end()) {
    SetPlaces(entry->second, PlacesOf(parent), entry->second.parked);
  }
  if (places_ >= max_running_ || !branch.ShareBlocks(parent, pool_)) {
    queues_.Wait(branch);
    return std::nullopt;
  }
  Run(branch);
  if (branch.computed() % kBlockTokens == 0) return std::nullopt;
  const size_t last = branch.blocks().size() - 1;
  return BlockCopy{.from = parent.blocks()[last], .to = branch.blocks()[last]};
}

void Scheduler::Remove(Sequence& sequence) {
  if (const auto entry = running_.find(&sequence); entry != running_.end()) {
    if (entry->second.keeps_room) KeepRoom(sequence);
    StopRunning(entry);
  } else if (!queues_.StopWaiting(sequence)) {
    return;
  }
  queues_.Leave(sequence);
  if (blocker_.number == sequence.number()) blocker_ = HeadOfLineBlocker();
}

bool Scheduler::Admit(Sequence& sequence, StepPlan* plan) {
  if (StillBlocked(sequence)) return false;
  if (cache_ != nullptr) sequence.AdoptPrefix(*cache_);
  if (!MakeRoom(sequence, plan) || !sequence.Grow(pool_, sequence.cache_tokens())) {
    sequence.ReleaseBlocks(pool_);
    blocker_ = {.queue = &queues_.QueueOf(sequence),
                .number = sequence.number(),
                .available_blocks = pool_.available_blocks(),
                .active_places = ActivePlaces(),
                .tried = plans_};
    return false;
  }
  if (blocker_.number == sequence.number()) blocker_ = HeadOfLineBlocker();
  queues_.StopWaiting(sequence);
  Run(sequence);
  return true;
}

// Saves a try, which looks at every block of the prompt.
bool Scheduler::StillBlocked(const Sequence& sequence) const {
  return blocker_.number == sequence.number() && plans_ < blocker_.tried + kPlansBetweenTries &&
         pool_.available_blocks() <= blocker_.available_blocks &&
         ActivePlaces() >= blocker_.active_places;
}

Scheduler::Room Scheduler::Missing(const Sequence& sequence, const Room& kept, int64_t active,
                                   int64_t available) const {
  const int64_t places = PlacesOf(sequence);
  const int64_t own =
      BlocksFor(sequence.cache_tokens()) - static_cast<int64_t>(sequence.blocks().size());
  const int64_t spare = active > 0 ? active + places - 1 : 0;
  return {.places = active + places + kept.places - max_running_,
          .blocks = own + spare + kept.blocks - available};
}

bool Scheduler::MakeRoom(const Sequence& sequence, StepPlan* plan) {
  // No room is kept from a sequence that would run alone.
  const Room kept = ActivePlaces() > 0 ? KeptForOthers(sequence) : Room();
  const auto missing = [&](int64_t released) {
    return Missing(sequence, kept, ActivePlaces(), pool_.available_blocks() + released);
  };
  ReleaseCount of_parked(pool_);
  if (missing(0).blocks > 0) {
    for (const Sequence* parked : parked_) of_parked.Add(parked->blocks());
  }
  const Room lacks = missing(of_parked.blocks());
  if (lacks.places > 0 || lacks.blocks > 0) {
    if (plan == nullptr) return false;
    const std::vector<Sequence*> yielding = Yielding(sequence, kept, of_parked);
    if (yielding.empty()) return false;
    for (Sequence* const yields : yielding) PreemptPlanned(*yields, *plan);
    kept_rooms_[sequence.request().tenant].since = plans_;
  }
  while (!parked_.empty() &&
         (missing(0).blocks > 0 || places_ + PlacesOf(sequence) > max_running_)) {
    PreemptParked();
  }
  return missing(0).blocks <= 0;
}

int64_t Scheduler::PlacesOf(const Sequence& sequence) const {
  // A sequence that wants more places than there are must still be admitted; some branches then
  // wait.
  return std::min(1 + sequence.branches(), max_running_);
}

void Scheduler::SetPlaces(RunningInfo& info, int64_t places, bool parked) {
  places_ += places - info.places;
  parked_places_ += (parked ? places : 0) - (info.parked ? info.places : 0);
  num_parked_ += int64_t{parked} - int64_t{info.parked};
  info.places = places;
  info.parked = parked;
}

void Scheduler::SetPrefilling(Sequence& sequence, RunningInfo& info, bool prefilling) {
  if (info.prefilling == prefilling) return;
  info.prefilling = prefilling;
  if (prefilling) {
    info.queue->prefilling.insert(&sequence);
  } else {
    info.queue->prefilling.erase(&sequence);
  }
}

void Scheduler::Run(Sequence& sequence) {
  RunningInfo& info = running_[&sequence];
  info.queue = &queues_.QueueOf(sequence);
  info.tokens = static_cast<int64_t>(sequence.tokens().size());
  info.keeps_room = kept_rooms_.contains(sequence.request().tenant);
  info.short_prompt = IsShort(sequence);
  SetPlaces(info, PlacesOf(sequence), /*parked=*/false);
  sequence.set_running(true);
}

void Scheduler::StopRunning(Running::iterator entry) {
  auto& [sequence, info] = *entry;
  SetPlaces(info, 0, /*parked=*/false);
  SetPrefilling(*sequence, info, false);
  sequence->set_running(false);
  sequence->ReleaseBlocks(pool_);
  running_.erase(entry);
}

void Scheduler::Preempt(Sequence& sequence) {
  StopRunning(running_.find(&sequence));
  sequence.CountPreemption();
  ++preemptions_;
  queues_.Wait(sequence);
}

void Scheduler::PreemptParked() {
  Sequence* const most_junior = parked_.back();
  parked_.pop_back();
  Preempt(*most_junior);
}

}  // namespace tlm
