#include "server/batching/tenant_counters.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

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
  if (wanting.empty()) return;  // the step before stays the one that counts
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
  // No tenant waits any more: what the last ones have had by now.
  for (const auto& [tenant, counter] : counters_) {
    if (counter.wanted_ == step_) smallest = std::min(smallest, counter.tokens_);
  }
  return smallest == kNone ? floor_ : smallest;
}

}  // namespace tlm
