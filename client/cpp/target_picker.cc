#include "client/cpp/target_picker.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/affinity.h"

namespace tlm::client {
namespace {

std::vector<uint64_t> HashesOf(const std::vector<std::string>& targets) {
  std::vector<uint64_t> hashes;
  for (const std::string& target : targets) hashes.push_back(HashOf(target));
  return hashes;
}

}  // namespace

TargetPicker::RunningCall::RunningCall(TargetPicker* picker, size_t target)
    : picker_(picker), target_(target) {
  std::lock_guard<std::mutex> lock(picker_->mutex_);
  ++picker_->running_[target_];
}

TargetPicker::RunningCall::~RunningCall() {
  std::lock_guard<std::mutex> lock(picker_->mutex_);
  --picker_->running_[target_];
}

TargetPicker::TargetPicker(const std::vector<std::string>& targets)
    : names_(HashesOf(targets)),
      failed_(targets.size(), absl::InfinitePast()),
      running_(targets.size(), 0) {}

std::optional<size_t> TargetPicker::Next(absl::Time now, const std::set<size_t>& excluded) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<size_t> candidates = Candidates(now, excluded);
  if (candidates.empty()) return std::nullopt;
  const auto found = std::lower_bound(candidates.begin(), candidates.end(), next_);
  const size_t choice = found == candidates.end() ? candidates.front() : *found;
  next_ = (choice + 1) % size();
  return choice;
}

std::optional<size_t> TargetPicker::NextFor(uint64_t affinity, absl::Time now,
                                            const std::set<size_t>& excluded) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<size_t> candidates = Candidates(now, excluded);
  if (candidates.empty()) return std::nullopt;
  std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    return RendezvousScore(affinity, names_[a]) > RendezvousScore(affinity, names_[b]);
  });
  // With the call that is to start, so that one candidate at least is below the bound.
  size_t calls = 1;
  for (const size_t target : candidates) calls += running_[target];
  const double share = static_cast<double>(calls) / static_cast<double>(candidates.size());
  const size_t bound = std::max(kFreeCalls, static_cast<size_t>(std::ceil(kMaxLoadFactor * share)));
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](size_t target) { return running_[target] < bound; });
}

void TargetPicker::MarkFailed(size_t target, absl::Time now) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = now;
}

void TargetPicker::MarkServing(size_t target) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = absl::InfinitePast();
}

std::vector<size_t> TargetPicker::Candidates(absl::Time now,
                                             const std::set<size_t>& excluded) const {
  std::vector<size_t> left;
  std::vector<size_t> healthy;
  for (size_t target = 0; target < size(); ++target) {
    if (excluded.contains(target)) continue;
    left.push_back(target);
    if (now >= failed_[target] + kAvoidFor) healthy.push_back(target);
  }
  return healthy.empty() ? left : healthy;
}

}  // namespace tlm::client
