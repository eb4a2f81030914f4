// The regions of an answer against their definition on the whole text. The first byte chooses
// the formats, the second whether the prompt opened the reasoning, the third the portions.
#include <memory>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/chat/region_reader.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/model/chat/region_definition.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

constexpr size_t kMaxText = 512;  // the definition is slow

std::vector<RegionPlan> MakePlans() {
  const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(SmallTokenizerJson());
  std::vector<std::string_view> reasoning = ReasoningFormatNames(), tools = ToolFormatNames();
  reasoning.push_back("none");
  tools.push_back("none");
  const auto text_parameters = std::make_shared<std::vector<std::string>>();
  text_parameters->push_back("text");
  std::vector<RegionPlan> plans;
  for (const std::string_view r : reasoning) {
    for (const std::string_view t : tools) {
      auto format = FindChatFormat(nullptr, *tokenizer, r, t);
      if (!format.ok()) continue;  // one that needs another
      plans.push_back({.format = *std::move(format), .text_parameters = {{"f", text_parameters}}});
    }
  }
  return plans;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const plans = new std::vector<tlm::RegionPlan>(tlm::MakePlans());
  tlm::FuzzInput input(data, size);
  tlm::RegionPlan plan = (*plans)[input.Byte() % plans->size()];
  plan.begins_in_reasoning = plan.format.reasoning != nullptr && input.Byte() % 2 == 1;
  const size_t portion = 1 + input.Byte() % 32;
  const std::string_view text = input.Bytes(tlm::kMaxText);
  tlm::RegionReader reader(plan);
  std::vector<tlm::RegionEvent> events, joined;
  for (size_t at = 0; at < text.size(); at += portion) {
    reader.Append(text.substr(at, portion), events);
  }
  reader.End(events);
  for (const tlm::RegionEvent& event : events) tlm::Join(event, joined);
  TLM_CHECK(joined == tlm::RegionDefinition(plan).Of(text));
  return 0;
}
