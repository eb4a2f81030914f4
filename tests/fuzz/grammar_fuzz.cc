// A grammar in GBNF, and bytes that are read with it. A part is the grammar; the rest are the
// bytes.
#include <memory>

#include "model/base/errors.h"
#include "model/constraint/earley.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr size_t kMaxText = 256;

// A byte after the state: all that the recognizer says of it agrees.
Recognizer::State Step(Recognizer& recognizer, Recognizer::State state, uint8_t byte) {
  const bool may_follow = recognizer.NextBytes(state).Has(byte);
  const Recognizer::Part part = recognizer.PartOf(state);
  const RegexDfa::State inside =
      part.dfa == nullptr ? RegexDfa::kDead : part.dfa->Next(part.state, byte);
  const Recognizer::State next = recognizer.Next(state, byte);
  if (recognizer.full()) return Recognizer::kDead;
  TLM_CHECK(may_follow == (next != Recognizer::kDead));
  TLM_CHECK(part.dfa == nullptr || may_follow == (inside != RegexDfa::kDead));
  // The text can be completed.
  TLM_CHECK(next == Recognizer::kDead || recognizer.Accepts(next) ||
            !recognizer.NextBytes(next).empty());
  return next;
}

// The bytes that may follow, and every other of them replaced by one that may.
void Read(Recognizer& recognizer, std::string_view text, size_t max_bytes) {
  Recognizer::State state = recognizer.start();
  for (size_t i = 0; i < text.size() && state != Recognizer::kDead; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const ByteSet next = recognizer.NextBytes(state);
    uint8_t taken = byte;
    while (!next.empty() && !next.Has(taken)) ++taken;
    if (taken != byte) TLM_CHECK(Step(recognizer, state, byte) == Recognizer::kDead);
    state = Step(recognizer, state, taken);
    // One state's worth above.
    TLM_CHECK(recognizer.bytes() < 4 * max_bytes);
  }
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tlm::ConstraintLimits limits = {.max_states = 5000, .max_bytes = size_t{4} << 20};
  tlm::FuzzInput input(data, size);
  tlm::Budget budget(absl::Seconds(1), nullptr);
  const auto make = tlm::CompileGrammar(input.Part(), limits, budget);
  if (!make.ok()) {
    tlm::CheckRefusal(make.status());
    return 0;
  }
  const std::unique_ptr<tlm::Recognizer> recognizer = (*make)();
  TLM_CHECK(recognizer->start() != tlm::Recognizer::kDead);
  tlm::Read(*recognizer, input.Bytes(tlm::kMaxText), limits.max_bytes);
  return 0;
}
