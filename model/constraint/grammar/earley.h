// Recognizes the texts of any context-free grammar byte by byte, following all readings of a text
// at once (Earley, "An efficient context-free parsing algorithm", 1970).
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

// A state is a set of readings. A reading is a terminal of the network that is being read, its
// remaining text, and the calls of rules around it. A frame represents a call: it holds the places
// where the calling rules continue. Equal frames are stored once, wherever the calls began. A call
// at the end of a rule keeps that rule's frame, because nothing else follows in the rule. So a list
// returns to the same states with each element, whether it is written with *, left-recursive or
// right-recursive.
class EarleyRecognizer final : public Recognizer {
 public:
  // The limits of states and bytes apply.
  EarleyRecognizer(std::shared_ptr<const GrammarNetwork> network, const ConstraintLimits& limits);
  EarleyRecognizer(const EarleyRecognizer&) = delete;
  EarleyRecognizer& operator=(const EarleyRecognizer&) = delete;

  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return states_[static_cast<size_t>(state)].accepts; }
  ByteSet NextBytes(State state) override;
  Part PartOf(State state) override;
  void AllowWork(int64_t steps) override { regexes_.meter().Allow(steps); }
  Usage usage() const override;

  // The largest number of readings in a state, and of places that are visited to make it.
  static constexpr size_t kMaxReadings = 4096;

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kMaxPartReadings = 64;
  // The frame of the call of the root rule. When it returns, the text may end.
  static constexpr int32_t kOuterFrame = 0;

  struct Reading {
    int32_t node = 0;                   // node of the network after the terminal
    int32_t frame = 0;                  // frame of the rule's call
    ByteRegex rest = RegexSet::kEmpty;  // what remains of the terminal
    friend auto operator<=>(const Reading&, const Reading&) = default;
  };
  // A place in a rule, in the call that `frame` describes. While a state is made, the frame of a
  // call that begins in this state is ~row, where `row` is an index in rows_.
  struct Place {
    int32_t node = 0;
    int32_t frame = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct StateData {
    int32_t begin = 0, end = 0;  // indices in readings_
    int32_t next = -1;           // index in next_: a state for each class of bytes; -1: no row yet
    RegexDfa::State part = kUnknown;
    bool is_rest = false;  // Part::is_rest of `part`
    bool accepts = false;
  };
  struct Frame {
    int32_t begin = 0, end = 0;  // indices in places_
  };
  // Frames that were made together, because they may refer to each other.
  struct FrameGroup {
    int32_t first = 0, size = 0;
  };
  // A rule that is called while a state is made, and the places where its callers continue.
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

  // Spends steps of the allowed work.
  void Spend(size_t steps) {
    if (!regexes_.meter().Spend(static_cast<int64_t>(steps))) full_ = true;
  }
  State Step(State state, uint8_t byte);
  // All remaining texts of a state in which only the terminals of the readings can follow.
  ByteRegex RestOf(bool accepts, std::span<const Reading> readings);
  // The texts that complete a terminal: the terminal being read, or, if that may have ended
  // already, a terminal that follows it. Holds the empty text if no terminal can come, or too many
  // can.
  ByteRegex NextTerminalsOf(std::span<const Reading> readings);
  // The state of the readings in made_ and of the readings that they lead to; kDead if made_ is
  // empty.
  State Make();
  // For the readings whose terminal may end, adds to made_ the readings that follow. Returns false
  // above a limit.
  bool Close(std::span<const Reading> readings);
  void Visit(Place place);
  void Expand(Place place);
  void Call(int32_t rule, Place after);
  void Return(int32_t frame);
  void MakeFrames();
  void MakeFrameGroup(std::span<const size_t> rows);
  // The first frame of an existing group that equals the rows; kUnknown if there is no such group.
  int32_t FindFrameGroup(size_t hash, std::span<const size_t> rows) const;
  // Sorts the readings. Readings at the same place become one.
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

  // The state that is being made.
  std::vector<Reading> made_;
  bool made_accepts_ = false;
  std::vector<Place> work_;
  std::unordered_set<uint64_t> visited_;  // places
  std::unordered_set<int32_t> returned_;  // frames
  std::vector<Row> rows_;
  std::unordered_map<int32_t, int32_t> row_of_;  // index in rows_ by rule
};

// Compiles a grammar in GBNF, llama.cpp's notation (Grammar::Parse). Fails as
// GrammarNetwork::Compile does, and with RESOURCE_EXHAUSTED if the first state is above the limits.
absl::StatusOr<RecognizerFactory> CompileGrammar(std::string_view gbnf,
                                                 const ConstraintLimits& limits, Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_GRAMMAR_EARLEY_H_
