#include "model/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "model/jinja/limits.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using nlohmann::json;

class ChatTemplateLoadTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) { directory_.Write(name, text); }
  absl::StatusOr<std::unique_ptr<ChatTemplate>> Load() {
    return ChatTemplate::Load(directory_.path());
  }
  std::string LoadAndRender(const std::vector<ChatTool>& tools = {}) {
    const auto chat = Load();
    if (!chat.ok()) return chat.status().ToString();
    if (*chat == nullptr) return "no template";
    const std::vector<ChatMessage> messages = {{"user", "hi"}};
    const auto text = (*chat)->Render({.messages = messages, .tools = tools}, json::object());
    return text.ok() ? *text : text.status().ToString();
  }

  const TempDir directory_;
};

TEST_F(ChatTemplateLoadTest, IsNullWithoutATemplate) {
  EXPECT_EQ(LoadAndRender(), "no template");
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_EQ(LoadAndRender(), "no template");
}

TEST_F(ChatTemplateLoadTest, ReadsTheTemplateAndSpecialTokensOfTheTokenizerConfig) {
  Write("tokenizer_config.json", R"({
    "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false},
    "pad_token": null, "add_bos_token": true, "image_token": "<img>",
    "chat_template": "{{ bos_token ~ messages[0].content ~ eos_token }}{{ pad_token is defined }}{{ add_bos_token }}{{ image_token }}"})");
  EXPECT_EQ(LoadAndRender(), "<s>hi</s>False<img>");
}

