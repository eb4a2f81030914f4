// Schemas as formulas: what a JSON value must be, in terms of atoms.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCHEMA_FORMULA_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCHEMA_FORMULA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/number_regex.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_document.h"

namespace tlm {

// A formula of a FormulaSet. Equal formulas are one.
enum class Formula : int32_t {};
inline constexpr Formula kFalse{0};
inline constexpr Formula kTrue{1};

// The values of an object's properties, by name: those of `named`; of other names the values of all
// patterns that match, or `others` where none does.
struct PropertyRule {
  std::vector<std::pair<std::string, Formula>> named = {};  // in the schema's order
  absl::flat_hash_map<std::string, Formula> by_name = {};
  std::vector<std::pair<ByteRegex, Formula>> patterns =
      {};  // of names as they stand between quotes
  Formula others = kTrue;
};

// The values of an array's items.
struct ItemRule {
  std::vector<Formula> first = {};  // of the first items
  Formula others = kTrue;
};

// A statement about values of one type. It is true of all values of other types.
struct Atom {
  enum class Kind : uint8_t {
    kType,        // the value is of a type in `types`; the one atom about all values
    kBoolean,     // false (bit 0) or true (bit 1), by `types`
    kNumber,      // the text is in `regex`
    kMultiple,    // a multiple of `divisor`
    kString,      // the text between the quotes is in `regex`
    kItems,       // by `items`
    kContains,    // from min to max items are as `schema` says
    kLength,      // from min to max items
    kUnique,      // no two items are equal
    kProperties,  // by `properties`
    kRequired,    // has a property `name`
    kCount,       // from min to max properties
    kNames,       // the properties' names, as strings, are as `schema` says
  };
  static constexpr int64_t kUnbounded = INT64_MAX;

  Kind kind = Kind::kType;
  uint32_t types = 0;  // TypeBit of each; of kBoolean see there
  ByteRegex regex = RegexSet::kAny;
  // Of kString: texts that are not in `regex`, but would be by some readings of what is meant.
  ByteRegex disputed = RegexSet::kNone;
  Formula schema = kTrue;
  int64_t min = 0, max = kUnbounded;
  bool integers = false;   // of kNumber: it tells integers from others
  bool exclusive = false;  // of kNumber: a bound itself is excluded
  std::string name = {};
  Decimal divisor = {};
  std::shared_ptr<const ItemRule> items = {};
  std::shared_ptr<const PropertyRule> properties = {};

  // The type that it is about; of kType any.
  JsonKind type() const;
};

constexpr uint32_t TypeBit(JsonKind kind) { return 1u << static_cast<int>(kind); }

// Makes and keeps formulas: atoms and references combined by and, or, not, and exactly one of.
// Negations stand at atoms and references alone. Not thread-safe.
class FormulaSet {
 public:
  enum class Kind : uint8_t { kFalse, kTrue, kAtom, kReference, kAnd, kOr, kOne };

  // At most so many formulas and atoms. Once there would be more, full() is true and new ones are
  // kFalse. `form`, kJson or kJsonAny: how the texts of strings and numbers are written that the
  // expressions of atoms hold.
  explicit FormulaSet(size_t max_formulas, TextForm form = TextForm::kJson);

  Formula Of(Atom atom);
  Formula OfTypes(uint32_t types);
  Formula OfRequired(std::string_view name);
  // An object that has the property: false for values of other types, unlike OfRequired.
  Formula HasProperty(std::string_view name);
  Formula And(std::span<const Formula> parts) { return Combine(Kind::kAnd, parts); }
  Formula And(Formula a, Formula b) { return And(std::array{a, b}); }
  Formula Or(std::span<const Formula> parts) { return Combine(Kind::kOr, parts); }
  Formula Or(Formula a, Formula b) { return Or(std::array{a, b}); }
  // Exactly one of them is true.
  Formula One(std::span<const Formula> parts);
  Formula Not(Formula formula);

  // References are made first and defined later, so schemas may contain themselves.
  Formula NewReference();
  void Define(Formula reference, Formula formula);
  // A reference that leads to itself without a value in between, by its order; unset if there is
  // none.
  std::optional<int32_t> EmptyLoop() const;
  int32_t num_references() const { return static_cast<int32_t>(targets_.size()); }

