// A chat template. Parts: the template, the schema of a tool, the arguments of a call; the rest is
// what a user says.
#include <nlohmann/json.hpp>
#include <optional>
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
          "d": {"a": 1, "b": [1, 2]}})"));
  return *arguments;
}

void CheckRendering(const ChatTemplate& chat, const Conversation& conversation) {
  const auto text = chat.Render(conversation, Arguments());
  // Templates raise exceptions in words of their own.
  if (!text.ok()) return CheckRefusal(text.status(), jinja::kMaxOutputBytes);
  TLM_CHECK(text->size() <= jinja::kMaxOutputBytes);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const auto chat = tlm::ChatTemplate::Parse(input.Part(), tlm::Variables());
  if (tlm::IsRefused(chat)) return 0;
  const std::vector<tlm::ChatTool> tools = {
      {"look_up", "Looks \"up\".", std::string(input.Part())}};
  const std::string arguments(input.Part());
  const std::string said(input.Rest());
  std::vector<tlm::ChatMessage> messages = {
      {"system", "Be brief."}, {"user", said}, {"assistant", "yo"}};
  for (const bool add_generation_prompt : {false, true}) {
    tlm::CheckRendering(**chat,
                        {.messages = messages, .add_generation_prompt = add_generation_prompt});
  }
  messages.push_back({.role = "assistant",
                      .content = "",
                      .reasoning = said,
                      .tool_calls = {{"abcDEF123", "look_up", arguments}, {"", said, "{}"}}});
  messages.push_back(
      {.role = "tool", .content = said, .tool_call_id = "abcDEF123", .name = "look_up"});
  for (const std::optional<bool> reasoning : {std::optional<bool>(), std::optional(false)}) {
    tlm::CheckRendering(**chat, {.messages = messages, .tools = tools, .reasoning = reasoning});
  }
  return 0;
}
