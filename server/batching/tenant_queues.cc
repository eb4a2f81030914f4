#include "server/batching/tenant_queues.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// A sequence whose reader takes nothing would take blocks only to be parked with them.
bool HasRoom(const Sequence* sequence) { return sequence->Room() > 0; }

}  // namespace

TenantCounters::Counter& TenantCounters::Hold(const std::string& tenant) {
  const auto [found, inserted] = counters_.try_emplace(tenant);
  Counter& counter = found->second;
  TLM_CHECK(!counter.held_);
  if (!inserted) idle_.erase(counter.idle_);
  counter.held_ = true;
  return counter;
}

void TenantCounters::Release(const std::string& tenant) {
  Counter& counter = counters_.at(tenant);
  TLM_CHECK(counter.held_);
  counter.held_ = false;
  counter.idle_ = idle_.insert(idle_.end(), tenant);
  if (idle_.size() <= kMaxIdle) return;
  counters_.erase(idle_.front());
  idle_.pop_front();
}

void TenantCounters::BeginStep(std::span<Counter* const> wanting) {
  if (wanting.empty()) return;  // the previous step stays the reference
  floor_ = Floor(wanting);
  ++step_;
  for (Counter* counter : wanting) {
    if (counter->wanted_ != step_ - 1) counter->tokens_ = std::max(counter->tokens_, floor_);
    counter->wanted_ = step_;
  }
}

int64_t TenantCounters::Floor(std::span<Counter* const> wanting) const {
  int64_t smallest = kNone;
  for (const Counter* counter : wanting) {
    if (counter->wanted_ == step_) smallest = std::min(smallest, counter->tokens_);
  }
  if (smallest != kNone) return smallest;
  // No tenant of the previous step waits any more: uses the counters that they reached.
  for (const auto& [tenant, counter] : counters_) {
    if (counter.wanted_ == step_) smallest = std::min(smallest, counter.tokens_);
  }
  return smallest == kNone ? floor_ : smallest;
}

bool ByUrgency::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(a->request().deadline, a->number()) <
         std::tuple(b->request().deadline, b->number());
}

void TenantQueues::Join(const Sequence& sequence) {
  const Request& request = sequence.request();
  Level& level = levels_[request.priority];
  TenantQueue& queue = level.queues[request.tenant];
  if (queue.members++ > 0) return;
  queue.counter = &level.counters.Hold(request.tenant);
  ++queues_;
}

void TenantQueues::Leave(const Sequence& member) {
  const Request& request = member.request();
  TenantQueue& queue = QueueOf(member);
  if (--queue.members > 0) return;
  TLM_CHECK(queue.waiting.empty() && queue.prefilling.empty());
  Level& level = levels_.at(request.priority);
  level.counters.Release(request.tenant);
  level.queues.erase(request.tenant);
  --queues_;
  if (level.queues.empty()) levels_.erase(request.priority);
}

TenantQueue* TenantQueues::Find(const Sequence& sequence) {
  const auto level = levels_.find(sequence.request().priority);
  if (level == levels_.end()) return nullptr;
  const auto queue = level->second.queues.find(sequence.request().tenant);
  return queue == level->second.queues.end() ? nullptr : &queue->second;
}

TenantQueue& TenantQueues::QueueOf(const Sequence& member) {
  TenantQueue* const queue = Find(member);
  TLM_CHECK(queue != nullptr);
  return *queue;
}

void TenantQueues::Wait(Sequence& member) {
  QueueOf(member).waiting.insert(&member);
  ++waiting_;
}

bool TenantQueues::StopWaiting(Sequence& sequence) {
  TenantQueue* const queue = Find(sequence);
  if (queue == nullptr || queue->waiting.erase(&sequence) == 0) return false;
  --waiting_;
  return true;
}

std::vector<Sequence*> TenantQueues::FirstWaiting() const {
  std::vector<Sequence*> first;
  for (const auto& [priority, level] : levels_) {
    for (const auto& [tenant, queue] : level.queues) {
      const auto head = std::find_if(queue.waiting.begin(), queue.waiting.end(), HasRoom);
      if (head != queue.waiting.end()) first.push_back(*head);
    }
    if (!first.empty()) break;
  }
  return first;
}

PrefillOrder::PrefillOrder(TenantQueues& queues, const TenantQueue* blocked) {
  for (auto& [priority, level] : queues.levels_) {
    Contenders contenders = ContendersOf(priority, level);
    const bool head_is_blocked =
        std::any_of(contenders.begin(), contenders.end(), [&](const Contender& contender) {
          return contender.queue == blocked && contender.waiting != blocked->waiting.end();
        });
    if (head_is_blocked) AdmitOnlyFrom(blocked, contenders);
    heap_.insert(heap_.end(), contenders.begin(), contenders.end());
  }
  std::make_heap(heap_.begin(), heap_.end(), GoesAfter());
}

PrefillOrder::Contenders PrefillOrder::ContendersOf(int32_t priority, TenantQueues::Level& level) {
  Contenders contenders;
  std::vector<TenantCounters::Counter*> wanting;
  for (auto& [tenant, queue] : level.queues) {
    Contender contender{.priority = priority,
                        .queue = &queue,
                        .may_admit = true,
                        .prefilling = queue.prefilling.begin(),
                        .waiting = queue.waiting.begin()};
    if (!FindHead(contender)) continue;
    contenders.push_back(contender);
    wanting.push_back(queue.counter);
  }
  level.counters.BeginStep(wanting);
  return contenders;
}

bool PrefillOrder::GoesAfter::operator()(const Contender& a, const Contender& b) const {
  const auto rank = [](const Contender& contender) {
    return std::tuple(-int64_t{contender.priority}, contender.queue->counter->tokens(),
                      contender.head->request().deadline, contender.head->number());
  };
  return rank(a) > rank(b);
}

bool PrefillOrder::FindHead(Contender& contender) {
  const TenantQueue& queue = *contender.queue;
  Place& waiting = contender.waiting;
  contender.head = contender.prefilling == queue.prefilling.end() ? nullptr : *contender.prefilling;
  if (!contender.may_admit) return contender.head != nullptr;
  waiting = std::find_if(waiting, queue.waiting.end(), HasRoom);
  if (waiting == queue.waiting.end()) return contender.head != nullptr;
  if (contender.head == nullptr || ByUrgency()(*waiting, contender.head)) {
    contender.head = *waiting;
  }
  return true;
}

Sequence* PrefillOrder::Next() {
  if (taken_.has_value() && FindHead(*taken_)) {
    heap_.push_back(*taken_);
    std::push_heap(heap_.begin(), heap_.end(), GoesAfter());
  }
  taken_.reset();
  if (heap_.empty()) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end(), GoesAfter());
  Contender& contender = taken_.emplace(heap_.back());
  heap_.pop_back();
  // Moves past the head at once: the caller may move it from the waiting to the prefilling ones.
  const bool prefills = contender.prefilling != contender.queue->prefilling.end() &&
                        *contender.prefilling == contender.head;
  ++(prefills ? contender.prefilling : contender.waiting);
  return contender.head;
}

void PrefillOrder::StopAdmitting() {
  if (taken_.has_value()) taken_->may_admit = false;
  AdmitOnlyFrom(nullptr, heap_);
  std::make_heap(heap_.begin(), heap_.end(), GoesAfter());
}

void PrefillOrder::AdmitOnlyFrom(const TenantQueue* queue, Contenders& contenders) {
  std::erase_if(contenders, [queue](Contender& contender) {
    contender.may_admit = contender.queue == queue;
    return !FindHead(contender);
  });
}

}  // namespace tlm
