// Texts read by recognizers and automata.
#ifndef TLM_TESTS_SUPPORT_RECOGNIZER_WALK_H_
#define TLM_TESTS_SUPPORT_RECOGNIZER_WALK_H_

#include <cstdint>
#include <ostream>
#include <string_view>

#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/bytes/regex_dfa.h"

namespace tlm {

// Returns the state after `text`; kDead if the text begins nothing.
inline Recognizer::State StateAfter(Recognizer& recognizer, Recognizer::State state,
                                    std::string_view text) {
  for (size_t i = 0; i < text.size() && state != Recognizer::kDead; ++i) {
    state = recognizer.Next(state, static_cast<uint8_t>(text[i]));
  }
  return state;
}
inline Recognizer::State StateAfter(Recognizer& recognizer, std::string_view text) {
  return StateAfter(recognizer, recognizer.start(), text);
}

// Whether a text is one of the language, and whether it begins one.
struct Verdict {
  bool whole = false, alive = false;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const Verdict& verdict) {
  return out << (verdict.whole ? "whole" : verdict.alive ? "a beginning" : "neither");
}

inline Verdict VerdictOf(Recognizer& recognizer, Recognizer::State state) {
  if (state == Recognizer::kDead) return {};
  return {.whole = recognizer.Accepts(state), .alive = true};
}
inline Verdict VerdictOf(Recognizer& recognizer, std::string_view text) {
  return VerdictOf(recognizer, StateAfter(recognizer, text));
}
inline bool Takes(Recognizer& recognizer, std::string_view text) {
  return VerdictOf(recognizer, text).whole;
}

inline bool Accepts(RegexDfa& dfa, std::string_view text) {
  RegexDfa::State state = dfa.start();
  for (size_t i = 0; i < text.size() && state != RegexDfa::kDead; ++i) {
    state = dfa.Next(state, static_cast<uint8_t>(text[i]));
  }
  return dfa.Accepts(state);
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_RECOGNIZER_WALK_H_
