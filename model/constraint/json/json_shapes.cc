#include "model/constraint/json/json_shapes.h"

#include <algorithm>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/json/json_document.h"
#include "model/constraint/json/schema_reader.h"

namespace tlm {
namespace {

using Kind = Atom::Kind;

constexpr size_t kMaxTriedOuts = 4;     // a child with more outs is not tried with all outcomes
constexpr size_t kMaxNestedCalls = 64;  // nested calls of MayExist

// True if `must` is kFalse, equals `said`, or is a conjunction with all parts of `said`. False says
// nothing.
bool Implies(const FormulaSet& formulas, Formula must, Formula said) {
  if (must == said || must == kFalse) return true;
  if (formulas.kind(must) != FormulaSet::Kind::kAnd) return false;
  const auto parts = formulas.parts(must);
  if (formulas.kind(said) == FormulaSet::Kind::kAnd) {
    const auto also = formulas.parts(said);
    return std::includes(parts.begin(), parts.end(), also.begin(), also.end());
  }
  return std::binary_search(parts.begin(), parts.end(), said);
}

bool IsWithin(const Atom& atom, int64_t count) { return atom.min <= count && count <= atom.max; }

}  // namespace

// ---- Existence

bool JsonShapes::MayExist(Formula formula) {
  if (formula == kTrue || formula == kFalse) return formula == kTrue;
  if (const auto known = may_exist_.find(formula); known != may_exist_.end()) return known->second;
  if (in_progress_.size() >= kMaxNestedCalls) return true;
  if (std::find(in_progress_.begin(), in_progress_.end(), formula) != in_progress_.end()) {
    used_unfinished_ = true;  // no finite value contains a value of its own kind without end
    return false;
  }
  in_progress_.push_back(formula);
  const bool exists = MayExistNew(formula);
  in_progress_.pop_back();
  if (in_progress_.empty()) used_unfinished_ = false;
  if (exists || !used_unfinished_) may_exist_.emplace(formula, exists);
  return exists;
}

bool JsonShapes::MayExistNew(Formula formula) {
  const Formula array = formulas_.Simplify(formulas_.Restrict(formula, JsonKind::kArray));
  const Formula object = formulas_.Simplify(formulas_.Restrict(formula, JsonKind::kObject));
  if (array == kTrue || object == kTrue) return true;
  const ByteRegex scalars = texts_.Texts(formula, texts_.NumbersFor(formula, {}));
  return dfa_.StateOf(scalars) != RegexDfa::kDead || ArrayMayExist(array) || ObjectMayExist(object);
}

bool JsonShapes::ArrayMayExist(Formula array) {
  if (array == kFalse) return false;
  const bool empty_is = formulas_.Evaluate(array, [this](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    return (atom.kind != Kind::kContains && atom.kind != Kind::kLength) || IsWithin(atom, 0);
  });
  Data data = {.kind = JsonKind::kArray, .must = array};
  return empty_is || MayExist(formulas_.Weaken(array, [&](int32_t atom, bool negated) {
           return RelaxForItem(data, atom, negated);
         }));
}

bool JsonShapes::ObjectMayExist(Formula object) {
  if (object == kFalse) return false;
  const bool empty_is = formulas_.Evaluate(object, [this](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    return atom.kind != Kind::kRequired && (atom.kind != Kind::kCount || IsWithin(atom, 0));
  });
  if (empty_is) return true;
  Data data = {.kind = JsonKind::kObject, .must = object};
  data.names = NamesOf(data);
  const Formula weak = formulas_.Weaken(object, [&](int32_t index, bool negated) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind == Kind::kCount && !negated) return atom.min <= atom.max ? kTrue : kFalse;
    if (atom.kind != Kind::kRequired || negated) return kTrue;
    const Names& names = names_[static_cast<size_t>(data.names)];
    const std::string encoded = EncodeText(atom.name, TextForm::kJson);
    // Earlier properties may have come already, so only conditions on this value count.
    const NameClass name = {
        .order = names.order.at(encoded), .name = &atom.name, .encoded = encoded};
    const Formula value = formulas_.Weaken(object, [&](int32_t other, bool other_negated) {
      const Kind kind = formulas_.atom(other).kind;
      if (kind == Kind::kRequired || kind == Kind::kCount) return kTrue;
      return RelaxForName(data, other, other_negated, name);
    });
    return MayExist(value) ? kTrue : kFalse;
  });
  return weak != kFalse;
}

// ---- Shapes

std::vector<int32_t> JsonShapes::AtomsOf(const Data& data) const {
  std::vector<int32_t> atoms;
  formulas_.CollectAtoms(data.must, atoms);
  for (const Formula out : data.outs) formulas_.CollectAtoms(out, atoms);
  return atoms;
}

