// A chat template. Parts: the template; the rest is what a user says.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/chat/chat_template.h"
#include "model/jinja/limits.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

const nlohmann::json& Variables() {
  static const auto* const variables =
      new nlohmann::json({{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  return *variables;
}

const nlohmann::json& Arguments() {
  static const auto* const arguments = new nlohmann::json(nlohmann::json::parse(
      R"({"s": "Stra\u00dfe", "n": 7, "f": 2.5, "t": true, "nil": null, "xs": [3, 1, 2],
          "d": {"a": 1, "b": [1, 2]}, "tools": [{"name": "x", "args": {"k": "v"}}]})"));
  return *arguments;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const auto chat = tlm::ChatTemplate::Parse(input.Part(), tlm::Variables());
  if (!chat.ok()) {
    tlm::CheckRefusal(chat.status());
    return 0;
  }
  const std::vector<tlm::ChatMessage> messages = {
      {"system", "Be brief."}, {"user", std::string(input.Rest())}, {"assistant", "yo"}};
  for (const bool add_generation_prompt : {false, true}) {
    const auto text = (*chat)->Render(messages, add_generation_prompt, tlm::Arguments());
    if (!text.ok()) {
      // Templates raise exceptions in words of their own.
      tlm::CheckRefusal(text.status(), tlm::jinja::kMaxOutputBytes);
      continue;
    }
    TLM_CHECK(text->size() <= tlm::jinja::kMaxOutputBytes);
  }
  return 0;
}
