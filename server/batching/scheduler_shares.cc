// The part of Scheduler that divides places and blocks among tenants.
#include <algorithm>
#include <iterator>

#include "model/ops/ops.h"
#include "server/batching/scheduler.h"

namespace tlm {
namespace {

// For this many plans, room is kept for a tenant that others yielded to, and steps stay short. So a
// tenant that sends requests one by one does not preempt sequences of others for each request.
constexpr int64_t kKeptPlans = 64;
// A sequence that must progress before it yields must grow by a block and by 1/kLengthPerGain of
// its length, which keeps recomputed work in proportion.
constexpr int64_t kLengthPerGain = 8;

}  // namespace

double Scheduler::ShareOf(const Holding& holding) const {
  const double places = static_cast<double>(max_running_);
  const double blocks = static_cast<double>(pool_.total_blocks());
  return std::max(static_cast<double>(holding.places) / places, holding.blocks / blocks);
}

Scheduler::Holdings Scheduler::Held() const {
  Holdings held;
  for (const auto& [sequence, info] : running_) {
    if (info.parked) continue;
    Holding& holding = held[info.queue];
    holding.places += info.places;
    for (const BlockId block : sequence->blocks()) {
      holding.blocks += 1 / static_cast<double>(pool_.users(block));
    }
  }
  return held;
}

Scheduler::Holding Scheduler::HoldingWith(const Holdings& held, const Sequence& sequence) {
  const auto found = held.find(&queues_.QueueOf(sequence));
  Holding holding = found == held.end() ? Holding() : found->second;
  holding.places += PlacesOf(sequence);
  holding.blocks += static_cast<double>(BlocksFor(sequence.cache_tokens()));
  return holding;
}

// Of equal shares, the one with more blocks is larger: a sequence with a long prompt and one with a
// short prompt have a place each.
bool Scheduler::IsLarger(const Holding& a, const Holding& b) const {
  return std::pair(ShareOf(a), a.blocks) > std::pair(ShareOf(b), b.blocks);
}

void Scheduler::AdmitSmaller(StepPlan& plan) {
  while (queues_.contended() && queues_.waiting() > 0) {
    Sequence* const next = NextSmaller();
    if (next == nullptr) return;
    if (plan.long_prompt_tokens >= plan.max_long_prompt_tokens && !IsShort(*next)) return;
    if (!Admit(*next, &plan)) return;
    plan.admitted.push_back(next);
    const bool is_short = running_.find(next)->second.short_prompt;
    if (is_short) LeaveStepTo(*next, plan);
    AddPrefill(*next, is_short ? options_.max_prefill_tokens : MaxPrefillTokens(plan), plan);
  }
}

int64_t Scheduler::MaxPrefillTokens(const StepPlan& plan) const {
  if (!last_left_.has_value() || plans_ - *last_left_ > kKeptPlans) {
    return options_.max_prefill_tokens;
  }
  return std::clamp(plan.short_step_tokens, int64_t{1}, options_.max_prefill_tokens);
}

// A short prompt's first step is as short as if the prompt were alone: sequences of tenants that
// hold more sit it out, provided that they were in the previous step.
void Scheduler::LeaveStepTo(const Sequence& smaller, StepPlan& plan) {
  if (last_left_ == plans_ - 1) return;
  last_left_ = plans_;
  std::vector<Sequence*> larger;
  const Holdings held = Held();
  const Holding& own = held.at(&queues_.QueueOf(smaller));
  for (const Chunk& chunk : plan.chunks) {
    const Sequence& other = *chunk.sequence;
    if (other.request().priority > smaller.request().priority) continue;
    if (IsLarger(held.at(&queues_.QueueOf(other)), own)) larger.push_back(chunk.sequence);
  }
  for (Sequence* const sequence : larger) TakeOut(*sequence, running_.at(sequence), plan);
}

// Of the first waiting sequence of each queue, returns the one with which its tenant would hold the
// least, if another tenant holds more than that. It overtakes the head-of-line blocker only if the
// blocker's tenant holds more already.
Sequence* Scheduler::NextSmaller() {
  const Holdings held = Held();
  Sequence* next = nullptr;
  Sequence* blocked = nullptr;
  for (Sequence* const first : queues_.FirstWaiting()) {
    if (&queues_.QueueOf(*first) == blocker_.queue) blocked = first;
    if (next == nullptr || IsLarger(HoldingWith(held, *next), HoldingWith(held, *first))) {
      next = first;
    }
  }
  if (next == nullptr) return nullptr;
  if (blocked != nullptr && next != blocked) {
    const auto holding = held.find(blocker_.queue);
    const double share = holding == held.end() ? 0 : ShareOf(holding->second);
    if (ShareOf(HoldingWith(held, *next)) >= share) next = blocked;
  }
  return AnotherHoldsMore(held, *next) ? next : nullptr;
}

bool Scheduler::AnotherHoldsMore(const Holdings& held, const Sequence& waiting) {
  const Holding own = HoldingWith(held, waiting);
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    const auto& [sequence, info] = entry;
    return !info.parked && sequence->request().priority <= waiting.request().priority &&
           sequence->request().tenant != waiting.request().tenant &&
           IsLarger(held.at(info.queue), own);
  });
}

