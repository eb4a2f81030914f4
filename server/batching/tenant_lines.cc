#include "server/batching/tenant_lines.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

// One whose reader takes nothing would take blocks just to be parked with them.
bool HasRoom(const Sequence* sequence) { return sequence->Room() > 0; }

}  // namespace

bool ByUrgency::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(a->request().deadline, a->number()) <
         std::tuple(b->request().deadline, b->number());
}

void TenantLines::Join(const Sequence& sequence) {
  const Request& request = sequence.request();
  Level& level = levels_[request.priority];
  TenantLine& line = level.lines[request.tenant];
  if (line.members++ > 0) return;
  line.counter = &level.counters.Hold(request.tenant);
  ++lines_;
}

void TenantLines::Leave(const Sequence& member) {
  const Request& request = member.request();
  TenantLine& line = LineOf(member);
  if (--line.members > 0) return;
  TLM_CHECK(line.waiting.empty() && line.prefilling.empty());
  Level& level = levels_.at(request.priority);
  level.counters.Release(request.tenant);
  level.lines.erase(request.tenant);
  --lines_;
  if (level.lines.empty()) levels_.erase(request.priority);
}

TenantLine* TenantLines::Find(const Sequence& sequence) {
  const auto level = levels_.find(sequence.request().priority);
  if (level == levels_.end()) return nullptr;
  const auto line = level->second.lines.find(sequence.request().tenant);
  return line == level->second.lines.end() ? nullptr : &line->second;
}

TenantLine& TenantLines::LineOf(const Sequence& member) {
  TenantLine* const line = Find(member);
  TLM_CHECK(line != nullptr);
  return *line;
}

void TenantLines::Wait(Sequence& member) {
  LineOf(member).waiting.insert(&member);
  ++waiting_;
}

bool TenantLines::StopWaiting(Sequence& sequence) {
  TenantLine* const line = Find(sequence);
  if (line == nullptr || line->waiting.erase(&sequence) == 0) return false;
  --waiting_;
  return true;
}

std::vector<Sequence*> TenantLines::FirstWaiting() const {
  std::vector<Sequence*> first;
  for (const auto& [priority, level] : levels_) {
    for (const auto& [tenant, line] : level.lines) {
      const auto head = std::find_if(line.waiting.begin(), line.waiting.end(), HasRoom);
      if (head != line.waiting.end()) first.push_back(*head);
    }
    if (!first.empty()) break;
  }
  return first;
}

PrefillTurns::PrefillTurns(TenantLines& lines, const TenantLine* at_door) {
  for (auto& [priority, level] : lines.levels_) {
    Contenders contenders = ContendersOf(priority, level);
    const bool door_is_held =
        std::any_of(contenders.begin(), contenders.end(), [&](const Contender& contender) {
          return contender.line == at_door && contender.waiting != at_door->waiting.end();
        });
    if (door_is_held) AdmitOnlyFrom(at_door, contenders);
    heap_.insert(heap_.end(), contenders.begin(), contenders.end());
  }
  std::make_heap(heap_.begin(), heap_.end(), GoesAfter());
}

PrefillTurns::Contenders PrefillTurns::ContendersOf(int32_t priority, TenantLines::Level& level) {
  Contenders contenders;
  std::vector<TenantCounters::Counter*> wanting;
  for (auto& [tenant, line] : level.lines) {
    Contender contender{.priority = priority,
                        .line = &line,
                        .door_open = true,
                        .prefilling = line.prefilling.begin(),
                        .waiting = line.waiting.begin()};
    if (!FindHead(contender)) continue;
    contenders.push_back(contender);
    wanting.push_back(line.counter);
  }
  level.counters.BeginStep(wanting);
  return contenders;
}

bool PrefillTurns::GoesAfter::operator()(const Contender& a, const Contender& b) const {
  const auto rank = [](const Contender& contender) {
    return std::tuple(-int64_t{contender.priority}, contender.line->counter->tokens(),
                      contender.head->request().deadline, contender.head->number());
  };
  return rank(a) > rank(b);
}

bool PrefillTurns::FindHead(Contender& contender) {
  const TenantLine& line = *contender.line;
  Place& waiting = contender.waiting;
  contender.head = contender.prefilling == line.prefilling.end() ? nullptr : *contender.prefilling;
  if (!contender.door_open) return contender.head != nullptr;
  waiting = std::find_if(waiting, line.waiting.end(), HasRoom);
  if (waiting == line.waiting.end()) return contender.head != nullptr;
  if (contender.head == nullptr || ByUrgency()(*waiting, contender.head)) {
    contender.head = *waiting;
  }
  return true;
}

Sequence* PrefillTurns::Next() {
  if (taken_.has_value() && FindHead(*taken_)) {
    heap_.push_back(*taken_);
    std::push_heap(heap_.begin(), heap_.end(), GoesAfter());
  }
  taken_.reset();
  if (heap_.empty()) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end(), GoesAfter());
  Contender& contender = taken_.emplace(heap_.back());
  heap_.pop_back();
  // Past it at once: the caller may move it from the waiting to the prefilling.
  const bool prefills = contender.prefilling != contender.line->prefilling.end() &&
                        *contender.prefilling == contender.head;
  ++(prefills ? contender.prefilling : contender.waiting);
  return contender.head;
}

void PrefillTurns::CloseDoor() {
  if (taken_.has_value()) taken_->door_open = false;
  AdmitOnlyFrom(nullptr, heap_);
  std::make_heap(heap_.begin(), heap_.end(), GoesAfter());
}

void PrefillTurns::AdmitOnlyFrom(const TenantLine* line, Contenders& contenders) {
  std::erase_if(contenders, [line](Contender& contender) {
    contender.door_open = contender.line == line;
    return !FindHead(contender);
  });
}

}  // namespace tlm