TEST_F(ChatTemplateLoadTest, ChoosesAmongNamedTemplatesByTheTools) {
  Write("tokenizer_config.json", R"({"chat_template": [
    {"name": "tool_use", "template": "with {{ tools|length }}"}, {"name": "rag", "template": "{{"},
    {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(LoadAndRender(), "plain");
  EXPECT_EQ(LoadAndRender({{"add", "", ""}}), "with 1");
  EXPECT_EQ((*Load())->source(), "plain\nwith {{ tools|length }}");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(LoadAndRender(), testing::HasSubstr("'default'"));
}

TEST_F(ChatTemplateLoadTest, PrefersTheTemplatesOwnFile) {
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(LoadAndRender(), "file <s>");
}

TEST_F(ChatTemplateLoadTest, ReadsTheTemplateForToolsFromItsFile) {
  std::filesystem::create_directory(directory_.File("additional_chat_templates"));
  Write("additional_chat_templates/tool_use.jinja", "with {{ tools|length }}");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_THAT(LoadAndRender(), testing::HasSubstr("is there without a chat_template.jinja"));
  Write("chat_template.jinja", "plain");
  EXPECT_EQ(LoadAndRender(), "plain");
  EXPECT_EQ(LoadAndRender({{"add", "", ""}}), "with 1");
  Write("additional_chat_templates/tool_use.jinja", "{{");
  EXPECT_THAT(LoadAndRender(), testing::HasSubstr("tool_use.jinja: line 1"));
}

TEST_F(ChatTemplateLoadTest, NamesFileAndFault) {
  Write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(Load(), IsInvalidArgument("chat_template.jinja: line 2"));

  Write("chat_template.jinja", "{{ x|urlize }}");
  EXPECT_THAT(Load(), IsUnimplemented("urlize"));

  std::filesystem::remove(directory_.File("chat_template.jinja"));
  for (const char* const text :
       {"{", "[]", R"({"chat_template": 1})", R"({"chat_template": [1]})",
        R"({"chat_template": "{{"})", R"({"chat_template": [{"name": "default", "template": 1}]})",
        R"({"a": 1, "a": 2})"}) {
    Write("tokenizer_config.json", text);
    EXPECT_THAT(Load(), IsInvalidArgument("tokenizer_config.json")) << text;
  }
}

TEST_F(ChatTemplateLoadTest, RefusesFilesThatAreTooLarge) {
  Write("chat_template.jinja", std::string(jinja::kMaxTemplateBytes + 1, 'x'));
  EXPECT_THAT(Load(), IsInvalidArgument(""));
}

std::unique_ptr<ChatTemplate> Parsed(std::string_view source,
                                     const json& variables = json::object()) {
  auto chat = ChatTemplate::Parse(source, variables);
  EXPECT_TRUE(chat.ok()) << chat.status();
  return chat.ok() ? *std::move(chat) : nullptr;
}

TEST(ChatTemplateTest, PassesArguments) {
  const auto chat = Parsed("{{ tools }}{{ documents }}{{ enable_thinking }}{{ date }}");
  EXPECT_EQ(*chat->Render({}, json::object()), "NoneNone");
  EXPECT_EQ(*chat->Render({}, json()), "NoneNone");
  EXPECT_EQ(*chat->Render(
                {}, {{"documents", json::array({1})}, {"enable_thinking", false}, {"date", 2.5}}),
            "None[1]False2.5");
}

TEST(ChatTemplateTest, ArgumentsCannotReplaceTheServersOwn) {
  const auto chat = Parsed("", {{"bos_token", "<s>"}});
  for (const char* const name : {"messages", "tools", "add_generation_prompt", "bos_token"}) {
    EXPECT_THAT(chat->Render({}, {{name, "x"}}), IsInvalidArgument(name));
  }
  EXPECT_THAT(chat->Render({}, json::array()), IsInvalidArgument(""));
}

TEST(ChatTemplateTest, RefusesValuesThatTemplatesCannotHold) {
  const auto chat = Parsed("{{ x }}{{ messages }}");
  EXPECT_THAT(chat->Render({}, {{"x", uint64_t{1} << 63}}), IsInvalidArgument(""));
  EXPECT_THAT(chat->Render({}, {{"x", "\xff"}}), IsInvalidArgument(""));
  const std::vector<ChatMessage> messages = {{"user", "a"}, {"user", "\xc3"}};
  EXPECT_THAT(chat->Render({.messages = messages}, json::object()),
              IsInvalidArgument("messages[1]"));

  json deep = 1;
  for (int i = 0; i < 200; ++i) deep = json::array({deep});
  EXPECT_THAT(chat->Render({}, {{"x", deep}}), IsResourceExhausted(""));
  const std::vector<ChatMessage> large = {{"user", std::string(jinja::kMaxMemoryBytes, 'x')}};
  EXPECT_THAT(chat->Render({.messages = large}, json::object()), IsResourceExhausted(""));
}

TEST(ChatTemplateTest, RendersOnManyThreads) {
  const auto chat =
      Parsed("{% for m in messages %}{{ m.content|upper }}{{ 'shared' ~ x }}{% endfor %}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::vector<ChatMessage> messages = {{"user", "text"}};
      for (int k = 0; k < 200; ++k) texts[i] = *chat->Render({.messages = messages}, {{"x", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], "TEXTshared" + std::to_string(i));
}

// The template's clock is set to a time in a zone without daylight saving.
class StrftimeTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC0", 1);
    tzset();
  }
  absl::StatusOr<std::string> Format(const std::string& format) {
    FakeClock clock(absl::FromUnixSeconds(1'722'000'645));  // 26 July 2024, 13:30:45 UTC
    const auto chat = ChatTemplate::Parse("{{ strftime_now(format) }}", json::object(), &clock);
    if (!chat.ok()) return chat.status();
    return (*chat)->Render({}, {{"format", format}});
  }
};

TEST_F(StrftimeTest, FormatsTheTimeOfTheClock) {
  EXPECT_EQ(*Format("%d %b %Y"), "26 Jul 2024");
  EXPECT_EQ(*Format("%Y-%m-%d %H:%M:%S %A é 100%%"), "2024-07-26 13:30:45 Friday é 100%");
  EXPECT_EQ(*Format("%f|%z|%Z|"), "000000|||");
  EXPECT_EQ(*Format(""), "");
}

TEST_F(StrftimeTest, BoundsTheText) {
  EXPECT_THAT(Format(std::string(5000, 'x')), IsInvalidArgument(""));
  EXPECT_THAT(Format("%0999999999d"), IsInvalidArgument(""));
}

}  // namespace
}  // namespace tlm
