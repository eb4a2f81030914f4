#include "model/constraint/regex_dfa.h"

#include <algorithm>
#include <utility>

namespace tlm {

RegexDfa::RegexDfa(RegexSet& regexes, ByteRegex start, size_t max_states)
    : regexes_(regexes), max_states_(max_states), start_(StateOf(start)) {}

RegexDfa::State RegexDfa::StateOf(ByteRegex regex) {
  if (!IsLive(regex)) return kDead;
  const auto found = by_regex_.find(regex);
  if (found != by_regex_.end()) return found->second;
  if (states_.size() >= max_states_) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(states_.size());
  states_.push_back({regex, {}});
  states_.back().next.fill(kUnknown);
  by_regex_.emplace(regex, state);
  return state;
}

RegexDfa::State RegexDfa::Fill(State state, uint8_t byte) {
  const ByteRegex regex = states_[static_cast<size_t>(state)].regex;
  const State next = StateOf(regexes_.Derivative(regex, byte));
  const ByteSet same = regexes_.SameDerivative(regex, byte);
  std::array<int32_t, 256>& row = states_[static_cast<size_t>(state)].next;
  for (int other = 0; other < 256; ++other) {
    if (same.Has(static_cast<uint8_t>(other))) row[static_cast<size_t>(other)] = next;
  }
  return next;
}

bool RegexDfa::IsLive(ByteRegex regex) {
  if (regexes_.IsPositive(regex)) return regex != RegexSet::kNone;
  if (const auto known = live_.find(regex); known != live_.end()) return known->second;
  // Depth first; `path` leads to what is looked at.
  struct Step {
    ByteRegex regex;
    ByteSet left = ByteSet::All();  // bytes not tried
  };
  std::vector<Step> path = {{regex}};
  std::vector<ByteRegex> visited = {regex};
  live_.emplace(regex, false);
  const auto succeed = [&] {
    for (const Step& step : path) live_[step.regex] = true;
    // Those beside the path may reach it: they are to be searched again.
    for (const ByteRegex other : visited) {
      if (!live_[other]) live_.erase(other);
    }
    return true;
  };
  while (!path.empty()) {
    Step& step = path.back();
    if (regexes_.HasEmpty(step.regex)) return succeed();
    if (step.left.empty() || regexes_.full()) {
      path.pop_back();
      continue;
    }
    int byte = 0;
    while (!step.left.Has(static_cast<uint8_t>(byte))) ++byte;
    const auto tried = static_cast<uint8_t>(byte);
    step.left = step.left & ~regexes_.SameDerivative(step.regex, tried);
    const ByteRegex next = regexes_.Derivative(step.regex, tried);
    const auto [known, is_new] = live_.emplace(next, false);
    if (known->second) return succeed();
    if (!is_new) continue;
    if (visited.size() >= max_states_) {
      full_ = true;
      return false;
    }
    visited.push_back(next);
    path.push_back({next});
  }
  return false;
}

}  // namespace tlm
