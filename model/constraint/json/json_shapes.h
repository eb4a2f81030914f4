// The state of arrays and objects that are being written: what their schema has decided so far, and
// what may come next in them.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_SHAPES_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/json/scalar_texts.h"
#include "model/constraint/json/schema_formula.h"

namespace tlm {

// Numbers keys from 0. Equal keys have the same number.
template <typename Key>
class Interner {
 public:
  int32_t Of(Key key) {
    const auto [found, is_new] = numbers_.try_emplace(std::move(key), size());
    if (is_new) keys_.push_back(&found->first);
    return found->second;
  }
  const Key& operator[](int32_t number) const { return *keys_[static_cast<size_t>(number)]; }
  int32_t size() const { return static_cast<int32_t>(keys_.size()); }

 private:
  absl::node_hash_map<Key, int32_t> numbers_;
  std::vector<const Key*> keys_;
};

// The formulas about a value: `must` has to become true, and each of `outs` has to be decided.
struct ValueGoal {
  Formula must = kTrue;
  std::vector<Formula> outs = {};

  friend bool operator==(const ValueGoal&, const ValueGoal&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const ValueGoal& goal) {
    return H::combine(std::move(hash), goal.must, goal.outs);
  }
};
using Outcome = std::vector<bool>;  // the value of each of a goal's `outs`

// A shape is the state of an open array or object. Two open arrays or objects with the same
// possible continuations have the same shape. Shapes are numbers, created on demand; they do not
// depend on the arrays and objects around them. Not thread-safe.
//
// All formulas about a value are decided together, each exactly: when the value ends, the outcome
// is known. Until then a shape allows whatever keeps `must` possible. For scalars this is exact.
// For arrays and objects it looks one value ahead: the parent's `must` becomes a condition on the
// child, in which decided atoms have their values, and an undecided atom may have either value.
// Names are given in TextForm::kJson, whatever the form of the formulas.
class JsonShapes {
 public:
  using Shape = int32_t;
  static constexpr Shape kNone = -1;

  // The next item, or the value of a property whose name is known.
  struct Child {
    int32_t goal = -1;  // number of a ValueGoal
    // The parent's atoms that the child's outcome decides. The second number is the index of the
    // atom's formula in the goal's `outs`, or -1 if the atom is true for any child, or -2 if it is
    // false for any child. Ascending.
    std::vector<std::pair<int32_t, int32_t>> decides = {};
    int32_t order = -1;  // index of the property among those that the schema names; -1: not named
  };
  using ChildNumber = int32_t;  // kNone: no child may come

  // `formulas`, `regexes` and `dfa` must outlive the shapes. With `any_order`, properties come in
  // any order; otherwise those that schemas name come first, in the order in which they are named.
  JsonShapes(FormulaSet& formulas, RegexSet& regexes, RegexDfa& dfa, bool any_order)
      : formulas_(formulas),
        regexes_(regexes),
        dfa_(dfa),
        texts_(formulas, regexes),
        any_order_(any_order) {}

  int32_t NumberOf(ValueGoal goal) { return goals_.Of(std::move(goal)); }
  const ValueGoal& goal(int32_t number) const { return goals_[number]; }
  // False only if no value satisfies the formula.
  bool MayExist(Formula formula);

  // The shape after [ or {, for a value with this goal; kNone if no such array or object exists.
  Shape Open(JsonKind kind, int32_t goal);
  // Whether the closing bracket may follow.
  bool CanClose(Shape shape);
  // The outcome if the closing bracket follows.
  Outcome Close(Shape shape);
  // The next item; kNone if no item may follow.
  ChildNumber NextItem(Shape shape);
  // The names that may come next, as written between the quotes, and the closing quote.
  ByteRegex NextNames(Shape shape);
  // Whether all names that no schema names are treated alike, except names that came already.
  bool OtherNamesAreAlike(Shape shape) { return NextNames(shape), found(shape).tests.empty(); }
  // Whether every name that no schema names may come next, except names that came already.
  bool TakesOtherNames(Shape shape) { return NextNames(shape), found(shape).takes_others; }
  const std::vector<std::string>& SeenNames(Shape shape) const { return data(shape).seen; }
  // The class of a name: names of one class are treated alike. nullopt if the name came already or
  // its class is unknown.
  std::optional<uint64_t> ClassOfName(Shape shape, std::string_view name);
  // Whether the next item and all later items have the same conditions, except that they must
  // differ from earlier ones.
  bool ItemsAreAlike(Shape shape) const;
  const std::vector<std::string>& SeenItems(Shape shape) const { return data(shape).seen; }
  // The value of the property `name`, which NextNames holds; kNone if the name came already.
  ChildNumber NextProperty(Shape shape, std::string_view name);
  // The shape after a child whose goal had this outcome. `text` is the property's name as written
  // between the quotes, or the item's text if NeedsText. kNone if the array or object can neither
  // end nor continue.
  Shape After(Shape shape, ChildNumber child, const Outcome& outcome, std::string_view text);
  const Child& child(ChildNumber number) const { return children_[static_cast<size_t>(number)]; }
  // Whether items are compared with each other (`uniqueItems`).
  bool NeedsText(Shape shape) const { return data(shape).unique; }

  size_t size() const { return static_cast<size_t>(shapes_.size()) + children_.size(); }

