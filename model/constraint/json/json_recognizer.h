// Recognizes the JSON documents that a schema allows, with white space and nesting.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_RECOGNIZER_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_RECOGNIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_options.h"
#include "model/constraint/json/json_shapes.h"
#include "model/constraint/json/scalar_texts.h"
#include "model/constraint/json/schema_formula.h"

namespace tlm {

// A state is a Position. ScalarTexts decides scalars; JsonShapes decides what may come next in
// arrays and objects.
class JsonRecognizer : public Recognizer, private Recognizer::PartEnds {
 public:
  JsonRecognizer(const JsonOptions& options, const ConstraintLimits& limits)
      : options_(options),
        max_states_(limits.max_states),
        form_(options.any_escapes ? TextForm::kJsonAny : TextForm::kJson),
        formulas_(limits.max_states, form_),
        regexes_(limits.max_states),
        dfa_(regexes_, RegexSet::kNone, limits.max_states),
        texts_(formulas_, regexes_),
        shapes_(formulas_, regexes_, dfa_, options.any_property_order),
        any_text_(
            dfa_.StateOf(regexes_.Concat(AnyTextRegex(regexes_, form_), regexes_.Literal("\"")))) {}

  // Compiles the schema. Must be called once, before all other functions. Fails as
  // CompileJsonSchema does.
  absl::Status Read(std::string_view schema, Budget& budget);

  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override;
  ByteSet NextBytes(State state) override;
  Part PartOf(State state) override;
  void AllowWork(int64_t steps) override {
    regexes_.meter().Allow(steps);
    formulas_.meter().Allow(steps);
  }
  Usage usage() const override {
    return {.bytes = MemoryBytes(),
            .full = full_ || formulas_.full() || regexes_.full() || dfa_.full()};
  }

 private:
  using Shape = JsonShapes::Shape;

  bool EndsAlike(State state, RegexDfa::State inside, std::vector<std::string>& others) override;
  std::optional<uint64_t> EndClass(State state, std::string_view text) override;
  size_t MemoryBytes() const;

  // The place in the syntax of JSON.
  enum class Place : uint8_t {
    kValue,   // before the first value, or after a colon
    kString,  // in a string value
    kScalar,  // in a number, boolean or null
    kOpened,  // after [ or {
    kName,    // in a property's name, after its opening quote
    kNamed,   // after a property's name
    kAfter,   // after a value in an array or object
    kComma,   // after a comma
    kEnd,     // after the outermost value
  };
  // An open array or object, and the frames around it.
  struct Frame {
    bool object = false;
    int32_t outer = -1;  // the frame around it; -1: none
    int32_t depth = 0;
    Shape shape = JsonShapes::kNone;
    JsonShapes::ChildNumber child = JsonShapes::kNone;  // the child being written, or the next one
    int32_t name = -1;                                  // the child's name: index in names_
    int32_t begin = 0;    // the text before the child: a number of kept_
    bool writes = false;  // texts are kept, because items of this or an outer array are compared

    friend bool operator==(const Frame&, const Frame&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Frame& f) {
      return H::combine(std::move(hash), f.object, f.outer, f.shape, f.child, f.name, f.begin);
    }
  };
  struct Position {
    Place place = Place::kValue;
    int32_t frame = -1;  // the innermost frame
    // White space since the last token. 0: none; 1: a space; n >= 2: a line break and n - 2 blanks.
    int32_t blanks = 0;
    int32_t goal = -1;  // goal of the value that is being written or comes next
    int32_t dfa = -1;   // state of the scalar's or name's text in dfa_
    int32_t outs = -1;  // states of the goal's `outs` in dfa_: index in outs_
    int32_t text = 0;   // the text so far: a number of kept_; 0 if texts are not kept
    int32_t begin = 0;  // the text before the scalar or name: a number of kept_

    friend bool operator==(const Position&, const Position&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Position& p) {
      return H::combine(std::move(hash), p.place, p.frame, p.blanks, p.goal, p.dfa, p.outs, p.text,
                        p.begin);
    }
  };
  // The automata of a goal for the texts of scalars: states of dfa_.
  struct Scalars {
    bool checked = false;  // numbers are checked when they end (ScalarTexts::NumberIs)
    RegexDfa::State must = RegexDfa::kDead;
    std::vector<int32_t> outs = {};
  };

  const Position& at(State state) const { return positions_[state]; }
  State StateOf(Position position);
  State NextNew(State state, uint8_t byte);
  State Blank(Position position, uint8_t byte);

  const Scalars& ScalarsOf(int32_t goal);
  State BeginValue(Position position, int32_t goal, uint8_t byte);
  State BeginInside(Position position, int32_t goal, uint8_t byte);
  State ContinueScalar(Position position, uint8_t byte);
  std::pair<bool, Outcome> EndOfScalar(const Position& position);
  State EndScalar(const Position& position);
  // The state after the value that ends at `position`, in the frame around it.
  State EndValue(const Position& position, int32_t frame, const Outcome& outcome);
  State CloseFrame(const Position& position);
  State BeginName(Position position);
  State ContinueName(Position position, uint8_t byte);
  State BeginItem(Position position, uint8_t byte);
  // Whether another item or property may come.
  bool MayContinue(int32_t frame);
  // A name in TextForm::kJson, which the shapes use.
  std::string NameOf(std::string text) const {
    return form_ == TextForm::kJsonAny ? WithFewestEscapes(text) : std::move(text);
  }

  const Frame& frame(int32_t number) const { return frames_[number]; }
  int32_t Append(int32_t text, uint8_t byte);
  std::string TextFrom(int32_t begin, int32_t end) const;

  const JsonOptions options_;
  const size_t max_states_;
  bool full_ = false;
  const TextForm form_;
  FormulaSet formulas_;
  RegexSet regexes_;
  RegexDfa dfa_;
  ScalarTexts texts_;
  JsonShapes shapes_;
  const RegexDfa::State any_text_;  // state of any text and its closing quote

  Interner<Position> positions_;
  Interner<Frame> frames_;
  Interner<std::vector<int32_t>> outs_;
  Interner<std::string> names_;
  Interner<std::pair<int32_t, uint8_t>> kept_;  // text without its last byte, last byte; from 1
  absl::flat_hash_map<int32_t, Scalars> scalars_;
  absl::flat_hash_map<uint64_t, State> next_;
  absl::flat_hash_map<State, ByteSet> next_bytes_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_RECOGNIZER_H_
