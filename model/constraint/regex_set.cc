#include "model/constraint/regex_set.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

namespace tlm {
namespace {

size_t Mix(size_t hash, uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

}  // namespace

RegexSet::RegexSet(size_t max_expressions)
    : max_expressions_(std::max<size_t>(max_expressions, 4)) {
  Intern({.kind = Kind::kNone}, {});
  Intern({.kind = Kind::kEmpty, .has_empty = true}, {});
  const std::array none = {kNone};
  Intern({.kind = Kind::kNot, .has_empty = true}, none);
}

ByteRegex RegexSet::Intern(Node node, std::span<const ByteRegex> parts, const ByteSet* set) {
  size_t hash = Mix(static_cast<size_t>(node.kind), static_cast<uint64_t>(node.min));
  hash = Mix(hash, static_cast<uint64_t>(node.max));
  for (const ByteRegex part : parts) hash = Mix(hash, static_cast<uint64_t>(part));
  if (set != nullptr) {
    for (int byte = 0; byte < 256; ++byte) {
      if (set->Has(static_cast<uint8_t>(byte))) hash = Mix(hash, static_cast<uint64_t>(byte));
    }
  }
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto found = first; found != last; ++found) {
    const Node& other = this->node(found->second);
    if (other.kind != node.kind || other.min != node.min || other.max != node.max) continue;
    if (set != nullptr ? SetOf(found->second) == *set
                       : std::ranges::equal(PartsOf(found->second), parts)) {
      return found->second;
    }
  }
  if (nodes_.size() >= max_expressions_) {
    full_ = true;
    return kNone;
  }
  // kAny is written as a complement.
  node.positive =
      node.kind == Kind::kNot
          ? parts[0] == kNone
          : node.kind != Kind::kAnd && node.kind != Kind::kState &&
                std::ranges::all_of(parts, [this](ByteRegex part) { return IsPositive(part); });
  if (set != nullptr) {
    node.begin = static_cast<int32_t>(sets_.size());
    sets_.push_back(*set);
  } else {
    // `parts` may lie in parts_.
    const std::vector<ByteRegex> copy(parts.begin(), parts.end());
    node.begin = static_cast<int32_t>(parts_.size());
    parts_.insert(parts_.end(), copy.begin(), copy.end());
    node.end = static_cast<int32_t>(parts_.size());
  }
  const ByteRegex regex{static_cast<int32_t>(nodes_.size())};
  nodes_.push_back(node);
  by_hash_.emplace(hash, regex);
  return regex;
}

ByteRegex RegexSet::Bytes(const ByteSet& set) {
  if (set.empty()) return kNone;
  return Intern({.kind = Kind::kBytes}, {}, &set);
}

ByteRegex RegexSet::Literal(std::string_view text) {
  ByteRegex regex = kEmpty;
  for (size_t i = text.size(); i-- > 0;) {
    regex = Concat(Bytes(ByteSet::Of(static_cast<uint8_t>(text[i]))), regex);
  }
  return regex;
}

ByteRegex RegexSet::Concat(std::span<const ByteRegex> parts) {
  ByteRegex regex = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) regex = Concat(parts[i], regex);
  return regex;
}

// Chains hang to the right: equal strings of parts are equal expressions.
ByteRegex RegexSet::Concat(ByteRegex first, ByteRegex rest) {
  if (first == kNone || rest == kNone) return kNone;
  if (first == kEmpty) return rest;
  if (rest == kEmpty) return first;
  if (first == kAny && rest == kAny) return kAny;
  if (node(first).kind == Kind::kConcat) {
    const std::array parts = {PartsOf(first)[0], PartsOf(first)[1]};
    return Concat(parts[0], Concat(parts[1], rest));
  }
  const std::array parts = {first, rest};
  return Intern({.kind = Kind::kConcat, .has_empty = HasEmpty(first) && HasEmpty(rest)}, parts);
}

ByteRegex RegexSet::Or(std::span<const ByteRegex> parts) { return Combine(Kind::kOr, parts); }
ByteRegex RegexSet::And(std::span<const ByteRegex> parts) { return Combine(Kind::kAnd, parts); }

