// Languages decided byte by byte. Implementations here: a regular expression, and a list of texts.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_RECOGNIZER_H_
#define TLM_MODEL_CONSTRAINT_BYTES_RECOGNIZER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/byte_set.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/bytes/regex_set.h"

namespace tlm {

// An automaton over bytes. A state stands for the text read so far; states are numbers, created as
// texts are walked, and texts with the same continuations should share one. Not thread-safe.
class Recognizer {
 public:
  using State = int32_t;
  // No text of the language starts with what was read, as far as is known.
  static constexpr State kDead = -1;

  // Answers how a part may end, for states of one recognizer.
  class PartEnds {
   public:
    virtual ~PartEnds() = default;
    // `inside` is a state of the part's automaton. True if all texts that lead the automaton from
    // `state` to `inside` and end the part there allow the same texts after it, as long as these
    // end no further part. Exceptions, as texts from `state` to the end of the part, are added to
    // `others`.
    virtual bool EndsAlike(State state, RegexDfa::State inside,
                           std::vector<std::string>& others) = 0;
    // For states whose ends are not all alike: the class of the end that `text` leads to. Ends of
    // one class are alike. nullopt if nothing is known.
    virtual std::optional<uint64_t> EndClass(State state, std::string_view text) = 0;
  };

  // A stretch of text that one automaton describes alone, such as the inside of a string. While the
  // automaton is alive and has accepted no prefix, Next() is alive too and stays inside the same
  // part; a text after which the automaton is dead leads to kDead. The part ends where the
  // automaton accepts; from there only Next() knows more. So facts about a state of the automaton
  // hold for all recognizer states inside it, and are computed once.
  struct Part {
    RegexDfa* dfa = nullptr;  // nullptr: the state is in no part
    RegexDfa::State state = RegexDfa::kDead;
    // The automaton describes the whole rest of the text: the part does not end where it accepts.
    bool is_rest = false;
    // Texts of any characters but `"`, backslash and controls keep the automaton alive, and it
    // accepts none of them.
    bool takes_plain = false;
    // How the part may end, asked with `ends_state`; nullptr: unknown.
    PartEnds* ends = nullptr;
    State ends_state = kDead;
  };

  struct Usage {
    size_t bytes = 0;  // estimated memory of the states; grows with what is walked
    // A limit was met: some states are kDead that should not be.
    bool full = false;
  };

  virtual ~Recognizer() = default;
  // The state after `byte`. `state` is not kDead, here and below.
  virtual State Next(State state, uint8_t byte) = 0;
  // Whether the text so far is in the language.
  virtual bool Accepts(State state) = 0;
  // All bytes that do not lead to kDead, and possibly others.
  virtual ByteSet NextBytes(State state) = 0;
  virtual Part PartOf(State) { return {}; }
  // Allows `steps` of about 0.1 us for new states from now on; when they are used up, the
  // recognizer is full.
  virtual void AllowWork(int64_t /*steps*/) {}
  virtual Usage usage() const = 0;

  // kDead if the language is empty.
  State start() const { return start_; }
  size_t bytes() const { return usage().bytes; }
  bool full() const { return usage().full; }

 protected:
  State start_ = kDead;  // set when the recognizer is made
};

// Makes recognizers of one language that have walked nothing yet.
using RecognizerFactory = std::function<std::unique_ptr<Recognizer>()>;

// The states are the automaton's.
class RegexRecognizer final : public Recognizer {
 public:
  // `regex` is one of `regexes`.
  RegexRecognizer(RegexSet regexes, ByteRegex regex, size_t max_states)
      : regexes_(std::move(regexes)), dfa_(regexes_, regex, max_states) {
    start_ = dfa_.start();
  }
  RegexRecognizer(const RegexRecognizer&) = delete;
  RegexRecognizer& operator=(const RegexRecognizer&) = delete;

  State Next(State state, uint8_t byte) override { return dfa_.Next(state, byte); }
  bool Accepts(State state) override { return dfa_.Accepts(state); }
  ByteSet NextBytes(State state) override { return dfa_.NextBytes(state); }
  Part PartOf(State state) override { return {.dfa = &dfa_, .state = state, .is_rest = true}; }
  void AllowWork(int64_t steps) override { regexes_.meter().Allow(steps); }
  Usage usage() const override {
    return {.bytes = dfa_.bytes() + regexes_.bytes(), .full = dfa_.full()};
  }

 private:
  RegexSet regexes_;
  RegexDfa dfa_;
};

// The expression of all the texts; common prefixes are written once.
ByteRegex LiteralsRegex(RegexSet& regexes, std::vector<std::string_view> texts);

// The language of exactly these texts, one of which may be empty. INVALID_ARGUMENT for an empty
// list; RESOURCE_EXHAUSTED above a limit.
absl::StatusOr<std::unique_ptr<Recognizer>> CompileChoices(std::span<const std::string> choices,
                                                           const ConstraintLimits& limits);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_RECOGNIZER_H_
