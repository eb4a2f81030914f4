// The part of JsonShapes about the names that may come next in an object.
#include <algorithm>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/json/json_shapes.h"

namespace tlm {
namespace {

using Kind = Atom::Kind;

// With more patterns than this, names are distinguished only when they are complete.
constexpr size_t kMaxTests = 6;

}  // namespace

bool JsonShapes::MatchesName(ByteRegex regex, const NameClass& name) {
  if (name.name == nullptr) {
    const auto at = std::find(name.tests->begin(), name.tests->end(), regex);
    return (*name.passed)[static_cast<size_t>(at - name.tests->begin())];
  }
  const auto [found, is_new] = matches_.try_emplace({regex, std::string(name.encoded)}, false);
  if (is_new) found->second = Matches(regexes_, regex, name.encoded);
  return found->second;
}

Formula JsonShapes::SaidOfName(const Atom& atom, const NameClass& name) {
  if (atom.kind == Kind::kNames) {
    return MatchesName(texts_.StringTexts(atom.schema), name) ? kTrue : kFalse;
  }
  const PropertyRule& rule = *atom.properties;
  if (name.name != nullptr) {
    const auto named = rule.by_name.find(*name.name);
    if (named != rule.by_name.end()) return named->second;
  }
  Formula said = kTrue;
  bool matched = false;
  for (const auto& [pattern, formula] : rule.patterns) {
    if (!MatchesName(pattern, name)) continue;
    matched = true;
    said = formulas_.And(said, formula);
  }
  return matched ? said : rule.others;
}

Formula JsonShapes::RelaxForName(const Data& data, int32_t index, bool negated,
                                 const NameClass& name) {
  const Atom& atom = formulas_.atom(index);
  switch (atom.kind) {
    case Kind::kProperties:
      if (!negated) return SaidOfName(atom, name);
      return MayFailAfter(data, atom, name.order) ? kTrue : formulas_.Not(SaidOfName(atom, name));
    case Kind::kNames:
      return negated ? kTrue : SaidOfName(atom, name);
    case Kind::kRequired: {
      const bool is_it = name.name != nullptr && *name.name == atom.name;
      if (negated) return is_it ? kFalse : kTrue;
      return is_it || any_order_ || OrderOf(data, atom.name) > name.order ? kTrue : kFalse;
    }
    case Kind::kCount: {
      if (negated)
        return atom.max == Atom::kUnbounded && data.count + 1 >= atom.min ? kFalse : kTrue;
      int64_t needed = data.count + 1;  // least number of properties of the finished object
      int64_t most = Atom::kUnbounded;
      formulas_.ForEachRequired(data.must, [&](const Atom& other) {
        if (other.kind == Kind::kRequired && (name.name == nullptr || other.name != *name.name)) {
          ++needed;
        }
        if (other.kind == Kind::kProperties && other.properties->others == kFalse &&
            other.properties->patterns.empty()) {
          const auto names =
              static_cast<int64_t>(names_[static_cast<size_t>(data.names)].names.size());
          most = any_order_ ? names : data.count + names - name.order;
        }
      });
      return needed > atom.max || most < atom.min ? kFalse : kTrue;
    }
    default:
      return kTrue;
  }
}

JsonShapes::ChildNumber JsonShapes::ChildOfName(const Data& data, const NameClass& name) {
  const Formula must = formulas_.Weaken(data.must, [&](int32_t atom, bool negated) {
    return RelaxForName(data, atom, negated, name);
  });
  return MakeChild(data, must, name.name == nullptr ? -1 : name.order,
                   [&](int32_t atom) { return SaidOfName(formulas_.atom(atom), name); });
}

ByteRegex JsonShapes::NextNames(Shape shape) {
  if (!found(shape).has_names) {
    found(shape).has_names = true;
    FindNames(shape);
  }
  return found(shape).next_names;
}

void JsonShapes::FindNames(Shape shape) {
  const Data& of = data(shape);
  const Names& names = names_[static_cast<size_t>(of.names)];
  std::vector<ByteRegex> any;
  std::vector<ChildNumber> properties(names.names.size(), kNone);
  for (size_t i = static_cast<size_t>(of.next_order); i < names.names.size(); ++i) {
    if (any_order_ && std::ranges::binary_search(of.seen, names.encoded[i])) continue;
    properties[i] = ChildOfName(
        of,
        {.order = static_cast<int32_t>(i), .name = &names.names[i], .encoded = names.encoded[i]});
    if (properties[i] != kNone) any.push_back(NameRegex(names.encoded[i]));
  }
  found(shape).properties = std::move(properties);
  any.push_back(FindOtherNames(shape));
  found(shape).next_names = regexes_.Concat(regexes_.Or(any), regexes_.Literal("\""));
}

// The names that no schema names.
ByteRegex JsonShapes::FindOtherNames(Shape shape) {
  const Data& of = data(shape);
  std::vector<ByteRegex>& tests = found(shape).tests;
  std::vector<Formula> said_of_names;
  const auto add = [&](ByteRegex test) {
    if (std::find(tests.begin(), tests.end(), test) == tests.end()) tests.push_back(test);
  };
  for (const int32_t index : AtomsOf(of)) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind == Kind::kNames) {
      add(texts_.StringTexts(atom.schema));
      said_of_names.push_back(atom.schema);
    }
    if (atom.kind != Kind::kProperties) continue;
    for (const auto& pattern : atom.properties->patterns) add(pattern.first);
  }
  std::vector<ByteRegex> known;
  for (const std::string& name : names_[static_cast<size_t>(of.names)].encoded) {
    known.push_back(NameRegex(name));
  }
  if (!tests.empty()) {
    // Patterns may leave few names, so a name that came already must not be started again.
    for (const std::string& name : of.seen) known.push_back(NameRegex(name));
    if (!of.outs.empty() || !formulas_.IsPositive(of.must)) {
      known.push_back(texts_.DisputedStrings(kTrue, said_of_names));
    }
  }
  const ByteRegex others =
      regexes_.And(AnyTextRegex(regexes_, formulas_.form()), regexes_.Not(regexes_.Or(known)));
  if (tests.size() > kMaxTests) return others;
  std::vector<ByteRegex> classes;
  bool all = true;
  for (uint32_t bits = 0; bits < 1u << tests.size(); ++bits) {
    std::vector<bool> passed;
    std::vector<ByteRegex> both = {others};
    for (size_t i = 0; i < tests.size(); ++i) {
      passed.push_back((bits >> i & 1) != 0);
      both.push_back(passed[i] ? tests[i] : regexes_.Not(tests[i]));
    }
    if (ChildOfClass(shape, passed) != kNone) {
      classes.push_back(regexes_.And(both));
    } else {
      all = false;
    }
  }
  found(shape).takes_others = all;
  return all ? others : regexes_.Or(classes);
}

