// The language of one regular expression; that of a list of texts.
#ifndef TLM_MODEL_CONSTRAINT_REGEX_RECOGNIZER_H_
#define TLM_MODEL_CONSTRAINT_REGEX_RECOGNIZER_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/constraint.h"
#include "model/constraint/recognizer.h"
#include "model/constraint/regex_dfa.h"
#include "model/constraint/regex_set.h"

namespace tlm {

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

#endif  // TLM_MODEL_CONSTRAINT_REGEX_RECOGNIZER_H_
