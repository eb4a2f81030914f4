#include "model/constraint/json/schema_formula.h"

#include <algorithm>

#include "model/constraint/bytes/char_set.h"

namespace tlm {
namespace {

// How many references may follow one another, and how deep formulas may be nested.
constexpr int kMaxReferences = 1000;
// If a kOne has at most this many parts, Weaken still excludes that two of them are true.
constexpr size_t kExactOne = 8;

template <typename T>
void Put(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string ContentOf(const Atom& atom) {
  std::string key;
  Put(key, atom.kind);
  Put(key, atom.types);
  Put(key, atom.regex);
  Put(key, atom.disputed);
  Put(key, atom.schema);
  Put(key, atom.min);
  Put(key, atom.max);
  Put(key, atom.integers);
  Put(key, atom.exclusive);
  Put(key, atom.items.get());
  Put(key, atom.properties.get());
  Put(key, atom.divisor.exponent());
  return key + atom.divisor.digits() + "/" + atom.name;
}

}  // namespace

JsonKind Atom::type() const {
  switch (kind) {
    case Kind::kType:
      return JsonKind::kNull;
    case Kind::kBoolean:
      return JsonKind::kBoolean;
    case Kind::kNumber:
    case Kind::kMultiple:
      return JsonKind::kNumber;
    case Kind::kString:
      return JsonKind::kString;
    case Kind::kItems:
    case Kind::kContains:
    case Kind::kLength:
    case Kind::kUnique:
      return JsonKind::kArray;
    default:
      return JsonKind::kObject;
  }
}

FormulaSet::FormulaSet(size_t max_formulas, TextForm form)
    : max_formulas_(std::max<size_t>(max_formulas, 8)), form_(form) {
  nodes_.push_back({.kind = Kind::kFalse});
  nodes_.push_back({.kind = Kind::kTrue});
}

Formula FormulaSet::Intern(Node node, std::span<const Formula> parts) {
  std::vector<int32_t> content = {static_cast<int32_t>(node.kind), node.negated ? 1 : 0,
                                  node.index};
  for (const Formula part : parts) content.push_back(static_cast<int32_t>(part));
  const auto [found, is_new] = by_content_.try_emplace(std::move(content), kFalse);
  if (!is_new) return found->second;
  if (size() >= max_formulas_) {
    full_ = true;
    by_content_.erase(found);
    return kFalse;
  }
  const std::vector<Formula> copy(parts.begin(), parts.end());  // they may be stored in parts_
  node.begin = static_cast<int32_t>(parts_.size());
  parts_.insert(parts_.end(), copy.begin(), copy.end());
  node.end = static_cast<int32_t>(parts_.size());
  found->second = Formula{static_cast<int32_t>(nodes_.size())};
  nodes_.push_back(node);
  return found->second;
}

Formula FormulaSet::Of(Atom atom) {
  if (atom.kind == Atom::Kind::kType && atom.types == 0) return kFalse;
  const auto [found, is_new] =
      atom_by_content_.try_emplace(ContentOf(atom), static_cast<int32_t>(atoms_.size()));
  if (is_new) atoms_.push_back(std::move(atom));
  return Intern({.kind = Kind::kAtom, .index = found->second}, {});
}

Formula FormulaSet::OfTypes(uint32_t types) {
  return Of({.kind = Atom::Kind::kType, .types = types});
}

Formula FormulaSet::OfRequired(std::string_view name) {
  return Of({.kind = Atom::Kind::kRequired, .name = std::string(name)});
}

Formula FormulaSet::HasProperty(std::string_view name) {
  return And(OfTypes(TypeBit(JsonKind::kObject)), OfRequired(name));
}

Formula FormulaSet::Not(Formula formula) {
  const Node of = node(formula);
  switch (of.kind) {
    case Kind::kFalse:
      return kTrue;
    case Kind::kTrue:
      return kFalse;
    case Kind::kAtom:
    case Kind::kReference:
      return Intern({.kind = of.kind, .negated = !of.negated, .index = of.index}, {});
    case Kind::kOne: {
      const std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
      return Intern({.kind = of.kind, .negated = !of.negated}, parts);
    }
    default: {
      std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
      for (Formula& part : parts) part = Not(part);
      return Combine(of.kind == Kind::kAnd ? Kind::kOr : Kind::kAnd, parts);
    }
  }
}

Formula FormulaSet::Combine(Kind kind, std::span<const Formula> parts) {
  const Formula neutral = kind == Kind::kAnd ? kTrue : kFalse;
  const Formula absorbing = kind == Kind::kAnd ? kFalse : kTrue;
  std::vector<Formula> flat;
  for (const Formula part : parts) {
    if (part == absorbing) return absorbing;
    if (part == neutral) continue;
    if (node(part).kind == kind) {
      flat.insert(flat.end(), PartsOf(part).begin(), PartsOf(part).end());
    } else {
      flat.push_back(part);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  for (const Formula part : flat) {
    const Node& of = node(part);
    if (!of.negated || of.kind == Kind::kAnd || of.kind == Kind::kOr) continue;
    if (std::binary_search(flat.begin(), flat.end(), Not(part))) return absorbing;
  }
  if (flat.empty()) return neutral;
  if (flat.size() == 1) return flat.front();
  return Intern({.kind = kind}, flat);
}

Formula FormulaSet::One(std::span<const Formula> parts) {
  std::vector<Formula> open;
  int true_parts = 0;
  for (const Formula part : parts) {
    if (part == kTrue) ++true_parts;
    if (part != kTrue && part != kFalse) open.push_back(part);
  }
  std::sort(open.begin(), open.end());
  // A part that occurs twice cannot be the only true one.
  std::vector<Formula> rest;
  for (size_t i = 0; i < open.size();) {
    size_t end = i;
    while (end < open.size() && open[end] == open[i]) ++end;
    if (end == i + 1) {
      rest.push_back(open[i]);
    } else {
      std::vector<Formula> others;
      for (const Formula part : parts) {
        if (part != open[i]) others.push_back(part);
      }
      return And(Not(open[i]), One(others));
    }
    i = end;
  }
  if (true_parts > 1) return kFalse;
  if (true_parts == 1) {
    for (Formula& part : rest) part = Not(part);
    return And(rest);
  }
  if (rest.empty()) return kFalse;
  if (rest.size() == 1) return rest.front();
  return Intern({.kind = Kind::kOne}, rest);
}

Formula FormulaSet::NewReference() {
  const auto index = static_cast<int32_t>(targets_.size());
  targets_.push_back(kFalse);
  return Intern({.kind = Kind::kReference, .index = index}, {});
}

void FormulaSet::Define(Formula reference, Formula formula) {
  targets_[static_cast<size_t>(node(reference).index)] = formula;
}

void FormulaSet::CollectReferences(Formula formula, std::vector<int32_t>& references) const {
  if (node(formula).kind == Kind::kReference) references.push_back(node(formula).index);
  for (const Formula part : PartsOf(formula)) CollectReferences(part, references);
}

std::optional<int32_t> FormulaSet::EmptyLoop() const {
  // Removes references that lead to no other, until all that are left are on a loop or lead to one.
  std::vector<std::vector<int32_t>> used_by(targets_.size());
  std::vector<size_t> left(targets_.size());
  std::vector<int32_t> done;
  for (size_t i = 0; i < targets_.size(); ++i) {
    std::vector<int32_t> uses;
    CollectReferences(targets_[i], uses);
    for (const int32_t use : uses)
      used_by[static_cast<size_t>(use)].push_back(static_cast<int32_t>(i));
    left[i] = uses.size();
    if (uses.empty()) done.push_back(static_cast<int32_t>(i));
  }
  while (!done.empty()) {
    const auto last = static_cast<size_t>(done.back());
    done.pop_back();
    for (const int32_t user : used_by[last]) {
      if (--left[static_cast<size_t>(user)] == 0) done.push_back(user);
    }
  }
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] > 0) return static_cast<int32_t>(i);
  }
  return std::nullopt;
}

Formula FormulaSet::Restrict(Formula formula, JsonKind type) {
  if (formula == kTrue || formula == kFalse) return formula;
  const int64_t key = static_cast<int64_t>(formula) << 8 | static_cast<int64_t>(type);
  if (const auto known = restricted_.find(key); known != restricted_.end()) return known->second;
  const Formula restricted = RestrictNew(formula, type);
  restricted_.emplace(key, restricted);
  return restricted;
}

Formula FormulaSet::RestrictNew(Formula formula, JsonKind type) {
  if (!SpendOn(formula)) return kFalse;
  const Node of = node(formula);
  if (of.kind == Kind::kReference) {
    if (++depth_ > kMaxReferences) full_ = true;
    const Formula target = targets_[static_cast<size_t>(of.index)];
    const Formula inner = full_ ? kFalse : Restrict(target, type);
    --depth_;
    return of.negated ? Not(inner) : inner;
  }
  if (of.kind == Kind::kAtom) {
    const Atom& about = atom(of.index);
    bool value = true;
    if (about.kind == Atom::Kind::kType) {
      value = (about.types >> static_cast<int>(type) & 1) != 0;
    } else if (about.type() == type) {
      return formula;
    }
    return value != of.negated ? kTrue : kFalse;
  }
  std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
  for (Formula& part : parts) part = Restrict(part, type);
  if (of.kind != Kind::kOne) return Combine(of.kind, parts);
  const Formula one = One(parts);
  return of.negated ? Not(one) : one;
}

Formula FormulaSet::Simplify(Formula formula) {
  for (Formula before = kFalse; before != formula && kind(formula) == Kind::kAnd;) {
    before = formula;
    std::vector<Formula> all;                     // parts that are atoms
    absl::flat_hash_map<int32_t, Formula> known;  // value by atom
    for (const Formula part : PartsOf(formula)) {
      if (kind(part) != Kind::kAtom) continue;
      all.push_back(part);
      known.emplace(node(part).index, node(part).negated ? kFalse : kTrue);
    }
    const std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
    for (const Formula part : parts) {
      if (kind(part) == Kind::kAtom) continue;
      all.push_back(Substitute(part, [&](int32_t atom) {
        const auto value = known.find(atom);
        return value == known.end() ? Intern({.kind = Kind::kAtom, .index = atom}, {})
                                    : value->second;
      }));
    }
    formula = And(all);
  }
  return formula;
}

bool FormulaSet::SpendOn(Formula formula) {
  if (!meter_.Spend(1 + static_cast<int64_t>(PartsOf(formula).size()))) full_ = true;
  return !full_;
}

Formula FormulaSet::Substitute(Formula formula, Replace replace) {
  if (!SpendOn(formula)) return kFalse;
  const Node of = node(formula);
  switch (of.kind) {
    case Kind::kAtom: {
      const Formula by = replace(of.index);
      return of.negated ? Not(by) : by;
    }
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kOne: {
      std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
      for (Formula& part : parts) part = Substitute(part, replace);
      if (of.kind != Kind::kOne) return Combine(of.kind, parts);
      const Formula one = One(parts);
      return of.negated ? Not(one) : one;
    }
    default:
      return formula;
  }
}

Formula FormulaSet::Weaken(Formula formula, Relax relax) {
  if (!SpendOn(formula)) return kFalse;
  const Node of = node(formula);
  if (of.kind == Kind::kAtom) return relax(of.index, of.negated);
  if (of.kind != Kind::kAnd && of.kind != Kind::kOr && of.kind != Kind::kOne) return formula;
  std::vector<Formula> parts(PartsOf(formula).begin(), PartsOf(formula).end());
  if (of.kind != Kind::kOne) {
    for (Formula& part : parts) part = Weaken(part, relax);
    return Combine(of.kind, parts);
  }
  if (of.negated) return kTrue;
  std::vector<Formula> alternatives;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<Formula> all = {Weaken(parts[i], relax)};
    for (size_t j = 0; j < parts.size() && parts.size() <= kExactOne; ++j) {
      if (j != i) all.push_back(Weaken(Not(parts[j]), relax));
    }
    alternatives.push_back(And(all));
  }
  return Or(alternatives);
}

