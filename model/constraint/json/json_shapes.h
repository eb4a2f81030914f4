// Arrays and objects being written: what is decided so far, and what may come next.
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

// Numbers things: equal ones have one number.
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

// What a value must be, and which other formulas are to be decided about it.
struct ValueGoal {
  Formula must = kTrue;
  std::vector<Formula> outs = {};

  friend bool operator==(const ValueGoal&, const ValueGoal&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const ValueGoal& goal) {
    return H::combine(std::move(hash), goal.must, goal.outs);
  }
};
using Outcome = std::vector<bool>;  // of a goal's `outs`

// Shapes are arrays or objects that may go on alike: they are numbers, made as far as they are
// needed, and know nothing of what they stand in. Not thread-safe.
//
// All formulas about a value are decided together, each exactly: at its end the outcome is known.
// On the way a shape admits what keeps `must` possible. That is exact for scalars and decided one
// value ahead for arrays and objects: `must` of a child holds what the parent's `must` asks of it,
// given all that is decided, and what is undecided taken for what suits.
// Names are given as in TextForm::kJson, whatever the form of the formulas.
class JsonShapes {
 public:
  using Shape = int32_t;
  static constexpr Shape kNone = -1;

  // The next item, or the value of a property whose name is known.
  struct Child {
    int32_t goal = -1;  // number of a ValueGoal
    // What its outcome decides: an atom about the parent, and the index of its formula in `outs`;
    // -1 if it is true in any case, -2 if it is false.
    std::vector<std::pair<int32_t, int32_t>> decides = {};
    int32_t order = -1;  // of a property that a schema names: its place in their order
  };
  using ChildNumber = int32_t;  // kNone: none may come

  // The sets outlive it. `any_order`: properties come in any order; else those that schemas name
  // come first, in the order in which they are named.
  JsonShapes(FormulaSet& formulas, RegexSet& regexes, RegexDfa& dfa, bool any_order)
      : formulas_(formulas),
        regexes_(regexes),
        dfa_(dfa),
        texts_(formulas, regexes),
        any_order_(any_order) {}

  int32_t NumberOf(ValueGoal goal) { return goals_.Of(std::move(goal)); }
  const ValueGoal& goal(int32_t number) const { return goals_[number]; }
  // Whether some value may be as the formula says: false only if none is.
  bool MayExist(Formula formula);

  // An empty array or object that is to be as the goal says; kNone if it cannot be.
  Shape Open(JsonKind kind, int32_t goal);
  // Whether it may end as it is, and what is decided then.
  bool CanClose(Shape shape);
  Outcome Close(Shape shape);
  ChildNumber NextItem(Shape shape);
  // The names that may come next, as they stand between the quotes, and the closing quote.
  ByteRegex NextNames(Shape shape);
  // Whether those that no schema names are all alike, but for those that came already.
  bool OtherNamesAreAlike(Shape shape) { return NextNames(shape), found(shape).tests.empty(); }
  // Whether all names that no schema names may come.
  bool TakesOtherNames(Shape shape) { return NextNames(shape), found(shape).takes_others; }
  const std::vector<std::string>& SeenNames(Shape shape) const { return data(shape).seen; }
  // By what names differ but for having come; none for those that came already.
  std::optional<uint64_t> ClassOfName(Shape shape, std::string_view name);
  // Whether the item that comes next and those behind it must be alike, but for having come.
  bool ItemsAreAlike(Shape shape) const;
  const std::vector<std::string>& SeenItems(Shape shape) const { return data(shape).seen; }
  // Of a name among them; kNone if it came already.
  ChildNumber NextProperty(Shape shape, std::string_view name);
  // With the child, whose goal had this outcome. `text` is the property's name as it stands between
  // the quotes, or the item's text if NeedsText. kNone if it can neither end nor go on.
  Shape After(Shape shape, ChildNumber child, const Outcome& outcome, std::string_view text);
  const Child& child(ChildNumber number) const { return children_[static_cast<size_t>(number)]; }
  // Whether items are compared.
  bool NeedsText(Shape shape) const { return data(shape).unique; }

  size_t size() const { return static_cast<size_t>(shapes_.size()) + children_.size(); }

 private:
  // Names in their order, encoded, and where each stands.
  struct Names {
    std::vector<std::string> names, encoded;
    absl::flat_hash_map<std::string, int32_t> order;
  };
  struct Data {
    JsonKind kind = JsonKind::kArray;
    bool unique = false;
    Formula must = kTrue;
    std::vector<Formula> outs = {};
    int32_t names = -1;      // of an object
    int64_t count = 0;       // of children so far, as far as it matters
    int32_t next_order = 0;  // names before it do not come any more
    std::vector<std::pair<int32_t, int64_t>> contained =
        {};  // of atoms kContains that are undecided
    std::vector<std::string> seen =
        {};  // ascending: names that must not come again, or items' values

    friend bool operator==(const Data&, const Data&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Data& data) {
      return H::combine(std::move(hash), data.kind, data.must, data.outs, data.names, data.count,
                        data.next_order, data.contained, data.seen);
    }
  };
  // What was found out about a shape.
  struct Found {
    bool asked_item = false, asked_names = false, asked_close = false;
    bool can_close = false, takes_others = false;
    ChildNumber item = kNone;
    ByteRegex next_names = RegexSet::kNone;
    std::vector<ChildNumber> properties;  // of names that schemas name, by their order
    std::vector<ByteRegex> tests;         // what tells classes of other names apart
    absl::flat_hash_map<std::vector<bool>, ChildNumber> classes;  // by the tests' results
  };
  // A name that a schema names, or a class of other names.
  struct NameClass {
    int32_t order = -1;                 // of a class: behind all others
    const std::string* name = nullptr;  // unset of a class
    std::string_view encoded = {};
    const std::vector<ByteRegex>* tests = nullptr;  // of a class
    const std::vector<bool>* passed = nullptr;
  };

  const Data& data(Shape shape) const { return shapes_[shape]; }
  Found& found(Shape shape) {
    if (static_cast<size_t>(shape) >= found_.size()) found_.resize(static_cast<size_t>(shape) + 1);
    return found_[static_cast<size_t>(shape)];
  }
  Shape ShapeOf(Data data);
  bool CanGoOn(Shape shape);

  bool CloseWith(const Data& data, Formula formula);
  static int64_t ContainedIn(const Data& data, int32_t atom);
  int32_t OrderOf(const Data& data, const std::string& name) const;
  bool MayFailAfter(const Data& data, const Atom& atom, int32_t order);
  std::vector<int32_t> AtomsOf(const Data& data) const;
  int32_t NamesOf(const Data& data);
  void Decide(Data& data, absl::FunctionRef<Formula(int32_t atom)> value);
  void DecideCounts(Data& data);
  void DecideChild(Data& data, const Child& child, const Outcome& outcome, bool repeated);
  static bool See(Data& data, std::string value);

  // What the atoms say of a child, and what `must` asks of it given that.
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
  // The ways to write a name that is encoded as kJson.
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
  // The last name in the order that a rule names.
  absl::flat_hash_map<std::pair<int32_t, const PropertyRule*>, int32_t> last_named_;
  absl::flat_hash_map<Formula, bool> may_exist_;
  std::vector<Formula> asking_;  // MayExist calls under way
  bool guessed_ = false;         // one of them found another under way
  absl::flat_hash_map<std::string, Formula> equal_to_;
  absl::flat_hash_map<std::pair<ByteRegex, std::string>, bool> matches_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_SHAPES_H_