int32_t JsonShapes::NamesOf(const Data& data) {
  const std::vector<int32_t> atoms = AtomsOf(data);
  const auto [found, is_new] =
      names_by_atoms_.try_emplace(atoms, static_cast<int32_t>(names_.size()));
  if (!is_new) return found->second;
  Names& names = names_.emplace_back();
  const auto add = [&](const std::string& name) {
    std::string encoded = EncodeText(name, TextForm::kJson);
    if (!names.order.try_emplace(encoded, static_cast<int32_t>(names.names.size())).second) return;
    names.names.push_back(name);
    names.encoded.push_back(std::move(encoded));
  };
  for (const int32_t index : atoms) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind != Kind::kProperties) continue;
    for (const auto& named : atom.properties->named) add(named.first);
  }
  for (const int32_t index : atoms) {
    if (formulas_.atom(index).kind == Kind::kRequired) add(formulas_.atom(index).name);
  }
  return found->second;
}

JsonShapes::Shape JsonShapes::Open(JsonKind kind, int32_t goal) {
  Data data = {.kind = kind};
  data.must = formulas_.Simplify(formulas_.Restrict(goals_[goal].must, kind));
  if (data.must == kFalse) return kNone;
  for (const Formula out : goals_[goal].outs) data.outs.push_back(formulas_.Restrict(out, kind));
  if (kind == JsonKind::kObject) data.names = NamesOf(data);
  DecideCounts(data);
  const Shape shape = ShapeOf(std::move(data));
  return CanContinue(shape) ? shape : kNone;
}

JsonShapes::Shape JsonShapes::ShapeOf(Data data) {
  int64_t most = 0;  // larger counts make no difference
  data.unique = false;
  std::vector<std::pair<int32_t, int64_t>> contained;
  for (const int32_t index : AtomsOf(data)) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind == Kind::kItems) {
      most = std::max(most, static_cast<int64_t>(atom.items->first.size()));
    }
    if (atom.kind == Kind::kLength || atom.kind == Kind::kCount) {
      most = std::max({most, atom.min, atom.max == Atom::kUnbounded ? 0 : atom.max});
    }
    data.unique |= atom.kind == Kind::kUnique;
    for (const auto& known : data.contained) {
      if (known.first == index) contained.push_back(known);
    }
  }
  data.count = std::min(data.count, most + 1);
  data.contained = std::move(contained);
  if (data.kind == JsonKind::kArray && !data.unique) data.seen.clear();
  return shapes_.Of(std::move(data));
}

void JsonShapes::Decide(Data& data, absl::FunctionRef<Formula(int32_t)> value) {
  data.must = formulas_.Substitute(data.must, value);
  for (Formula& out : data.outs) out = formulas_.Substitute(out, value);
}

void JsonShapes::DecideCounts(Data& data) {
  Decide(data, [&](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    int64_t count = data.count;
    if (atom.kind == Kind::kContains) {
      count = ContainedIn(data, index);
    } else if (atom.kind != Kind::kLength && atom.kind != Kind::kCount) {
      return formulas_.Of(atom);
    }
    if (count > atom.max || atom.min > atom.max) return kFalse;
    return atom.max == Atom::kUnbounded && count >= atom.min ? kTrue : formulas_.Of(atom);
  });
}

bool JsonShapes::CanContinue(Shape shape) {
  if (CanClose(shape)) return true;
  if (data(shape).kind == JsonKind::kArray) return NextItem(shape) != kNone;
  return dfa_.StateOf(NextNames(shape)) != RegexDfa::kDead;
}

bool JsonShapes::CanClose(Shape shape) {
  Found& known = found(shape);
  if (!known.has_close) {
    known.has_close = true;
    known.can_close = CloseWith(data(shape), data(shape).must);
  }
  return known.can_close;
}

bool JsonShapes::CloseWith(const Data& data, Formula formula) {
  return formulas_.Evaluate(formula, [&](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind == Kind::kRequired) return false;
    if (atom.kind == Kind::kLength || atom.kind == Kind::kCount) return IsWithin(atom, data.count);
    return atom.kind != Kind::kContains || IsWithin(atom, ContainedIn(data, index));
  });
}

int64_t JsonShapes::ContainedIn(const Data& data, int32_t atom) {
  for (const auto& [of, count] : data.contained) {
    if (of == atom) return count;
  }
  return 0;
}

Outcome JsonShapes::Close(Shape shape) {
  Outcome outcome;
  for (const Formula out : data(shape).outs) outcome.push_back(CloseWith(data(shape), out));
  return outcome;
}