JsonShapes::ChildNumber JsonShapes::ChildOfClass(Shape shape, const std::vector<bool>& passed) {
  const auto known = found(shape).classes.find(passed);
  if (known != found(shape).classes.end()) return known->second;
  const Data& of = data(shape);
  const ChildNumber child = ChildOfName(
      of, {.order = static_cast<int32_t>(names_[static_cast<size_t>(of.names)].names.size()),
           .tests = &found(shape).tests,
           .passed = &passed});
  found(shape).classes.emplace(passed, child);
  return child;
}

JsonShapes::ChildNumber JsonShapes::NextProperty(Shape shape, std::string_view name) {
  NextNames(shape);
  const Data& of = data(shape);
  const Names& names = names_[static_cast<size_t>(of.names)];
  const auto named = names.order.find(std::string(name));
  if (named != names.order.end())
    return found(shape).properties[static_cast<size_t>(named->second)];
  if (std::ranges::binary_search(of.seen, name)) return kNone;
  std::vector<bool> passed;
  for (const ByteRegex test : found(shape).tests) passed.push_back(Matches(regexes_, test, name));
  return ChildOfClass(shape, passed);
}

std::optional<uint64_t> JsonShapes::ClassOfName(Shape shape, std::string_view name) {
  NextNames(shape);
  const Data& of = data(shape);
  const Names& names = names_[static_cast<size_t>(of.names)];
  const auto named = names.order.find(std::string(name));
  constexpr uint64_t kNamed = uint64_t{1} << 63;
  if (named != names.order.end()) return kNamed | static_cast<uint64_t>(named->second);
  const std::vector<ByteRegex>& tests = found(shape).tests;
  if (std::ranges::binary_search(of.seen, name) || tests.size() > kMaxTests) return std::nullopt;
  uint64_t passed = 0;
  for (size_t i = 0; i < tests.size(); ++i) {
    RegexDfa::State state = dfa_.StateOf(tests[i]);
    for (size_t at = 0; at < name.size() && state != RegexDfa::kDead; ++at) {
      state = dfa_.Next(state, static_cast<uint8_t>(name[at]));
    }
    if (dfa_.Accepts(state)) passed |= uint64_t{1} << i;
  }
  return passed;
}

}  // namespace tlm