 private:
  // The names that schemas name, in their order: plain and in kJson, and the index of each.
  struct Names {
    std::vector<std::string> names, encoded;
    absl::flat_hash_map<std::string, int32_t> order;  // by encoded name
  };
  // A shape's content.
  struct Data {
    JsonKind kind = JsonKind::kArray;
    bool unique = false;
    Formula must = kTrue;
    std::vector<Formula> outs = {};
    int32_t names = -1;      // kObject: index in names_
    int64_t count = 0;       // children so far; larger counts that make no difference are cut
    int32_t next_order = 0;  // names with a smaller index cannot come any more
    // Undecided kContains atoms: the atom, and the number of matching items so far.
    std::vector<std::pair<int32_t, int64_t>> contained = {};
    // Names that must not come again, or the values of items. Ascending.
    std::vector<std::string> seen = {};

    friend bool operator==(const Data&, const Data&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Data& data) {
      return H::combine(std::move(hash), data.kind, data.must, data.outs, data.names, data.count,
                        data.next_order, data.contained, data.seen);
    }
  };
  // Cached answers about a shape.
  struct Found {
    // Whether `item`, the names and `can_close` are known.
    bool has_item = false, has_names = false, has_close = false;
    bool can_close = false, takes_others = false;
    ChildNumber item = kNone;
    ByteRegex next_names = RegexSet::kNone;
    std::vector<ChildNumber> properties;  // by index in Names
    std::vector<ByteRegex> tests;         // two other names differ only if a test does
    absl::flat_hash_map<std::vector<bool>, ChildNumber> classes;  // by results of the tests
  };
  // Either a name that a schema names, or a class of other names.
  struct NameClass {
    int32_t order = -1;                 // index in Names; for a class after all names
    const std::string* name = nullptr;  // null for a class
    std::string_view encoded = {};
    const std::vector<ByteRegex>* tests = nullptr;  // class only
    const std::vector<bool>* passed = nullptr;      // class only: the tests that it passes
  };

  const Data& data(Shape shape) const { return shapes_[shape]; }
  Found& found(Shape shape) {
    if (static_cast<size_t>(shape) >= found_.size()) found_.resize(static_cast<size_t>(shape) + 1);
    return found_[static_cast<size_t>(shape)];
  }
  Shape ShapeOf(Data data);
  // Whether the array or object can end or continue.
  bool CanContinue(Shape shape);

  bool CloseWith(const Data& data, Formula formula);
  static int64_t ContainedIn(const Data& data, int32_t atom);
  int32_t OrderOf(const Data& data, const std::string& name) const;
  bool MayFailAfter(const Data& data, const Atom& atom, int32_t order);
  std::vector<int32_t> AtomsOf(const Data& data) const;
  int32_t NamesOf(const Data& data);
  void Decide(Data& data, absl::FunctionRef<Formula(int32_t atom)> value);
  void DecideCounts(Data& data);
  void DecideChild(Data& data, const Child& child, const Outcome& outcome, bool repeated);
  static bool AddSeen(Data& data, std::string value);

  // These make the goal of a child. `said` returns the condition that an atom of the parent puts on
  // the child, and `must` is the parent's `must` as a condition on the child.
  ChildNumber MakeChild(const Data& data, Formula must, int32_t order,
                        absl::FunctionRef<Formula(int32_t atom)> said);
  Child ChildWith(const Data& data, Formula must, int32_t order,
                  absl::FunctionRef<Formula(int32_t atom)> said);
  Formula Possible(const Data& data, const Child& child);
  static Formula SaidOfItem(const Atom& atom, int64_t index);
  Formula RelaxForItem(const Data& data, int32_t atom, bool negated);
  Formula SaidOfName(const Atom& atom, const NameClass& name);
  Formula RelaxForName(const Data& data, int32_t atom, bool negated, const NameClass& name);
  bool MatchesName(ByteRegex regex, const NameClass& name);
  ChildNumber ChildOfName(const Data& data, const NameClass& name);
  void FindNames(Shape shape);
  ByteRegex FindOtherNames(Shape shape);
  // All ways to write a name that is given in kJson.
  ByteRegex NameRegex(std::string_view encoded) {
    return JsonTextRegex(regexes_, encoded, formulas_.form());
  }
  ChildNumber ChildOfClass(Shape shape, const std::vector<bool>& passed);
  Formula EqualToText(const std::string& text);
  bool MayExistNew(Formula formula);
  bool ArrayMayExist(Formula array);
  bool ObjectMayExist(Formula object);

  FormulaSet& formulas_;
  RegexSet& regexes_;
  RegexDfa& dfa_;
  ScalarTexts texts_;
  const bool any_order_;

  Interner<ValueGoal> goals_;
  Interner<Data> shapes_;
  std::deque<Found> found_;
  std::vector<Child> children_;
  std::deque<Names> names_;
  absl::flat_hash_map<std::vector<int32_t>, int32_t> names_by_atoms_;
  // The largest index in Names of the names of a rule, by index in names_ and rule.
  absl::flat_hash_map<std::pair<int32_t, const PropertyRule*>, int32_t> last_named_;
  absl::flat_hash_map<Formula, bool> may_exist_;
  std::vector<Formula> in_progress_;  // MayExist calls in progress
  bool used_unfinished_ = false;      // a call depended on the result of a call in progress
  absl::flat_hash_map<std::string, Formula> equal_to_;
  absl::flat_hash_map<std::pair<ByteRegex, std::string>, bool> matches_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_SHAPES_H_
