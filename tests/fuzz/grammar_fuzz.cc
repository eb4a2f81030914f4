// A grammar in GBNF, and bytes that are read with it. A part is the grammar; the rest are the
// bytes.
#include <memory>

#include "model/base/errors.h"
#include "model/constraint/grammar/earley.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/read_text.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxText = 256;
  const tlm::ConstraintLimits limits = {.max_states = 5000, .max_bytes = size_t{4} << 20};
  tlm::FuzzInput input(data, size);
  tlm::Budget budget(absl::Seconds(1), nullptr);
  const auto make = tlm::CompileGrammar(input.Part(), limits, budget);
  if (tlm::IsRefused(make)) return 0;
  const std::unique_ptr<tlm::Recognizer> recognizer = (*make)();
  TLM_CHECK(recognizer->start() != tlm::Recognizer::kDead);
  tlm::ReadText(*recognizer, recognizer->start(), input.Bytes(kMaxText), limits.max_bytes);
  return 0;
}
