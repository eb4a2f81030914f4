// Reads bytes with a recognizer, and checks what it says of each.
#ifndef TLM_TESTS_FUZZ_READ_TEXT_H_
#define TLM_TESTS_FUZZ_READ_TEXT_H_

#include <string_view>

#include "model/base/errors.h"
#include "model/constraint/bytes/recognizer.h"

namespace tlm {

// A byte after the state: all that the recognizer says of it agrees.
inline Recognizer::State ReadByte(Recognizer& recognizer, Recognizer::State state, uint8_t byte) {
  const bool may_follow = recognizer.NextBytes(state).Has(byte);
  const Recognizer::Part part = recognizer.PartOf(state);
  const RegexDfa::State inside =
      part.dfa == nullptr ? RegexDfa::kDead : part.dfa->Next(part.state, byte);
  const Recognizer::State next = recognizer.Next(state, byte);
  if (recognizer.full()) return Recognizer::kDead;
  TLM_CHECK(may_follow == (next != Recognizer::kDead));
  // Where it ends the part, the recognizer alone tells.
  const bool ends = part.dfa != nullptr && !part.is_rest && part.dfa->Accepts(inside);
  TLM_CHECK(part.dfa == nullptr || ends || may_follow == (inside != RegexDfa::kDead));
  // The text can be completed.
  TLM_CHECK(next == Recognizer::kDead || recognizer.Accepts(next) ||
            !recognizer.NextBytes(next).empty());
  return next;
}

// From `state` on; bytes that may not follow are replaced by the next ones that may. The state
// behind them.
inline Recognizer::State ReadText(Recognizer& recognizer, Recognizer::State state,
                                  std::string_view text, size_t max_bytes) {
  for (size_t i = 0; i < text.size() && state != Recognizer::kDead; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const ByteSet next = recognizer.NextBytes(state);
    uint8_t taken = byte;
    while (!next.empty() && !next.Has(taken)) ++taken;
    if (taken != byte) TLM_CHECK(ReadByte(recognizer, state, byte) == Recognizer::kDead);
    state = ReadByte(recognizer, state, taken);
    // By what one state may take above its limit.
    TLM_CHECK(recognizer.bytes() < 4 * max_bytes);
  }
  return state;
}

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_READ_TEXT_H_
