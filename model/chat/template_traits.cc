#include "model/chat/template_traits.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace tlm {
namespace {

using nlohmann::json;

// Words that no template contains; the probes look for them in the rendered text.
constexpr char kTool[] = "zq_probe_tool";
constexpr char kParameter[] = "zq_probe_parameter";
constexpr char kArgument[] = "zq_probe_argument";
constexpr char kResult[] = "zq_probe_result";
constexpr char kCallId[] = "zqProbe01";  // 9 letters and digits, as Mistral's templates ask for

// Variables that turn reasoning off and on.
constexpr std::string_view kSwitches[] = {"enable_thinking", "thinking", "enable_reasoning",
                                          "reasoning"};

bool Has(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

class Prober {
 public:
  explicit Prober(const RenderProbe& render) : render_(render) {}

  void FindTools(ChatTemplateTraits& traits) {
    const auto text = Render({.messages = Turn(1), .tools = tools_}, json(), traits);
    traits.tools = text.ok() && Has(*text, kTool);
  }

  // Tries the calls and results first as transformers gives them, then in the forms that older
  // templates expect. A turn without a result is tried last: templates may render calls alone.
  void FindCalls(ChatTemplateTraits& traits) {
    using NoContent = ChatTemplateTraits::NoContent;
    for (const size_t messages : {3, 2}) {
      for (const bool as_text : {false, true}) {
        for (const auto none : {NoContent::kNoKey, NoContent::kEmptyText, NoContent::kNull}) {
          ChatTemplateTraits tried = traits;
          tried.arguments_as_text = as_text;
          tried.no_content = none;
          const auto text = Render({.messages = Turn(messages), .tools = tools_}, json(), tried);
          // Results always count: a template may render them though it does not know calls.
          traits.tool_results |= text.ok() && Has(*text, kResult);
          tried.tool_results = traits.tool_results;
          tried.tool_calls = text.ok() && RendersArguments(*text);
          if (!tried.tool_calls) continue;
          traits = tried;
          return;
        }
      }
    }
  }

  std::string FindSwitch(std::string_view source, const ChatTemplateTraits& traits) {
    for (const std::string_view name : kSwitches) {
      if (!Has(source, name)) continue;
      const Conversation question = {.messages = Turn(1)};
      const auto on = Render(question, {{name, true}}, traits);
      const auto off = Render(question, {{name, false}}, traits);
      if (on.ok() && off.ok() && *on != *off) return std::string(name);
    }
    return "";
  }

 private:
  // Fails at once after a rendering that reached a limit: the next ones would cost as much.
  absl::StatusOr<std::string> Render(const Conversation& conversation, const json& arguments,
                                     const ChatTemplateTraits& traits) {
    if (!exhausted_.ok()) return exhausted_;
    absl::StatusOr<std::string> text = render_(conversation, arguments, traits);
    if (absl::IsResourceExhausted(text.status())) exhausted_ = text.status();
    return text;
  }

  // Returns the first messages of a question, a call, and its result.
  std::span<const ChatMessage> Turn(size_t messages) const {
    return std::span(messages_).first(messages);
  }

  // False for arguments in the style of a Python dict, and for a text within JSON.
  static bool RendersArguments(std::string_view text) {
    const std::string argument = kArgument;
    return Has(text, argument) && !Has(text, fmt::format("'{}': '{}'", kParameter, argument)) &&
           !Has(text, argument + "\\\"");
  }

  const RenderProbe& render_;
  absl::Status exhausted_;
  const std::vector<ChatTool> tools_ = {
      {.name = kTool,
       .description = "Looks up.",
       .parameters_json_schema = json{{"type", "object"},
                                      {"properties", {{kParameter, {{"type", "string"}}}}},
                                      {"required", {kParameter}}}
                                     .dump()}};
  const std::vector<ChatMessage> messages_ = {
      {.role = "user", .content = "Hello"},
      {.role = "assistant",
       .content = "",
       .tool_calls = {{kCallId, kTool, json{{kParameter, kArgument}}.dump()}}},
      {.role = "tool", .content = kResult, .tool_call_id = kCallId, .name = kTool}};
};

}  // namespace

ChatTemplateTraits FindTraits(const RenderProbe& render, std::string_view source) {
  Prober prober(render);
  ChatTemplateTraits traits;
  prober.FindTools(traits);
  prober.FindCalls(traits);
  traits.reasoning_switch = prober.FindSwitch(source, traits);
  return traits;
}

}  // namespace tlm
