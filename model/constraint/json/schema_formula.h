// Schemas as formulas: conditions on a JSON value, built from atoms.
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

// A formula of a FormulaSet. Equal formulas have the same number.
enum class Formula : int32_t {};
inline constexpr Formula kFalse{0};
inline constexpr Formula kTrue{1};

// Conditions on the values of an object's properties, by name. A name in `named` has its own
// formula. For any other name the formulas of all matching patterns hold, or `others` if no pattern
// matches.
struct PropertyRule {
  std::vector<std::pair<std::string, Formula>> named = {};  // in the schema's order
  absl::flat_hash_map<std::string, Formula> by_name = {};
  std::vector<std::pair<ByteRegex, Formula>> patterns = {};  // for names as written between quotes
  Formula others = kTrue;
};

// Conditions on the items of an array.
struct ItemRule {
  std::vector<Formula> first = {};  // by index, for the first items
  Formula others = kTrue;           // for all later items
};

// A statement about values of one type. It is true for all values of other types.
struct Atom {
  enum class Kind : uint8_t {
    kType,        // the value's type is in `types`; the only atom about all values
    kBoolean,     // the value is false (bit 0 of `types`) or true (bit 1)
    kNumber,      // the text is in `regex`
    kMultiple,    // the number is a multiple of `divisor`
    kString,      // the text between the quotes is in `regex`
    kItems,       // the items satisfy `items`
    kContains,    // from min to max items satisfy `schema`
    kLength,      // there are from min to max items
    kUnique,      // no two items are equal
    kProperties,  // the properties satisfy `properties`
    kRequired,    // there is a property `name`
    kCount,       // there are from min to max properties
    kNames,       // the properties' names, as strings, satisfy `schema`
  };
  static constexpr int64_t kUnbounded = INT64_MAX;

  Kind kind = Kind::kType;
  uint32_t types = 0;  // kType: the TypeBit of each type; kBoolean: see there
  ByteRegex regex = RegexSet::kAny;
  // kString: texts that are not in `regex`, but that some validators accept.
  ByteRegex disputed = RegexSet::kNone;
  Formula schema = kTrue;
  int64_t min = 0, max = kUnbounded;
  bool integers = false;   // kNumber: it distinguishes integers from other numbers
  bool exclusive = false;  // kNumber: the bound itself is excluded
  std::string name = {};
  Decimal divisor = {};
  std::shared_ptr<const ItemRule> items = {};
  std::shared_ptr<const PropertyRule> properties = {};

  // The type that the atom is about; any type for kType.
  JsonKind type() const;
};

constexpr uint32_t TypeBit(JsonKind kind) { return 1u << static_cast<int>(kind); }

// Makes and keeps formulas: atoms and references combined by and, or, not, and "exactly one of".
// Only atoms, references and kOne are negated. Not thread-safe.
class FormulaSet {
 public:
  enum class Kind : uint8_t { kFalse, kTrue, kAtom, kReference, kAnd, kOr, kOne };

  // The set has at most `max_formulas` formulas and atoms. Once there would be more, full() is true
  // and new formulas are kFalse. `form` is kJson or kJsonAny: the form of the strings and numbers
  // in the expressions of atoms.
  explicit FormulaSet(size_t max_formulas, TextForm form = TextForm::kJson);

  Formula Of(Atom atom);
  Formula OfTypes(uint32_t types);
  Formula OfRequired(std::string_view name);
  // The value is an object that has the property. Unlike OfRequired it is false for other types.
  Formula HasProperty(std::string_view name);
  Formula And(std::span<const Formula> parts) { return Combine(Kind::kAnd, parts); }
  Formula And(Formula a, Formula b) { return And(std::array{a, b}); }
  Formula Or(std::span<const Formula> parts) { return Combine(Kind::kOr, parts); }
  Formula Or(Formula a, Formula b) { return Or(std::array{a, b}); }
  // Exactly one of the parts is true.
  Formula One(std::span<const Formula> parts);
  Formula Not(Formula formula);

  // References are made first and defined later, so that schemas may contain themselves.
  Formula NewReference();
  void Define(Formula reference, Formula formula);
  // The number of a reference that leads to itself without a value in between; nullopt if there is
  // no such reference.
  std::optional<int32_t> EmptyLoop() const;
  int32_t num_references() const { return static_cast<int32_t>(targets_.size()); }

