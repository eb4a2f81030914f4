#include "model/constraint/bytes/regex_dfa.h"

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
  if (regexes_.IsPlainlyLive(regex)) return true;
  if (const auto known = live_.find(regex); known != live_.end()) return known->second;
  // Searches depth first, but tests all next expressions before it descends. `path` leads to the
  // current expression.
  struct Step {
    ByteRegex regex;
    std::vector<ByteRegex> next;  // not visited yet
  };
  std::vector<Step> path;
  std::vector<ByteRegex> visited;
  bool is_live = false;
  const auto visit = [&](ByteRegex at) {
    path.push_back({at, {}});
    visited.push_back(at);
    live_.emplace(at, false);
    for (ByteSet left = ByteSet::All(); !left.empty() && !is_live && !regexes_.full();) {
      const uint8_t byte = left.First();
      left = left & ~regexes_.SameDerivative(at, byte);
      const ByteRegex next = regexes_.Derivative(at, byte);
      const auto known = live_.find(next);
      is_live = regexes_.IsPlainlyLive(next) || (known != live_.end() && known->second);
      if (known == live_.end() && next != RegexSet::kNone) path.back().next.push_back(next);
    }
  };
  visit(regex);
  while (!is_live && !path.empty() && !regexes_.full()) {
    std::vector<ByteRegex>& left = path.back().next;
    if (left.empty()) {
      path.pop_back();
      continue;
    }
    const ByteRegex next = left.back();
    left.pop_back();
    if (live_.contains(next)) continue;
    if (visited.size() >= max_states_) {
      full_ = true;
      return false;
    }
    visit(next);
  }
  if (!is_live) return false;
  // Visited expressions that are not on the path may reach a live one, so they are searched again
  // later.
  for (const ByteRegex other : visited) live_.erase(other);
  for (const Step& step : path) live_[step.regex] = true;
  return true;
}

}  // namespace tlm
