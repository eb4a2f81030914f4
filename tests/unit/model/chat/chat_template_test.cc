#include "model/chat/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "model/jinja/limits.h"
#include "tests/support/fake_clock.h"

namespace tlm {
namespace {

using nlohmann::json;

// A model directory that vanishes with the test.
class ChatTemplateLoadTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tlm_chat_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  absl::StatusOr<std::unique_ptr<ChatTemplate>> Load() { return ChatTemplate::Load(directory_); }
  std::string LoadAndRender(const std::vector<ChatTool>& tools = {}) {
    const auto chat = Load();
    if (!chat.ok()) return chat.status().ToString();
    if (*chat == nullptr) return "no template";
    const std::vector<ChatMessage> messages = {{"user", "hi"}};
    const auto text = (*chat)->Render({.messages = messages, .tools = tools}, json::object());
    return text.ok() ? *text : text.status().ToString();
  }

  std::filesystem::path directory_;
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
  EXPECT_NE(LoadAndRender().find("'default'"), std::string::npos);
}

TEST_F(ChatTemplateLoadTest, PrefersTheTemplatesOwnFile) {
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(LoadAndRender(), "file <s>");
}

TEST_F(ChatTemplateLoadTest, ReadsTheTemplateForToolsFromItsFile) {
  std::filesystem::create_directory(directory_ / "additional_chat_templates");
  Write("additional_chat_templates/tool_use.jinja", "with {{ tools|length }}");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_NE(LoadAndRender().find("is there without a chat_template.jinja"), std::string::npos);
  Write("chat_template.jinja", "plain");
  EXPECT_EQ(LoadAndRender(), "plain");
  EXPECT_EQ(LoadAndRender({{"add", "", ""}}), "with 1");
  Write("additional_chat_templates/tool_use.jinja", "{{");
  EXPECT_NE(LoadAndRender().find("tool_use.jinja: line 1"), std::string::npos);
}

TEST_F(ChatTemplateLoadTest, NamesFileAndFault) {
  Write("chat_template.jinja", "a\n{% if %}");
  absl::Status status = Load().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("chat_template.jinja: line 2"), std::string::npos)
      << status;

  Write("chat_template.jinja", "{{ x|urlize }}");
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kUnimplemented);

  std::filesystem::remove(directory_ / "chat_template.jinja");
  for (const char* const text :
       {"{", "[]", R"({"chat_template": 1})", R"({"chat_template": [1]})",
        R"({"chat_template": "{{"})", R"({"chat_template": [{"name": "default", "template": 1}]})",
        R"({"a": 1, "a": 2})"}) {
    Write("tokenizer_config.json", text);
    status = Load().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find("tokenizer_config.json"), std::string::npos)
        << status;
  }
}

TEST_F(ChatTemplateLoadTest, RefusesFilesThatAreTooLarge) {
  Write("chat_template.jinja", std::string(jinja::kMaxTemplateBytes + 1, 'x'));
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kInvalidArgument);
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
    const auto text = chat->Render({}, {{name, "x"}});
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(text.status().message()).find(name), std::string::npos) << text.status();
  }
  EXPECT_EQ(chat->Render({}, json::array()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, RefusesValuesThatTemplatesCannotHold) {
  const auto chat = Parsed("{{ x }}{{ messages }}");
  EXPECT_EQ(chat->Render({}, {{"x", uint64_t{1} << 63}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(chat->Render({}, {{"x", "\xff"}}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<ChatMessage> messages = {{"user", "a"}, {"user", "\xc3"}};
  const auto text = chat->Render({.messages = messages}, json::object());
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(text.status().message()).find("messages[1]"), std::string::npos)
      << text.status();

  json deep = 1;
  for (int i = 0; i < 200; ++i) deep = json::array({deep});
  EXPECT_EQ(chat->Render({}, {{"x", deep}}).status().code(), absl::StatusCode::kResourceExhausted);
  const std::vector<ChatMessage> large = {{"user", std::string(jinja::kMaxMemoryBytes, 'x')}};
  EXPECT_EQ(chat->Render({.messages = large}, json::object()).status().code(),
            absl::StatusCode::kResourceExhausted);
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
  EXPECT_EQ(Format(std::string(5000, 'x')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Format("%0999999999d").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tlm