  Kind kind(Formula formula) const { return node(formula).kind; }
  // Of kAtom, kReference and kOne: it is the negation of it.
  bool negated(Formula formula) const { return node(formula).negated; }
  const Atom& atom_of(Formula formula) const { return atom(node(formula).index); }
  const Atom& atom(int32_t index) const { return atoms_[static_cast<size_t>(index)]; }

  // What it says of values of the type: without references and atoms about other types. There is no
  // EmptyLoop().
  Formula Restrict(Formula formula, JsonKind type);

  // The same, with what must be true or false in any case put into the rest: "a and (not a or b)"
  // is "a and b".
  Formula Simplify(Formula formula);
  // With atoms replaced; `replace` gives what stands for an atom.
  using Replace = absl::FunctionRef<Formula(int32_t atom)>;
  Formula Substitute(Formula formula, Replace replace);
  // Something that is true wherever `formula` may be, if `replace` gives that for an atom, negated
  // or not.
  using Relax = absl::FunctionRef<Formula(int32_t atom, bool negated)>;
  Formula Weaken(Formula formula, Relax relax);
  // Its value, if `value` gives that of each atom.
  bool Evaluate(Formula formula, absl::FunctionRef<bool(int32_t atom)> value);

  // Whether it has neither negations nor `One`.
  bool IsPositive(Formula formula) const;
  // Adds the atoms in it, each once, ascending.
  void CollectAtoms(Formula formula, std::vector<int32_t>& atoms);
  // An expression by that of each atom.
  ByteRegex ToRegex(Formula formula, RegexSet& regexes,
                    absl::FunctionRef<ByteRegex(int32_t atom)> of) const;
  std::span<const Formula> parts(Formula formula) const { return PartsOf(formula); }
  // Calls `visit` with each atom that must be true for `formula` to be true, as far as that shows
  // without going into alternatives.
  template <typename Visit>
  void ForEachRequired(Formula formula, Visit visit) const {
    const auto look = [&](Formula part) {
      if (kind(part) == Kind::kAtom && !negated(part)) visit(atom_of(part));
    };
    look(formula);
    if (kind(formula) != Kind::kAnd) return;
    for (const Formula part : parts(formula)) look(part);
  }

  // Of going through formulas. Without what it needs, full() is true.
  WorkMeter& meter() { return meter_; }
  TextForm form() const { return form_; }
  size_t size() const { return nodes_.size() + atoms_.size(); }
  bool full() const { return full_; }

 private:
  struct Node {
    Kind kind = Kind::kFalse;
    bool negated = false;
    int32_t index = 0;           // of the atom or reference
    int32_t begin = 0, end = 0;  // of its parts in parts_
  };

  const Node& node(Formula formula) const { return nodes_[static_cast<size_t>(formula)]; }
  std::span<const Formula> PartsOf(Formula formula) const {
    const Node& of = node(formula);
    return {parts_.data() + of.begin, parts_.data() + of.end};
  }
  Formula Intern(Node node, std::span<const Formula> parts);
  Formula Combine(Kind kind, std::span<const Formula> parts);
  bool MayGoThrough(Formula formula);
  void CollectReferences(Formula formula, std::vector<int32_t>& references) const;
  Formula RestrictNew(Formula formula, JsonKind type);

  const size_t max_formulas_;
  const TextForm form_;
  WorkMeter meter_;
  bool full_ = false;
  int depth_ = 0;  // of references being followed
  std::vector<Node> nodes_;
  std::vector<Formula> parts_;
  absl::flat_hash_map<std::vector<int32_t>, Formula> by_content_;
  std::deque<Atom> atoms_;  // references to them stay valid
  absl::flat_hash_map<std::string, int32_t> atom_by_content_;
  std::vector<Formula> targets_;  // of references
  absl::flat_hash_map<int64_t, Formula> restricted_;
};

// The values equal to `value`. Numbers are equal by value: 1 and 1.0. At most as deep as `value`.
Formula EqualTo(const JsonValue& value, FormulaSet& formulas, RegexSet& regexes);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_FORMULA_H_
