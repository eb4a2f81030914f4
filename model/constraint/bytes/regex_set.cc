#include "model/constraint/bytes/regex_set.h"

#include <algorithm>
#include <utility>

namespace tlm {
namespace {

// How many parts of the same shape a part of a union or intersection is compared with.
constexpr size_t kMaxCompared = 64;

}  // namespace

RegexSet::RegexSet(size_t max_expressions)
    : max_expressions_(std::max<size_t>(max_expressions, 4)) {
  Intern({.kind = Kind::kNone}, {});
  Intern({.kind = Kind::kEmpty, .has_empty = true}, {});
  const std::array none = {kNone};
  Intern({.kind = Kind::kNot, .has_empty = true}, none);
}

ByteRegex RegexSet::Intern(Node node, std::span<const ByteRegex> parts, const ByteSet* set) {
  constexpr size_t kPartsPerExpression = 16;
  size_t hash = MixHash(static_cast<size_t>(node.kind), node.min);
  hash = MixHash(hash, node.max);
  for (const ByteRegex part : parts) hash = MixHash(hash, part);
  if (set != nullptr) {
    for (const uint64_t word : set->words()) hash = MixHash(hash, word);
  }
  const auto known = by_hash_.find(hash);
  const ByteRegex first = known == by_hash_.end() ? kNone : known->second;
  for (ByteRegex found = first; found != kNone; found = this->node(found).next_of_hash) {
    const Node& other = this->node(found);
    if (other.kind != node.kind || other.min != node.min || other.max != node.max) continue;
    if (set != nullptr ? SetOf(found) == *set : std::ranges::equal(PartsOf(found), parts)) {
      return found;
    }
  }
  const ByteRegex regex{static_cast<int32_t>(nodes_.size())};
  Describe(&node, regex, parts);
  if (nodes_.size() >= max_expressions_ || node.depth > kMaxDepth ||
      parts_.size() + parts.size() > kPartsPerExpression * max_expressions_) {
    full_ = true;
    return kNone;
  }
  if (set != nullptr) {
    node.begin = static_cast<int32_t>(sets_.size());
    sets_.push_back(*set);
  } else {
    // `parts` may be stored in parts_.
    const std::vector<ByteRegex> copy(parts.begin(), parts.end());
    node.begin = static_cast<int32_t>(parts_.size());
    parts_.insert(parts_.end(), copy.begin(), copy.end());
    node.end = static_cast<int32_t>(parts_.size());
  }
  node.next_of_hash = first;
  nodes_.push_back(node);
  if (regex != kNone) by_hash_[hash] = regex;
  return regex;
}

// Sets the fields of a node that follow from its parts.
void RegexSet::Describe(Node* node, ByteRegex regex, std::span<const ByteRegex> parts) const {
  const auto is_live = [this](ByteRegex part) { return IsPlainlyLive(part); };
  for (const ByteRegex part : parts) {
    // A part after one that is never empty is not derived.
    if (node->kind == Kind::kConcat && part != parts[0] && !HasEmpty(parts[0])) continue;
    node->depth = std::max(node->depth, this->node(part).depth + 1);
  }
  node->shape = MixHash(static_cast<size_t>(node->kind), regex);
  switch (node->kind) {
    case Kind::kBytes:
      node->live = true;
      node->shape = MixHash(static_cast<size_t>(node->kind), 0);
      break;
    case Kind::kConcat:
      node->live = is_live(parts[0]) && is_live(parts[1]);
      node->shape = MixHash(this->node(parts[0]).shape, this->node(parts[1]).shape);
      break;
    case Kind::kOr:
      node->live = std::ranges::any_of(parts, is_live);
      break;
    case Kind::kRepeat:
      node->live = is_live(parts[0]);
      node->shape = MixHash(static_cast<size_t>(node->kind), parts[0]);
      break;
    case Kind::kNot:
      node->shape = MixHash(static_cast<size_t>(node->kind), this->node(parts[0]).shape);
      break;
    case Kind::kState:
      node->live = automata_[static_cast<size_t>(node->min)]->IsPlainlyLive(node->max);
      break;
    default:
      break;
  }
  node->live = node->live || node->has_empty;
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

// Concatenations nest to the right, so that equal sequences of parts are equal expressions.
ByteRegex RegexSet::Concat(ByteRegex first, ByteRegex rest) {
  if (first == kNone || rest == kNone) return kNone;
  if (first == kEmpty) return rest;
  if (rest == kEmpty) return first;
  if (node(first).kind == Kind::kConcat) {
    std::vector<ByteRegex> links;
    ByteRegex last = first;
    for (; node(last).kind == Kind::kConcat; last = PartsOf(last)[1]) {
      links.push_back(PartsOf(last)[0]);
    }
    rest = Concat(last, rest);
    for (size_t i = links.size(); i-- > 0;) rest = Concat(links[i], rest);
    return rest;
  }
  const bool is_chain = node(rest).kind == Kind::kConcat;
  if (const auto joined = JoinRepeats(first, is_chain ? PartsOf(rest)[0] : rest)) {
    return is_chain ? Concat(*joined, PartsOf(rest)[1]) : *joined;
  }
  const std::array parts = {first, rest};
  return Intern({.kind = Kind::kConcat, .has_empty = HasEmpty(first) && HasEmpty(rest)}, parts);
}

// Joins two successive repetitions of r, of which at least one is not r itself, to one.
std::optional<ByteRegex> RegexSet::JoinRepeats(ByteRegex first, ByteRegex second) {
  if (first == kAny && second == kAny) return kAny;
  const bool is_first = node(first).kind == Kind::kRepeat;
  const bool is_second = node(second).kind == Kind::kRepeat;
  if (!is_first && !is_second) return std::nullopt;
  const ByteRegex repeated = is_first ? PartsOf(first)[0] : first;
  if (repeated != (is_second ? PartsOf(second)[0] : second)) return std::nullopt;
  const auto add = [](int32_t a, int32_t b) -> int32_t {
    if (a == kUnbounded || b == kUnbounded) return kUnbounded;
    return static_cast<int32_t>(std::min<int64_t>(int64_t{a} + b, kUnbounded));
  };
  const auto counts = [this](ByteRegex regex, bool is_repeat) {
    return is_repeat ? std::pair(node(regex).min, node(regex).max) : std::pair(1, 1);
  };
  const auto a = counts(first, is_first), b = counts(second, is_second);
  const int32_t min = add(a.first, b.first), max = add(a.second, b.second);
  const bool is_unbounded = a.second == kUnbounded || b.second == kUnbounded;
  if (min == kUnbounded || (max == kUnbounded && !is_unbounded)) return std::nullopt;
  return Repeat(repeated, min, max);
}

ByteRegex RegexSet::Or(std::span<const ByteRegex> parts) { return Combine(Kind::kOr, parts); }
ByteRegex RegexSet::And(std::span<const ByteRegex> parts) { return Combine(Kind::kAnd, parts); }

// Makes a union or intersection. Parts are flattened, sorted and deduplicated, and sets of bytes
// are merged.
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
  // The cost of sorting and comparing the parts.
  if (!meter_.Spend(4 * static_cast<int64_t>(flat.size()))) {
    full_ = true;
    return kNone;
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
  const auto sort = [&rest] {
    std::sort(rest.begin(), rest.end());
    rest.erase(std::unique(rest.begin(), rest.end()), rest.end());
  };
  sort();
  if (rest.size() > 1) {
    if (is_or) JoinAlternatives(&rest);
    DropImplied(is_or, &rest);
    sort();
  }
  if (std::find(rest.begin(), rest.end(), absorbing) != rest.end()) return absorbing;
  for (const ByteRegex part : rest) {
    // `part` is the complement of another part.
    if (node(part).kind == Kind::kNot &&
        std::binary_search(rest.begin(), rest.end(), PartsOf(part)[0])) {
      return absorbing;
    }
  }
  if (rest.empty()) return neutral;
  if (rest.size() == 1) return rest.front();
  if (!is_or && std::find(rest.begin(), rest.end(), kEmpty) != rest.end()) {
    const bool all =
        std::all_of(rest.begin(), rest.end(), [this](ByteRegex part) { return HasEmpty(part); });
    return all ? kEmpty : kNone;
  }
  const auto has_empty = [this](ByteRegex part) { return HasEmpty(part); };
  const bool empty = is_or ? std::any_of(rest.begin(), rest.end(), has_empty)
                           : std::all_of(rest.begin(), rest.end(), has_empty);
  return Intern({.kind = kind, .has_empty = empty}, rest);
}

// Joins two alternatives to one expression if they differ only in their first part, and there only
// in the bytes or in the counts.
std::optional<ByteRegex> RegexSet::Join(ByteRegex a, ByteRegex b) {
  if (node(a).kind == Kind::kConcat) {
    if (node(b).kind != Kind::kConcat || PartsOf(a)[1] != PartsOf(b)[1]) return std::nullopt;
    const ByteRegex rest = PartsOf(a)[1];
    const std::optional<ByteRegex> first = Join(PartsOf(a)[0], PartsOf(b)[0]);
    if (!first.has_value()) return std::nullopt;
    return Concat(*first, rest);
  }
  const Node& one = node(a);
  const Node& other = node(b);
  if (one.kind == Kind::kBytes && other.kind == Kind::kBytes) return Bytes(SetOf(a) | SetOf(b));
  if (one.kind != Kind::kRepeat || other.kind != Kind::kRepeat) return std::nullopt;
  const ByteRegex repeated = PartsOf(a)[0];
  const bool touch =
      int64_t{one.min} <= int64_t{other.max} + 1 && int64_t{other.min} <= int64_t{one.max} + 1;
  if (repeated != PartsOf(b)[0] || !touch) return std::nullopt;
  return Repeat(repeated, std::min(one.min, other.min), std::max(one.max, other.max));
}

// Joins alternatives with the same end. `parts` are sorted; afterwards they may be unsorted.
void RegexSet::JoinAlternatives(std::vector<ByteRegex>* parts) {
  // The rest after the first part, or the repeated part.
  const auto key = [this](ByteRegex part) {
    const Node& of = node(part);
    if (of.kind == Kind::kConcat) return PartsOf(part)[1];
    return of.kind == Kind::kRepeat ? PartsOf(part)[0] : part;
  };
  std::stable_sort(parts->begin(), parts->end(),
                   [&key](ByteRegex a, ByteRegex b) { return key(a) < key(b); });
  std::vector<ByteRegex> joined;
  for (const ByteRegex part : *parts) {
    bool is_new = true;
    for (size_t i = joined.size(), left = kMaxCompared;
         i-- > 0 && left-- > 0 && key(joined[i]) == key(part);) {
      if (const auto both = Join(joined[i], part)) {
        joined[i] = *both;
        is_new = false;
        break;
      }
    }
    if (is_new) joined.push_back(part);
  }
  *parts = std::move(joined);
}

// Drops alternatives that another alternative contains (IsWithin), or conditions that contain
// another condition.
void RegexSet::DropImplied(bool is_or, std::vector<ByteRegex>* parts) const {
  const auto shape = [this](ByteRegex part) { return node(part).shape; };
  std::sort(parts->begin(), parts->end(), [&shape](ByteRegex a, ByteRegex b) {
    return shape(a) != shape(b) ? shape(a) < shape(b) : a < b;
  });
  const bool other_has_empty = std::any_of(parts->begin(), parts->end(), [this](ByteRegex part) {
    return part != kEmpty && HasEmpty(part);
  });
  std::vector<ByteRegex> kept;
  for (const ByteRegex part : *parts) {
    if (is_or && part == kEmpty && other_has_empty) continue;
    bool implied = false;
    for (size_t i = kept.size(), left = kMaxCompared;
         i-- > 0 && left-- > 0 && !implied && shape(kept[i]) == shape(part);) {
      implied = is_or ? IsWithin(part, kept[i]) : IsWithin(kept[i], part);
      if (!implied && (is_or ? IsWithin(kept[i], part) : IsWithin(part, kept[i]))) {
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (!implied) kept.push_back(part);
  }
  *parts = std::move(kept);
}

// True only if `of` holds all strings of `part`. False says nothing.
bool RegexSet::IsWithin(ByteRegex part, ByteRegex of) const {
  while (part != of) {
    const Node& inner = node(part);
    const Node& outer = node(of);
    if (inner.shape != outer.shape || inner.kind != outer.kind) return false;
    switch (inner.kind) {
      case Kind::kBytes:
        return (SetOf(part) & ~SetOf(of)).empty();
      case Kind::kRepeat:
        return PartsOf(part)[0] == PartsOf(of)[0] && outer.min <= inner.min &&
               inner.max <= outer.max;
      case Kind::kConcat:
        if (!IsWithin(PartsOf(part)[0], PartsOf(of)[0])) return false;
        part = PartsOf(part)[1];
        of = PartsOf(of)[1];
        break;
      case Kind::kNot:
        return IsWithin(PartsOf(of)[0], PartsOf(part)[0]);
      default:
        return false;
    }
  }
  return true;
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
  if (const Node& inner = node(regex); inner.kind == Kind::kRepeat && inner.min <= 1) {
    // (r+){2,5} is r{2,}, and (r?){2,5} is r{0,5}.
    if (inner.max == kUnbounded) return Repeat(PartsOf(regex)[0], inner.min * min, kUnbounded);
    if (inner.max == 1) return Repeat(PartsOf(regex)[0], 0, max);
  }
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
  const Kind kind = node(regex).kind;
  if (kind == Kind::kBytes || kind == Kind::kEmpty) return Derive(regex, byte);
  const uint64_t key = static_cast<uint64_t>(regex) << 8 | byte;
  if (const auto known = derivatives_.find(key); known != derivatives_.end()) return known->second;
  if (!meter_.Spend(5)) {
    full_ = true;
    return kNone;
  }
  const ByteRegex derivative = Derive(regex, byte);
  derivatives_.emplace(key, derivative);
  return derivative;
}

ByteRegex RegexSet::Derive(ByteRegex regex, uint8_t byte) {
  const Node of = node(regex);
  switch (of.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return kNone;
    case Kind::kBytes:
      return SetOf(regex).Has(byte) ? kEmpty : kNone;
    case Kind::kConcat: {
      const ByteRegex head = PartsOf(regex)[0], tail = PartsOf(regex)[1];
      const ByteRegex first = Concat(Derivative(head, byte), tail);
      return HasEmpty(head) ? Or(first, Derivative(tail, byte)) : first;
    }
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<ByteRegex> derived;
      for (int32_t i = of.begin; i < of.end; ++i) {
        derived.push_back(Derivative(parts_[static_cast<size_t>(i)], byte));
        if (of.kind == Kind::kAnd && derived.back() == kNone) return kNone;
      }
      return Combine(of.kind, derived);
    }
    case Kind::kNot:
      return Not(Derivative(PartsOf(regex)[0], byte));
    case Kind::kRepeat: {
      const ByteRegex repeated = PartsOf(regex)[0];
      const int32_t max = of.max == kUnbounded ? kUnbounded : of.max - 1;
      return Concat(Derivative(repeated, byte), Repeat(repeated, std::max(of.min - 1, 0), max));
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