std::vector<Sequence*> Scheduler::Yielding(const Sequence& smaller, const Room& kept,
                                           ReleaseCount released) {
  Holdings held = Held();
  const double share = ShareOf(HoldingWith(held, smaller));
  std::vector<Sequence*> chosen;
  int64_t active = ActivePlaces();
  while (true) {
    const Room missing =
        Missing(smaller, kept, active, pool_.available_blocks() + released.blocks());
    if (missing.places <= 0 && missing.blocks <= 0) return chosen;
    const auto next = NextToYield(smaller, share, missing.places > 0, held, chosen);
    if (next == running_.rend()) return {};
    const auto& [sequence, info] = *next;
    const int64_t released_before = released.blocks();
    released.Add(sequence->blocks());
    held[info.queue].places -= info.places;
    held[info.queue].blocks -= static_cast<double>(released.blocks() - released_before);
    active -= info.places;
    chosen.push_back(sequence);
  }
}

// Returns the newest sequence, at the lowest priority, of the tenant that holds the most of the
// missing resource.
Scheduler::Running::reverse_iterator Scheduler::NextToYield(const Sequence& smaller, double share,
                                                            bool by_places, const Holdings& held,
                                                            const std::vector<Sequence*>& chosen) {
  auto best = running_.rend();
  double most = 0;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const auto& [sequence, info] = *it;
    const int32_t priority = sequence->request().priority;
    if (priority > smaller.request().priority) break;
    if (best != running_.rend() && priority > best->first->request().priority) break;
    if (sequence->request().tenant == smaller.request().tenant) continue;
    if (!MayYield(*sequence, info)) continue;
    const Holding& holding = held.at(info.queue);
    const double size = by_places ? static_cast<double>(holding.places) : holding.blocks;
    if (size <= most || ShareOf(holding) <= share) continue;
    if (std::find(chosen.begin(), chosen.end(), sequence) != chosen.end()) continue;
    most = size;
    best = it;
  }
  return best;
}

// A sequence may yield once at any time. After that, and when it needs more than half of all
// blocks, which it has waited for, it yields only with progress since its admission.
bool Scheduler::MayYield(const Sequence& sequence, const RunningInfo& info) const {
  if (info.parked) return false;
  const int64_t blocks = static_cast<int64_t>(sequence.blocks().size());
  if (sequence.preemptions() == 0 && blocks <= pool_.total_blocks() / 2) return true;
  const int64_t length = static_cast<int64_t>(sequence.tokens().size());
  return length - info.tokens >= std::max(int64_t{kBlockTokens}, length / kLengthPerGain);
}

// Returns the newest sequence, at the lowest priority, of the tenant that holds the most blocks.
Sequence* Scheduler::LeastEntitled() {
  auto least = running_.rbegin();
  if (!queues_.contended()) return least->first;
  const Holdings held = Held();
  const auto blocks = [&](const RunningInfo& info) { return held.at(info.queue).blocks; };
  for (auto it = std::next(least); it != running_.rend(); ++it) {
    if (it->first->request().priority > least->first->request().priority) break;
    if (blocks(it->second) > blocks(least->second)) least = it;
  }
  return least->first;
}

Scheduler::Room Scheduler::RoomOf(const std::string& tenant) const {
  Room room;
  for (const auto& [sequence, info] : running_) {
    if (sequence->request().tenant != tenant) continue;
    room.places += info.places;
    room.blocks += static_cast<int64_t>(sequence->blocks().size());
  }
  return room;
}

void Scheduler::KeepRoom(const Sequence& sequence) {
  const Room room = RoomOf(sequence.request().tenant);
  KeptRoom& kept = kept_rooms_[sequence.request().tenant];
  if (room.places < kept.room.places && room.blocks < kept.room.blocks) return;
  kept = {.room = room, .priority = sequence.request().priority, .since = plans_};
}

void Scheduler::ForgetKeptRooms() {
  std::erase_if(kept_rooms_,
                [this](const auto& entry) { return plans_ - entry.second.since > kKeptPlans; });
}

Scheduler::Room Scheduler::KeptForOthers(const Sequence& sequence) const {
  Room others;
  for (const auto& [tenant, kept] : kept_rooms_) {
    if (tenant == sequence.request().tenant) continue;
    if (kept.priority < sequence.request().priority) continue;
    const Room taken = RoomOf(tenant);
    others.places += std::max(kept.room.places - taken.places, int64_t{0});
    others.blocks += std::max(kept.room.blocks - taken.blocks, int64_t{0});
  }
  return others;
}

}  // namespace tlm