JsonShapes::Shape JsonShapes::After(Shape shape, ChildNumber number, const Outcome& outcome,
                                    std::string_view text) {
  Data next = data(shape);
  const Child& child = children_[static_cast<size_t>(number)];
  bool repeated = false;
  if (next.unique) {
    const auto value = ParseJsonDocument(text, kMaxSchemaDepth + 1);
    repeated = !value.ok() || !AddSeen(next, CanonicalJson(*value));
  } else if (next.kind == JsonKind::kObject && (child.order < 0 || any_order_)) {
    AddSeen(next, std::string(text));
  }
  DecideChild(next, child, outcome, repeated);
  if (next.must == kFalse) return kNone;
  const Shape after = ShapeOf(std::move(next));
  return CanContinue(after) ? after : kNone;
}

// Adds the value to the values seen. Returns false if it was there already.
bool JsonShapes::AddSeen(Data& data, std::string value) {
  const auto at = std::lower_bound(data.seen.begin(), data.seen.end(), value);
  if (at != data.seen.end() && *at == value) return false;
  data.seen.insert(at, std::move(value));
  return true;
}

void JsonShapes::DecideChild(Data& data, const Child& child, const Outcome& outcome,
                             bool repeated) {
  ++data.count;
  std::vector<int32_t> violated;  // ascending, like `decides`
  for (const auto& [atom, by] : child.decides) {
    const bool is_true = by == -1 || (by >= 0 && outcome[static_cast<size_t>(by)]);
    if (formulas_.atom(atom).kind != Kind::kContains) {
      if (!is_true) violated.push_back(atom);
    } else if (is_true) {
      const int64_t before = ContainedIn(data, atom);
      std::erase_if(data.contained, [&](const auto& known) { return known.first == atom; });
      data.contained.emplace_back(atom, before + 1);
      std::sort(data.contained.begin(), data.contained.end());
    }
  }
  const std::string* name = nullptr;
  if (data.kind == JsonKind::kObject) {
    const Names& names = names_[static_cast<size_t>(data.names)];
    const auto count = static_cast<int32_t>(names.names.size());
    if (child.order >= 0) name = &names.names[static_cast<size_t>(child.order)];
    if (!any_order_) data.next_order = child.order >= 0 ? child.order + 1 : count;
  }
  Decide(data, [&](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    if (std::ranges::binary_search(violated, index) || (atom.kind == Kind::kUnique && repeated))
      return kFalse;
    if (atom.kind == Kind::kProperties && !MayFailAfter(data, atom, data.next_order - 1)) {
      return kTrue;
    }
    if (atom.kind != Kind::kRequired) return formulas_.Of(atom);
    if (name != nullptr && atom.name == *name) return kTrue;
    return OrderOf(data, atom.name) < data.next_order ? kFalse : formulas_.Of(atom);
  });
  DecideCounts(data);
  data.must = formulas_.Simplify(data.must);
}

// Whether the value of a later property may still make the atom false: a property that it names,
// after the one at `order`, or a property that it does not name.
bool JsonShapes::MayFailAfter(const Data& data, const Atom& atom, int32_t order) {
  const PropertyRule& rule = *atom.properties;
  if (any_order_ || rule.others != kTrue || !rule.patterns.empty()) return true;
  const auto [last, is_new] = last_named_.try_emplace({data.names, atom.properties.get()}, -1);
  for (size_t i = 0; i < rule.named.size() && is_new; ++i) {
    if (rule.named[i].second == kTrue) continue;
    last->second = std::max(last->second, OrderOf(data, rule.named[i].first));
  }
  return last->second > order;
}

int32_t JsonShapes::OrderOf(const Data& data, const std::string& name) const {
  const Names& names = names_[static_cast<size_t>(data.names)];
  return names.order.at(EncodeText(name, TextForm::kJson));
}

// ---- Children

JsonShapes::ChildNumber JsonShapes::MakeChild(const Data& data, Formula must, int32_t order,
                                              absl::FunctionRef<Formula(int32_t)> said) {
  if (!MayExist(must)) return kNone;
  Child child = ChildWith(data, must, order, said);
  const Formula possible = Possible(data, child);
  if (possible != kTrue) {
    must = formulas_.And(must, possible);
    if (!MayExist(must)) return kNone;
    child = ChildWith(data, must, order, said);
  }
  children_.push_back(std::move(child));
  return static_cast<ChildNumber>(children_.size()) - 1;
}

JsonShapes::Child JsonShapes::ChildWith(const Data& data, Formula must, int32_t order,
                                        absl::FunctionRef<Formula(int32_t)> said) {
  Child child = {.order = order};
  ValueGoal goal = {.must = must};
  for (const int32_t index : AtomsOf(data)) {
    const Kind kind = formulas_.atom(index).kind;
    if (kind != Kind::kItems && kind != Kind::kContains && kind != Kind::kProperties &&
        kind != Kind::kNames) {
      continue;
    }
    const Formula formula = said(index);
    int32_t by = -1;
    if (formula != kTrue && !Implies(formulas_, must, formula)) {
      by = -2;
      if (formula != kFalse && !Implies(formulas_, must, formulas_.Not(formula))) {
        const auto at = std::find(goal.outs.begin(), goal.outs.end(), formula);
        by = static_cast<int32_t>(at - goal.outs.begin());
        if (at == goal.outs.end()) goal.outs.push_back(formula);
      }
    }
    child.decides.emplace_back(index, by);
  }
  child.goal = goals_.Of(std::move(goal));
  return child;
}

