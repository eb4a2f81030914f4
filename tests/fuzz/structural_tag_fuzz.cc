// A structural tag with grammars, and bytes that are read with it. Parts: two triggers; begin,
// grammar and end of two regions; the rest are the bytes. The second of each may be empty: then
// there is none.
#include "model/base/errors.h"
#include "model/constraint/earley.h"
#include "model/constraint/structural_tag.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/read_text.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxText = 256;
  const tlm::ConstraintLimits limits = {.max_states = 5000, .max_bytes = size_t{4} << 20};
  tlm::FuzzInput input(data, size);
  tlm::ConstraintSpec spec;
  spec.triggers = {std::string(input.Part()), std::string(input.Part())};
  if (spec.triggers[1].empty()) spec.triggers.pop_back();
  for (int i = 0; i < 2; ++i) {
    tlm::ConstraintSpec::Region region;
    region.begin = input.Part();
    region.content = input.Part();
    region.end = input.Part();
    if (i == 0 || !region.begin.empty()) spec.regions.push_back(region);
  }
  tlm::Budget budget(absl::Seconds(1), nullptr);
  const auto tag = tlm::StructuralTag::Compile(spec, limits, [&](const auto& region) {
    return tlm::CompileGrammar(region.content, limits, budget);
  });
  if (!tag.ok()) {
    tlm::CheckRefusal(tag.status());
    return 0;
  }
  tlm::StructuralTagRecognizer recognizer(*tag, limits);
  TLM_CHECK(recognizer.Accepts(recognizer.start()));
  // Each region's content has limits of its own.
  tlm::ReadText(recognizer, input.Bytes(kMaxText), 3 * limits.max_bytes);
  return 0;
}
