// Languages over bytes, decided byte by byte; that of one regular expression, and of a list of
// texts.
#ifndef TLM_MODEL_CONSTRAINT_RECOGNIZER_H_
#define TLM_MODEL_CONSTRAINT_RECOGNIZER_H_

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
#include "model/constraint/byte_set.h"
#include "model/constraint/constraint.h"
#include "model/constraint/regex_dfa.h"
#include "model/constraint/regex_set.h"

namespace tlm {

// What texts may be, and for each beginning of one how it may continue. States are numbers, made as
// far as they are walked; texts that may continue alike should share one. Not thread-safe.
class Recognizer {
 public:
  using State = int32_t;
  // No text of the language begins so, or none is known to.
  static constexpr State kDead = -1;

  // Inside of a string or another part of a text that an automaton describes alone. For texts u
  // that keep the automaton alive and that it accepts no beginning of, Next() by u is not kDead and
  // is inside of the same automaton; with others that it does not accept, it is kDead. Where it
  // accepts the part ends, and only Next() tells more. So what is true of a state of the automaton
  // needs to be found out once for all states inside of it.
  struct Part {
    RegexDfa* dfa = nullptr;  // nullptr: not inside of any
    RegexDfa::State state = RegexDfa::kDead;
    // The automaton is that of the whole rest of the text: where it accepts, the part does not end.
    bool is_rest = false;
    // All texts of characters but ", backslash and controls keep it alive, and it accepts none.
    bool takes_plain = false;
  };

  virtual ~Recognizer() = default;
  // kDead if the language is empty.
  virtual State start() = 0;
  // Of a state that is not kDead, as below.
  virtual State Next(State state, uint8_t byte) = 0;
  // Whether the text so far is one of the language.
  virtual bool Accepts(State state) = 0;
  // The bytes that do not lead to kDead, and perhaps others.
  virtual ByteSet NextBytes(State state) = 0;
  virtual Part PartOf(State) { return {}; }
  // Of a state inside of a part that is not the rest: whether all texts that bring its automaton to
  // `inside` and then end the part lead to states that allow the same texts, as far as these end no
  // further part. Texts for which it is not so may be added to `others`, from `state` to the end of
  // the part.
  virtual bool EndsAlike(State /*state*/, RegexDfa::State /*inside*/,
                         std::vector<std::string>& /*others*/) {
    return false;
  }
  // Where they are not all alike: the class of an end by `text`, from `state` on. Ends of one class
  // are alike. None if nothing is known.
  virtual std::optional<uint64_t> EndClass(State /*state*/, std::string_view /*text*/) {
    return std::nullopt;
  }

  // In a flow with a budget of tokens: whether the text so far ends in free text whose tokens are
  // counted, and the state in which that text is to be closed.
  virtual bool CountsTokens(State) { return false; }
  virtual State Close(State state) { return state; }

  // From here on so many steps of about 0.1 us may be made to find new states; without what they
  // need, full() is true.
  virtual void AllowWork(int64_t /*steps*/) {}
  // About the memory that states take, in bytes. Grows with what is walked.
  virtual size_t bytes() const = 0;
  // A limit was met: some states are kDead that should not be.
  virtual bool full() const = 0;
};

// Makes a recognizer of one language that has walked nothing yet.
using RecognizerFactory = std::function<std::unique_ptr<Recognizer>()>;

// States are those of the automaton.
class RegexRecognizer final : public Recognizer {
 public:
  // `regex` is one of `regexes`.
  RegexRecognizer(RegexSet regexes, ByteRegex regex, size_t max_states)
      : regexes_(std::move(regexes)), dfa_(regexes_, regex, max_states) {}
  RegexRecognizer(const RegexRecognizer&) = delete;
  RegexRecognizer& operator=(const RegexRecognizer&) = delete;

  State start() override { return dfa_.start(); }
  State Next(State state, uint8_t byte) override { return dfa_.Next(state, byte); }
  bool Accepts(State state) override { return dfa_.Accepts(state); }
  ByteSet NextBytes(State state) override { return dfa_.NextBytes(state); }
  Part PartOf(State state) override { return {.dfa = &dfa_, .state = state, .is_rest = true}; }
  void AllowWork(int64_t steps) override { regexes_.meter().Allow(steps); }
  size_t bytes() const override { return dfa_.bytes() + regexes_.bytes(); }
  bool full() const override { return dfa_.full(); }

 private:
  RegexSet regexes_;
  RegexDfa dfa_;
};

// The expression of the texts: their common beginnings and ends are written once.
ByteRegex LiteralsRegex(RegexSet& regexes, std::vector<std::string_view> texts);

// Any one of the texts; an empty one may be among them. INVALID_ARGUMENT if there is none;
// RESOURCE_EXHAUSTED above a limit.
absl::StatusOr<std::unique_ptr<Recognizer>> CompileChoices(std::span<const std::string> choices,
                                                           const ConstraintLimits& limits);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_RECOGNIZER_H_
