#include "client/cpp/target_picker.h"

namespace tlm::client {

std::optional<size_t> TargetPicker::Next(absl::Time now, const std::set<size_t>& excluded) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::optional<size_t> choice;
  for (size_t i = 0; i < failed_.size(); ++i) {
    const size_t target = (next_ + i) % failed_.size();
    if (excluded.contains(target)) continue;
    const bool avoided = now < failed_[target] + kAvoidFor;
    if (!choice || !avoided) choice = target;
    if (!avoided) break;
  }
  if (choice) next_ = (*choice + 1) % failed_.size();
  return choice;
}

void TargetPicker::MarkFailed(size_t target, absl::Time now) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = now;
}

void TargetPicker::MarkServing(size_t target) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = absl::InfinitePast();
}

}  // namespace tlm::client
