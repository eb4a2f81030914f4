// Texts of a context-free grammar, byte by byte, after Earley ("An efficient context-free parsing
// algorithm", 1970): all readings of a text at once, of any grammar.
#ifndef TLM_MODEL_CONSTRAINT_GRAMMAR_EARLEY_H_
#define TLM_MODEL_CONSTRAINT_GRAMMAR_EARLEY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/grammar/grammar_network.h"

namespace tlm {

// A state is the set of the readings. A reading is a terminal of the network, of which a rest is to
// come, and the calls it is in. Calls are kept as frames: what follows in the rules that called.
// Equal frames are one wherever they began, and a call at the end of a rule keeps the frame of the
// rule, as nothing else follows: so lists return to the same states with each element, whether they
// are written with *, left- or right-recursive.
class EarleyRecognizer final : public Recognizer {
 public:
  // Limits are those of states and bytes.
  EarleyRecognizer(std::shared_ptr<const GrammarNetwork> network, const ConstraintLimits& limits);
  EarleyRecognizer(const EarleyRecognizer&) = delete;
  EarleyRecognizer& operator=(const EarleyRecognizer&) = delete;

  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return states_[static_cast<size_t>(state)].accepts; }
  ByteSet NextBytes(State state) override;
  Part PartOf(State state) override;
  void AllowWork(int64_t steps) override { regexes_.meter().Allow(steps); }
  Usage usage() const override;

  // Of a state: readings, and places of rules in frames that they lead to.
  static constexpr size_t kMaxReadings = 4096;

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kMaxPartReadings = 64;
  // Of the whole text: where it returns the text may end.
  static constexpr int32_t kOuterFrame = 0;

  struct Reading {
    int32_t node = 0;   // of the network, where the terminal leads
    int32_t frame = 0;  // of the rule
    ByteRegex rest = RegexSet::kEmpty;
    friend auto operator<=>(const Reading&, const Reading&) = default;
  };
  // A place in a rule, in the call that `frame` describes. In the making of a state ~row is the
  // frame of a call that begins with it.
  struct Place {
    int32_t node = 0;
    int32_t frame = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct StateData {
    int32_t begin = 0, end = 0;  // in readings_
    int32_t next = -1;           // in next_: a state for each class of bytes
    RegexDfa::State part = kUnknown;
    bool is_rest = false;  // what `part` is
    bool accepts = false;
  };
  struct Frame {
    int32_t begin = 0, end = 0;  // in places_
  };
  // Frames that were made together, as they may name each other.
  struct FrameGroup {
    int32_t first = 0, size = 0;
  };
  // A rule that is called in the making of a state.
  struct Row {
    int32_t rule = 0;
    int32_t frame = kUnknown;
    std::vector<Place> places = {};
  };

  std::span<const Reading> ReadingsOf(State state) const {
    const StateData& of = states_[static_cast<size_t>(state)];
    return {readings_.data() + of.begin, readings_.data() + of.end};
  }
  bool IsOverLimit() const { return states_.size() >= max_states_ || bytes() > max_bytes_; }

  // So many steps of the work that is allowed.
  void Spend(size_t steps) {
    if (!regexes_.meter().Spend(static_cast<int64_t>(steps))) full_ = true;
  }
  State Step(State state, uint8_t byte);
  // The rests of texts in a state where nothing but the terminals is to come.
  ByteRegex RestOf(bool accepts, std::span<const Reading> readings);
  // What completes a terminal: one that is read, or where that may have ended, one that follows it.
  // Holds the empty text where neither is to come, or too many are.
  ByteRegex NextTerminalsOf(std::span<const Reading> readings);
  // The state of the readings in made_, and of what they lead to; kDead if they are none.
  State Make();
  // Adds to made_ what follows those readings that may end. False above a limit.
  bool Close(std::span<const Reading> readings);
  void Visit(Place place);
  void Expand(Place place);
  void Call(int32_t rule, Place after);
  void Return(int32_t frame);
  void MakeFrames();
  void MakeFrameGroup(std::span<const size_t> rows);
  // The first frame of a group like the rows; kUnknown if there is none.
  int32_t FindFrameGroup(size_t hash, std::span<const size_t> rows) const;
  // Sorts; readings at the same place become one.
  void Simplify(std::vector<Reading>& readings);
  State Intern();

  const std::shared_ptr<const GrammarNetwork> network_;
  const size_t max_states_, max_bytes_;
  RegexSet regexes_;
  RegexDfa dfa_;
  bool full_ = false;
  std::vector<StateData> states_;
  std::vector<Reading> readings_;
  std::vector<State> next_;
  std::unordered_multimap<size_t, State> states_by_hash_;
  std::vector<Frame> frames_;
  std::vector<Place> places_;
  std::unordered_multimap<size_t, FrameGroup> frames_by_hash_;

  // Of the state that is being made.
  std::vector<Reading> made_;
  bool made_accepts_ = false;
  std::vector<Place> work_;
  std::unordered_set<uint64_t> visited_;  // places
  std::unordered_set<int32_t> returned_;  // frames
  std::vector<Row> rows_;
  std::unordered_map<int32_t, int32_t> row_of_;  // by rule
};

// Of a grammar in GBNF: llama.cpp's notation, see Grammar::Parse. Errors as
// GrammarNetwork::Compile; RESOURCE_EXHAUSTED if the beginnings of the texts are above the limits.
absl::StatusOr<RecognizerFactory> CompileGrammar(std::string_view gbnf,
                                                 const ConstraintLimits& limits, Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_GRAMMAR_EARLEY_H_