bool FormulaSet::Evaluate(Formula formula, absl::FunctionRef<bool(int32_t)> value) {
  if (!SpendOn(formula)) return false;
  const Node& of = node(formula);
  const auto parts = PartsOf(formula);
  const auto is_true = [&](Formula part) { return Evaluate(part, value); };
  switch (of.kind) {
    case Kind::kTrue:
      return true;
    case Kind::kAtom:
      return value(of.index) != of.negated;
    case Kind::kAnd:
      return std::all_of(parts.begin(), parts.end(), is_true);
    case Kind::kOr:
      return std::any_of(parts.begin(), parts.end(), is_true);
    case Kind::kOne:
      return (std::count_if(parts.begin(), parts.end(), is_true) == 1) != of.negated;
    default:
      return false;
  }
}

bool FormulaSet::IsPositive(Formula formula) const {
  const auto parts = PartsOf(formula);
  return !node(formula).negated && kind(formula) != Kind::kOne &&
         std::all_of(parts.begin(), parts.end(), [this](Formula part) { return IsPositive(part); });
}

void FormulaSet::CollectAtoms(Formula formula, std::vector<int32_t>& atoms) {
  if (!SpendOn(formula)) return;
  const Node& of = node(formula);
  if (of.kind == Kind::kAtom) {
    const auto at = std::lower_bound(atoms.begin(), atoms.end(), of.index);
    if (at == atoms.end() || *at != of.index) atoms.insert(at, of.index);
  }
  for (const Formula part : PartsOf(formula)) CollectAtoms(part, atoms);
}