// Associative, commutative and idempotent; sets of bytes become one.
ByteRegex RegexSet::Combine(Kind kind, std::span<const ByteRegex> parts) {
  const bool is_or = kind == Kind::kOr;
  const ByteRegex neutral = is_or ? kNone : kAny;
  const ByteRegex absorbing = is_or ? kAny : kNone;
  std::vector<ByteRegex> flat;
  for (const ByteRegex part : parts) {
    if (node(part).kind == kind) {
      const auto inner = PartsOf(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  ByteSet bytes = is_or ? ByteSet() : ByteSet::All();
  bool has_bytes = false;
  std::vector<ByteRegex> rest;
  for (const ByteRegex part : flat) {
    if (part == absorbing) return absorbing;
    if (part == neutral) continue;
    if (node(part).kind == Kind::kBytes) {
      bytes = is_or ? bytes | SetOf(part) : bytes & SetOf(part);
      has_bytes = true;
    } else {
      rest.push_back(part);
    }
  }
  if (has_bytes) rest.push_back(Bytes(bytes));
  std::sort(rest.begin(), rest.end());
  rest.erase(std::unique(rest.begin(), rest.end()), rest.end());
  if (std::find(rest.begin(), rest.end(), absorbing) != rest.end()) return absorbing;
  for (const ByteRegex part : rest) {
    // x and its complement.
    if (node(part).kind == Kind::kNot &&
        std::binary_search(rest.begin(), rest.end(), PartsOf(part)[0])) {
      return absorbing;
    }
  }
  if (rest.empty()) return neutral;
  if (rest.size() == 1) return rest.front();
  const auto has_empty = [this](ByteRegex part) { return HasEmpty(part); };
  const bool empty = is_or ? std::any_of(rest.begin(), rest.end(), has_empty)
                           : std::all_of(rest.begin(), rest.end(), has_empty);
  return Intern({.kind = kind, .has_empty = empty}, rest);
}

ByteRegex RegexSet::Not(ByteRegex regex) {
  if (node(regex).kind == Kind::kNot) return PartsOf(regex)[0];
  const std::array parts = {regex};
  return Intern({.kind = Kind::kNot, .has_empty = !HasEmpty(regex)}, parts);
}

ByteRegex RegexSet::Repeat(ByteRegex regex, int32_t min, int32_t max) {
  if (max == 0 || regex == kEmpty) return kEmpty;
  if (regex == kNone) return min == 0 ? kEmpty : kNone;
  if (regex == kAny || (min == 1 && max == 1)) return regex == kAny && min == 0 ? kAny : regex;
  if (HasEmpty(regex)) min = 0;
  if (node(regex).kind == Kind::kBytes && SetOf(regex) == ByteSet::All() && min == 0 &&
      max == kUnbounded) {
    return kAny;
  }
  const std::array parts = {regex};
  return Intern(
      {.kind = Kind::kRepeat, .has_empty = min == 0 || HasEmpty(regex), .min = min, .max = max},
      parts);
}

ByteRegex RegexSet::StateOf(std::shared_ptr<const Automaton> automaton, int32_t state) {
  const bool accepts = automaton->Accepts(state);
  const auto found = std::find(automata_.begin(), automata_.end(), automaton);
  const auto index = static_cast<int32_t>(found - automata_.begin());
  if (found == automata_.end()) automata_.push_back(std::move(automaton));
  return Intern({.kind = Kind::kState, .has_empty = accepts, .min = index, .max = state}, {});
}

ByteRegex RegexSet::Derivative(ByteRegex regex, uint8_t byte) {
  const uint64_t key = static_cast<uint64_t>(regex) << 8 | byte;
  if (const auto known = derivatives_.find(key); known != derivatives_.end()) return known->second;
  const ByteRegex derivative = Derive(regex, byte);
  derivatives_.emplace(key, derivative);
  return derivative;
}

ByteRegex RegexSet::Derive(ByteRegex regex, uint8_t byte) {
  const Node of = node(regex);
  const std::span<const ByteRegex> all = PartsOf(regex);
  const std::vector<ByteRegex> parts(of.kind == Kind::kBytes ? all.begin() : all.begin(),
                                     of.kind == Kind::kBytes ? all.begin() : all.end());
  switch (of.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return kNone;
    case Kind::kBytes:
      return SetOf(regex).Has(byte) ? kEmpty : kNone;
    case Kind::kConcat: {
      const ByteRegex first = Concat(Derivative(parts[0], byte), parts[1]);
      return HasEmpty(parts[0]) ? Or(first, Derivative(parts[1], byte)) : first;
    }
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<ByteRegex> derived;
      for (const ByteRegex part : parts) derived.push_back(Derivative(part, byte));
      return Combine(of.kind, derived);
    }
    case Kind::kNot:
      return Not(Derivative(parts[0], byte));
    case Kind::kRepeat: {
      const int32_t max = of.max == kUnbounded ? kUnbounded : of.max - 1;
      return Concat(Derivative(parts[0], byte), Repeat(parts[0], std::max(of.min - 1, 0), max));
    }
    case Kind::kState: {
      const Automaton& automaton = *automata_[static_cast<size_t>(of.min)];
      const int32_t next = automaton.Next(of.max, byte);
      if (next == Automaton::kDead) return kNone;
      return Intern(
          {.kind = Kind::kState, .has_empty = automaton.Accepts(next), .min = of.min, .max = next},
          {});
    }
  }
  return kNone;
}

ByteSet RegexSet::SameDerivative(ByteRegex regex, uint8_t byte) const {
  const Node& of = node(regex);
  switch (of.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return ByteSet::All();
    case Kind::kBytes:
      return SetOf(regex).Has(byte) ? SetOf(regex) : ~SetOf(regex);
    case Kind::kConcat: {
      const auto parts = PartsOf(regex);
      const ByteSet first = SameDerivative(parts[0], byte);
      return HasEmpty(parts[0]) ? first & SameDerivative(parts[1], byte) : first;
    }
    case Kind::kState: {
      const Automaton& automaton = *automata_[static_cast<size_t>(of.min)];
      const int32_t next = automaton.Next(of.max, byte);
      ByteSet same;
      for (int other = 0; other < 256; ++other) {
        const auto as_byte = static_cast<uint8_t>(other);
        if (automaton.Next(of.max, as_byte) == next) same.Add(as_byte);
      }
      return same;
    }
    default: {
      ByteSet same = ByteSet::All();
      for (const ByteRegex part : PartsOf(regex)) same = same & SameDerivative(part, byte);
      return same;
    }
  }
}

}  // namespace tlm