// A formula about the child that is true for the outcomes that keep `must` possible.
Formula JsonShapes::Possible(const Data& data, const Child& child) {
  const std::vector<Formula> outs = goals_[child.goal].outs;
  if (outs.empty() || outs.size() > kMaxTriedOuts) return kTrue;
  std::vector<Formula> any;
  const uint32_t outcomes = 1u << outs.size();
  for (uint32_t bits = 0; bits < outcomes; ++bits) {
    Outcome outcome;
    std::vector<Formula> all;
    for (size_t i = 0; i < outs.size(); ++i) {
      outcome.push_back((bits >> i & 1) != 0);
      all.push_back(outcome[i] ? outs[i] : formulas_.Not(outs[i]));
    }
    Data next = data;
    DecideChild(next, child, outcome, false);
    if (next.must != kFalse) any.push_back(formulas_.And(all));
  }
  return any.size() == outcomes ? kTrue : formulas_.Or(any);
}

Formula JsonShapes::SaidOfItem(const Atom& atom, int64_t index) {
  if (atom.kind == Kind::kContains) return atom.schema;
  const ItemRule& rule = *atom.items;
  const auto at = static_cast<size_t>(index);
  return at < rule.first.size() ? rule.first[at] : rule.others;
}

Formula JsonShapes::RelaxForItem(const Data& data, int32_t index, bool negated) {
  const Atom& atom = formulas_.atom(index);
  switch (atom.kind) {
    case Kind::kItems:
      return negated ? kTrue : SaidOfItem(atom, data.count);
    case Kind::kContains: {
      const int64_t left = atom.min - ContainedIn(data, index);
      if (negated) {
        const bool last = atom.max == Atom::kUnbounded && left == 1;
        return last ? formulas_.Not(atom.schema) : kTrue;
      }
      if (ContainedIn(data, index) >= atom.max) return formulas_.Not(atom.schema);
      int64_t room = Atom::kUnbounded;  // for items, including this one
      formulas_.ForEachRequired(data.must, [&](const Atom& other) {
        if (other.kind == Kind::kLength) room = std::min(room, other.max - data.count);
        if (other.kind == Kind::kItems && other.items->others == kFalse) {
          room = std::min(room, static_cast<int64_t>(other.items->first.size()) - data.count);
        }
      });
      return left > room ? kFalse : left == room ? atom.schema : kTrue;
    }
    case Kind::kLength:
      if (negated)
        return atom.max == Atom::kUnbounded && data.count + 1 >= atom.min ? kFalse : kTrue;
      return data.count + 1 > atom.max ? kFalse : kTrue;
    case Kind::kUnique: {
      std::vector<Formula> differ;
      for (const std::string& value : data.seen) {
        differ.push_back(formulas_.Not(EqualToText(value)));
      }
      return negated ? kTrue : formulas_.And(differ);
    }
    default:
      return kTrue;
  }
}

Formula JsonShapes::EqualToText(const std::string& text) {
  const auto [found, is_new] = equal_to_.try_emplace(text, kFalse);
  if (is_new) {
    const auto value = ParseJsonDocument(text, kMaxSchemaDepth + 1);
    if (value.ok()) found->second = EqualTo(*value, formulas_, regexes_);
  }
  return found->second;
}

JsonShapes::ChildNumber JsonShapes::NextItem(Shape shape) {
  if (found(shape).has_item) return found(shape).item;
  const Data& of = data(shape);
  const Formula must = formulas_.Weaken(
      of.must, [&](int32_t atom, bool negated) { return RelaxForItem(of, atom, negated); });
  const ChildNumber child = MakeChild(
      of, must, -1, [&](int32_t atom) { return SaidOfItem(formulas_.atom(atom), of.count); });
  found(shape).has_item = true;
  return found(shape).item = child;
}

bool JsonShapes::ItemsAreAlike(Shape shape) const {
  const Data& of = data(shape);
  const std::vector<int32_t> atoms = AtomsOf(of);
  return std::all_of(atoms.begin(), atoms.end(), [&](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind == Kind::kItems) {
      return static_cast<int64_t>(atom.items->first.size()) <= of.count;
    }
    return atom.kind == Kind::kLength || atom.kind == Kind::kUnique;
  });
}

}  // namespace tlm