ByteRegex FormulaSet::ToRegex(Formula formula, RegexSet& regexes,
                              absl::FunctionRef<ByteRegex(int32_t)> of) const {
  const Node& at = node(formula);
  std::vector<ByteRegex> parts;
  for (const Formula part : PartsOf(formula)) parts.push_back(ToRegex(part, regexes, of));
  switch (at.kind) {
    case Kind::kTrue:
      return RegexSet::kAny;
    case Kind::kAtom:
      return at.negated ? regexes.Not(of(at.index)) : of(at.index);
    case Kind::kAnd:
      return regexes.And(parts);
    case Kind::kOr:
      return regexes.Or(parts);
    case Kind::kOne: {
      ByteRegex none = RegexSet::kAny, one = RegexSet::kNone;  // no part, exactly one part
      for (const ByteRegex part : parts) {
        one = regexes.Or(regexes.And(one, regexes.Not(part)), regexes.And(none, part));
        none = regexes.And(none, regexes.Not(part));
      }
      return at.negated ? regexes.Not(one) : one;
    }
    default:
      return RegexSet::kNone;
  }
}

Formula EqualTo(const JsonValue& value, FormulaSet& formulas, RegexSet& regexes) {
  std::vector<Formula> all = {formulas.OfTypes(TypeBit(value.kind))};
  const auto add = [&](Atom atom) { all.push_back(formulas.Of(std::move(atom))); };
  const auto length = [](size_t size) { return static_cast<int64_t>(size); };
  switch (value.kind) {
    case JsonKind::kNull:
      break;
    case JsonKind::kBoolean:
      add({.kind = Atom::Kind::kBoolean, .types = value.boolean ? 2u : 1u});
      break;
    case JsonKind::kNumber: {
      const auto decimal = Decimal::Parse(value.text);
      add({.kind = Atom::Kind::kNumber,
           .regex = decimal.ok() ? NumberEqualRegex(regexes, *decimal, formulas.form())
                                 : RegexSet::kNone});
      break;
    }
    case JsonKind::kString:
      add({.kind = Atom::Kind::kString,
           .regex =
               JsonTextRegex(regexes, EncodeText(value.text, TextForm::kJson), formulas.form())});
      break;
    case JsonKind::kArray: {
      ItemRule rule = {.others = kFalse};
      for (const JsonValue& item : value.items) {
        rule.first.push_back(EqualTo(item, formulas, regexes));
      }
      add({.kind = Atom::Kind::kItems, .items = std::make_shared<const ItemRule>(std::move(rule))});
      add({.kind = Atom::Kind::kLength,
           .min = length(value.items.size()),
           .max = length(value.items.size())});
      break;
    }
    case JsonKind::kObject: {
      PropertyRule rule = {.others = kFalse};
      for (const auto& [name, member] : value.members) {
        all.push_back(formulas.OfRequired(name));
        rule.named.emplace_back(name, EqualTo(member, formulas, regexes));
        rule.by_name.insert(rule.named.back());
      }
      add({.kind = Atom::Kind::kProperties,
           .properties = std::make_shared<const PropertyRule>(std::move(rule))});
      break;
    }
  }
  return formulas.And(all);
}

}  // namespace tlm
