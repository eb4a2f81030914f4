#include "model/chat/template_traits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/chat/chat_template.h"

namespace tlm {
namespace {

using nlohmann::json;

ChatTemplateTraits TraitsOf(std::string_view source) {
  const auto chat = ChatTemplate::Parse(source, json::object());
  EXPECT_TRUE(chat.ok()) << chat.status();
  return chat.ok() ? (*chat)->traits() : ChatTemplateTraits();
}

// Calls, each rendered by `call`.
std::string Calls(const std::string& call) {
  return "{% for m in messages %}{% for c in m.tool_calls or [] %}" + call +
         "{% endfor %}{% endfor %}";
}

TEST(TemplateTraitsTest, ATemplateOfTextAloneHasNone) {
  const ChatTemplateTraits traits = TraitsOf("{% for m in messages %}{{ m.role }}{% endfor %}");
  EXPECT_FALSE(traits.tools);
  EXPECT_FALSE(traits.tool_calls);
  EXPECT_FALSE(traits.tool_results);
  EXPECT_EQ(traits.reasoning_switch, "");
}

TEST(TemplateTraitsTest, ATemplateThatAlwaysFailsHasNone) {
  for (const char* const source :
       {"{{ raise_exception('zq_probe_tool zq_probe_result') }}", "{{ tools + enable_thinking }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        "{{ tools }}{{ messages }}{{ thinking }}"}) {
    const ChatTemplateTraits traits = TraitsOf(source);
    EXPECT_FALSE(traits.tools) << source;
    EXPECT_FALSE(traits.tool_calls) << source;
    EXPECT_FALSE(traits.tool_results) << source;
    EXPECT_EQ(traits.reasoning_switch, "") << source;
  }
}

TEST(TemplateTraitsTest, ProbesNoMoreThanItSays) {
  constexpr char kSource[] = "enable_thinking thinking enable_reasoning reasoning";
  int calls = 0;
  const auto failing = [&](absl::StatusCode code) {
    return [&calls, code](const Conversation&, const json&, const ChatTemplateTraits&) {
      ++calls;
      return absl::Status(code, "no");
    };
  };
  FindTraits(failing(absl::StatusCode::kInvalidArgument), kSource);
  EXPECT_EQ(calls, 21);
  calls = 0;
  FindTraits(failing(absl::StatusCode::kResourceExhausted), kSource);
  EXPECT_EQ(calls, 1);
}

TEST(TemplateTraitsTest, FindsToolsAndResults) {
  EXPECT_TRUE(TraitsOf("{{ tools|tojson }}").tools);
  EXPECT_TRUE(TraitsOf("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}").tools);
  EXPECT_FALSE(TraitsOf("{{ tools|length if tools }}").tools);
  // Only beside a system message: not shown to a question alone.
  EXPECT_FALSE(TraitsOf("{% if messages[0].role == 'system' %}{{ tools }}{% endif %}").tools);
  EXPECT_TRUE(TraitsOf("{% for m in messages %}{{ m.content }}{% endfor %}").tool_results);
  EXPECT_FALSE(TraitsOf("{{ messages[0].content }}").tool_results);
  EXPECT_TRUE(TraitsOf("{% for m in messages %}{{ '' + m.content }}{% endfor %}").tool_results);
}

TEST(TemplateTraitsTest, FindsTheFormOfArguments) {
  const auto of_calls = [](const std::string& call) { return TraitsOf(Calls(call)); };
  for (const char* const call :
       {"{{ c.function.arguments|tojson }}", "{{ c.function|tojson }}", "{{ c|tojson }}",
        "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}",
        "{{ c.function.arguments if c.function.arguments is string else "
        "c.function.arguments|tojson }}",
        "{% for k, v in c.function.arguments|items %}{{ k }}='{{ v }}'{% endfor %}"}) {
    EXPECT_TRUE(of_calls(call).tool_calls) << call;
    EXPECT_FALSE(of_calls(call).arguments_as_text) << call;
  }
  for (const char* const call : {"{{ c.function.arguments }}", "{{ '```' + c.function.arguments }}",
                                 "{{ c.function.arguments|trim }}"}) {
    EXPECT_TRUE(of_calls(call).tool_calls) << call;
    EXPECT_TRUE(of_calls(call).arguments_as_text) << call;
  }
  for (const char* const call : {"", "{{ c.function.name }}", "{{ raise_exception('calls') }}"}) {
    EXPECT_FALSE(of_calls(call).tool_calls) << call;
  }
}

TEST(TemplateTraitsTest, FindsCallsWhereResultsFail) {
  const ChatTemplateTraits traits = TraitsOf(
      "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.tool_calls|tojson if m.tool_calls }}{% endfor %}");
  EXPECT_TRUE(traits.tool_calls);
  EXPECT_FALSE(traits.tool_results);
}

TEST(TemplateTraitsTest, FindsWhatStandsForNoContent) {
  using NoContent = ChatTemplateTraits::NoContent;
  EXPECT_EQ(TraitsOf(Calls("{{ m.content }}{{ c|tojson }}")).no_content, NoContent::kNoKey);
  EXPECT_EQ(TraitsOf(Calls("{{ '' + m.content }}{{ c|tojson }}")).no_content,
            NoContent::kEmptyText);
  EXPECT_EQ(TraitsOf(Calls("{% if m.content is none %}{{ c|tojson }}{% endif %}")).no_content,
            NoContent::kNull);
  const ChatTemplateTraits traits = TraitsOf(Calls("{{ m.content + c.function.arguments }}"));
  EXPECT_EQ(traits.no_content, NoContent::kEmptyText);
  EXPECT_TRUE(traits.arguments_as_text);
}

TEST(TemplateTraitsTest, PrefersTheFormThatRendersResultsToo) {
  // Fails without content at a result, but not at a call.
  const ChatTemplateTraits traits = TraitsOf(
      "{% for m in messages %}{{ m.tool_calls|tojson if m.tool_calls }}{% if m.role == 'tool' %}"
      "{{ messages[loop.index0 - 1].content + m.content }}{% endif %}{% endfor %}");
  EXPECT_TRUE(traits.tool_calls);
  EXPECT_TRUE(traits.tool_results);
  EXPECT_EQ(traits.no_content, ChatTemplateTraits::NoContent::kEmptyText);
}

TEST(TemplateTraitsTest, FindsTheSwitchOfReasoning) {
  EXPECT_EQ(TraitsOf("{{ '<think>' if enable_thinking is not false }}").reasoning_switch,
            "enable_thinking");
  EXPECT_EQ(TraitsOf("{% set thinking = thinking or false %}{{ '<think>' if thinking }}")
                .reasoning_switch,
            "thinking");
  EXPECT_EQ(TraitsOf("{{ messages[0].thinking }}").reasoning_switch, "");
  EXPECT_EQ(TraitsOf("{# enable_thinking #}x").reasoning_switch, "");
  EXPECT_EQ(TraitsOf("{{ 'x' if enable_thinking else raise_exception('on') }}").reasoning_switch,
            "");
}

TEST(TemplateTraitsTest, ReasoningSetsTheSwitch) {
  const auto chat =
      ChatTemplate::Parse("{{ thinking if thinking is defined else 'unset' }}", json::object());
  ASSERT_TRUE(chat.ok());
  const auto render = [&](std::optional<bool> reasoning, const json& arguments) {
    const auto text = (*chat)->Render({.messages = {}, .reasoning = reasoning}, arguments);
    return text.ok() ? *text : std::string(text.status().message());
  };
  EXPECT_EQ(render({}, {}), "unset");
  EXPECT_EQ(render(false, {}), "False");
  EXPECT_EQ(render(true, {}), "True");
  EXPECT_EQ(render({}, {{"thinking", 7}}), "7");
  EXPECT_EQ(render(true, {{"thinking", true}}), "True");
  EXPECT_EQ(render(true, {{"thinking", false}}),
            "template argument 'thinking' contradicts reasoning, which is true");
}

}  // namespace
}  // namespace tlm