  Kind kind(Formula formula) const { return node(formula).kind; }
  // kAtom, kReference, kOne: the formula is the negation.
  bool negated(Formula formula) const { return node(formula).negated; }
  const Atom& atom_of(Formula formula) const { return atom(node(formula).index); }
  const Atom& atom(int32_t index) const { return atoms_[static_cast<size_t>(index)]; }

  // The formula for values of the type, without references and without atoms about other types.
  // EmptyLoop() must be nullopt.
  Formula Restrict(Formula formula, JsonKind type);

  // An equal formula, in which parts that must be true or false are substituted into the other
  // parts: "a and (not a or b)" becomes "a and b".
  Formula Simplify(Formula formula);
  // The formula with each atom replaced by what `replace` returns.
  using Replace = absl::FunctionRef<Formula(int32_t atom)>;
  Formula Substitute(Formula formula, Replace replace);
  // A formula that is true whenever `formula` can be true, if `relax` returns such a formula for
  // every atom or negated atom.
  using Relax = absl::FunctionRef<Formula(int32_t atom, bool negated)>;
  Formula Weaken(Formula formula, Relax relax);
  // The formula's value, given the value of each atom.
  bool Evaluate(Formula formula, absl::FunctionRef<bool(int32_t atom)> value);

  // Whether the formula has neither negations nor kOne.
  bool IsPositive(Formula formula) const;
  // Adds the atoms of the formula, each once, ascending.
  void CollectAtoms(Formula formula, std::vector<int32_t>& atoms);
  // The formula as an expression, given the expression of each atom.
  ByteRegex ToRegex(Formula formula, RegexSet& regexes,
                    absl::FunctionRef<ByteRegex(int32_t atom)> of) const;
  std::span<const Formula> parts(Formula formula) const { return PartsOf(formula); }
  // Calls `visit` with atoms that must be true for `formula` to be true: the formula itself, or the
  // parts of a kAnd. It does not look into alternatives.
  template <typename Visit>
  void ForEachRequired(Formula formula, Visit visit) const {
    const auto look = [&](Formula part) {
      if (kind(part) == Kind::kAtom && !negated(part)) visit(atom_of(part));
    };
    look(formula);
    if (kind(formula) != Kind::kAnd) return;
    for (const Formula part : parts(formula)) look(part);
  }

  // The work allowed for functions that go through formulas. Once it is used up, full() is true.
  WorkMeter& meter() { return meter_; }
  TextForm form() const { return form_; }
  size_t size() const { return nodes_.size() + atoms_.size(); }
  bool full() const { return full_; }

 private:
  struct Node {
    Kind kind = Kind::kFalse;
    bool negated = false;
    int32_t index = 0;           // kAtom: in atoms_; kReference: in targets_
    int32_t begin = 0, end = 0;  // its parts in parts_
  };

  const Node& node(Formula formula) const { return nodes_[static_cast<size_t>(formula)]; }
  std::span<const Formula> PartsOf(Formula formula) const {
    const Node& of = node(formula);
    return {parts_.data() + of.begin, parts_.data() + of.end};
  }
  Formula Intern(Node node, std::span<const Formula> parts);
  Formula Combine(Kind kind, std::span<const Formula> parts);
  // Spends the work of visiting a formula. Returns false if the set is full.
  bool SpendOn(Formula formula);
  void CollectReferences(Formula formula, std::vector<int32_t>& references) const;
  Formula RestrictNew(Formula formula, JsonKind type);

  const size_t max_formulas_;
  const TextForm form_;
  WorkMeter meter_;
  bool full_ = false;
  int depth_ = 0;  // references that are being followed
  std::vector<Node> nodes_;
  std::vector<Formula> parts_;
  absl::flat_hash_map<std::vector<int32_t>, Formula> by_content_;
  std::deque<Atom> atoms_;  // references to them stay valid
  absl::flat_hash_map<std::string, int32_t> atom_by_content_;
  std::vector<Formula> targets_;  // definitions by reference
  absl::flat_hash_map<int64_t, Formula> restricted_;
};

// The values equal to `value`. Numbers are compared by value: 1 equals 1.0. The recursion is as
// deep as `value`.
Formula EqualTo(const JsonValue& value, FormulaSet& formulas, RegexSet& regexes);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_FORMULA_H_
