#include "model/chat/chat_format.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "model/chat/region_reader.h"
#include "model/chat/xml_arguments.h"
#include "model/constraint/constraint.h"
#include "model/constraint/mask/token_trie.h"

namespace tlm {
namespace {

constexpr char kAddSchema[] =
    R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer", "maximum": 9}},
        "required": ["a"], "additionalProperties": false})";
constexpr char kFindSchema[] =
    R"({"type": "object", "properties": {"text": {"type": "string", "maxLength": 8},
        "case": {"type": "boolean"}}, "required": ["text", "case"], "additionalProperties": false})";

// A template is its source here.
class SourceOnly final : public ChatTemplate {
 public:
  explicit SourceOnly(std::string source) : source_(std::move(source)) {}
  absl::StatusOr<std::string> Render(const Conversation&, const nlohmann::json&) const override {
    return absl::UnimplementedError("no text");
  }
  const ChatTemplateTraits& traits() const override { return traits_; }
  std::string_view source() const override { return source_; }

 private:
  const std::string source_;
  const ChatTemplateTraits traits_;
};

// Bytes, and the special tokens of all formats.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::vector<std::string>& special) {
  nlohmann::json vocabulary;
  int id = 0;
  for (const std::string letter : {"a", "b", "c"}) vocabulary[letter] = id++;
  nlohmann::json added = nlohmann::json::array();
  for (const std::string& token : special) {
    added.push_back({{"id", id++},
                     {"content", token},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  const nlohmann::json tokenizer = {
      {"added_tokens", added},
      {"decoder", {{"type", "ByteLevel"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  auto made = Tokenizer::FromJson(tokenizer.dump());
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

const std::vector<std::string> kSpecialTokens = {"<|channel|>", "<|message|>",   "<|start|>",
                                                 "<|end|>",     "<|constrain|>", "[TOOL_CALLS]",
                                                 "[ARGS]",      "[THINK]",       "[/THINK]"};

ChatFormat FormatOf(std::string_view reasoning, std::string_view tools) {
  static const Tokenizer& tokenizer = *MakeTokenizer(kSpecialTokens).release();
  const auto format = FindChatFormat(nullptr, tokenizer, reasoning, tools);
  EXPECT_TRUE(format.ok()) << format.status();
  return format.value_or(ChatFormat{});
}

std::pair<std::string, std::string> Found(const std::string& source) {
  const SourceOnly chat(source);
  const auto tokenizer = MakeTokenizer({});
  const auto format = FindChatFormat(&chat, *tokenizer, "auto", "auto");
  if (!format.ok()) return {format.status().ToString(), ""};
  return {std::string(format->reasoning ? format->reasoning->name : ""),
          std::string(format->tools ? format->tools->name : "")};
}

TEST(FindChatFormatTest, KnowsFormatsByTheirTemplates) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(Found("<tool_call>\n{\"name\": n, \"arguments\": a}\n</tool_call> <think></think>"),
            Pair("think", "hermes"));
  EXPECT_EQ(Found("<tool_call>\n<function=f>\n<parameter=p>"), Pair("", "qwen3_coder"));
  EXPECT_EQ(Found("<tool_call>f\n<arg_key> arguments"), Pair("", ""));
  EXPECT_EQ(Found("dictionary of argument name and its value"), Pair("", "llama3_json"));
  EXPECT_EQ(Found("'[TOOL_CALLS] ['"), Pair("", "mistral"));
  EXPECT_EQ(Found("'[TOOL_CALLS]['"), Pair("", "mistral_nemo"));
  EXPECT_EQ(Found("[TOOL_CALLS]' + name + '[ARGS] [THINK] [/THINK]"),
            Pair("mistral", "mistral_args"));
  EXPECT_EQ(Found("<｜tool▁sep｜> '```json' </think>"), Pair("think", "deepseek_v3"));
  EXPECT_EQ(Found("<｜tool▁sep｜> </think>"), Pair("think", "deepseek_v3_1"));
  EXPECT_EQ(Found("<|channel|>analysis<|message|> to=functions."), Pair("harmony", "harmony"));
  EXPECT_EQ(Found("{{ messages }}"), Pair("", ""));
  // Channels without those of reasoning.
  EXPECT_EQ(Found("<|channel|> to=functions."), Pair("", ""));
}

TEST(FindChatFormatTest, TakesNames) {
  EXPECT_EQ(FormatOf("none", "hermes").reasoning, nullptr);
  EXPECT_EQ(FormatOf("think", "none").tools, nullptr);
  EXPECT_FALSE(FormatOf("think", "hermes").special_markers());
  EXPECT_EQ(FormatOf("harmony", "harmony").special_tokens.size(), 5u);
  const auto tokenizer = MakeTokenizer({});
  const absl::Status wrong = FindChatFormat(nullptr, *tokenizer, "auto", "herms").status();
  EXPECT_EQ(std::string(wrong.message()),
            "the tool format 'herms' is none of auto, none, harmony, qwen3_coder, hermes, "
            "deepseek_v3, deepseek_v3_1, mistral_args, mistral, mistral_nemo, llama3_json");
  EXPECT_EQ(FindChatFormat(nullptr, *tokenizer, "think", "harmony").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FindChatFormatTest, KnowsWhatPromptsOpen) {
  const ChatFormat think = FormatOf("think", "hermes");
  EXPECT_TRUE(PromptOpensReasoning(think, "user\nhi\nassistant\n<think>\n"));
  EXPECT_TRUE(PromptOpensReasoning(think, "<think>"));
  EXPECT_FALSE(PromptOpensReasoning(think, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(PromptOpensReasoning(think, "what is <think>?\n"));
  EXPECT_FALSE(PromptOpensReasoning(FormatOf("none", "hermes"), "<think>\n"));
}

// One way to write an answer with reasoning "Hm.", the text "So." and two calls, if the format can.
struct Example {
  std::string reasoning, tools;
  std::string thought, text, first_call, more_calls;
};

const std::vector<Example> kExamples = {
    {"think", "hermes", "<think>\nHm.\n</think>\n\n", "So.",
     "\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>",
     "\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"x\", \"case\": true}}\n"
     "</tool_call>"},
    {"think", "qwen3_coder", "<think>\nHm.\n</think>\n\n", "So.",
     "\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
     "\n<tool_call>\n<function=find>\n<parameter=text>\n\"x\n</parameter>\n<parameter=case>\n"
     "true\n</parameter>\n</function>\n</tool_call>"},
    {"none", "llama3_json", "", "", "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", ""},
    {"none", "mistral", "", "So.", "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
     ", {\"name\": \"find\", \"arguments\": {\"text\": \"x\", \"case\": true}}]"},
    {"mistral", "mistral_args", "[THINK]Hm.[/THINK]", "So.", "[TOOL_CALLS]add[ARGS]{\"a\": 1}",
     "[TOOL_CALLS]find[ARGS]{\"text\": \"\", \"case\": false}"},
    {"think", "deepseek_v3", "<think>\nHm.\n</think>\n\n", "So.",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n"
     "```<｜tool▁call▁end｜>",
     "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 2}\n```<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>"},
    {"think", "deepseek_v3_1", "<think>Hm.</think>", "So.",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>",
     "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"harmony", "harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
     "<|channel|>commentary<|message|>So.<|end|><|start|>assistant",
     "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}", ""},
};

// Answers under a constraint over tokens that are bytes, and special tokens.
class AnswerTest : public testing::Test {
 protected:
  AnswerTest() {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 255; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const std::string& token : kSpecialTokens) texts.push_back(kSpecialTokenMark + token);
    for (const char* const text :
         {"<tool_call>", "</tool_call>", "{\"", "\": ", "</think>", "\n\n"}) {
      texts.emplace_back(text);
    }
    texts.emplace_back();
    texts_ = texts;
    end_ = static_cast<int32_t>(texts.size()) - 1;
    trie_ = TokenTrie::Build(texts, std::vector<int32_t>{end_});
    tools_ = {{"add", "Adds.", kAddSchema}, {"find", "", kFindSchema}};
  }

  std::shared_ptr<Constraint> Compile(const ChatFormat& format, const AnswerPlan& plan) {
    const auto spec = AnswerConstraint(format, plan);
    if (!spec.has_value()) return nullptr;
    auto compiled = Constraint::Compile(*spec, trie_, ConstraintLimits{}, nullptr);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.value_or(nullptr);
  }

  // Special tokens where their texts stand, else bytes.
  std::vector<int32_t> TokensOf(std::string_view text) {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      int32_t token = static_cast<uint8_t>(text[0]);
      size_t bytes = 1;
      for (size_t i = 0; i < kSpecialTokens.size(); ++i) {
        if (!text.starts_with(kSpecialTokens[i])) continue;
        token = static_cast<int32_t>(255 + i);
        bytes = kSpecialTokens[i].size();
      }
      tokens.push_back(token);
      text.remove_prefix(bytes);
    }
    return tokens;
  }

  // "whole", "open" or the first text that is not allowed.
  std::string Judge(const ChatFormat& format, const AnswerPlan& plan, std::string_view text) {
    const auto constraint = Compile(format, plan);
    if (constraint == nullptr) return "free";
    ConstraintMatcher matcher(constraint);
    std::string read;
    for (const int32_t token : TokensOf(text)) {
      read += texts_[token];
      if (!matcher.Accept(token)) return "not " + read;
    }
    return matcher.Next().may_end ? "whole" : "open";
  }

  std::vector<std::string> texts_;
  int32_t end_ = 0;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<ChatTool> tools_;
};

TEST_F(AnswerTest, AdmitsWhatTheFormatsWrite) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.tools);
    const ChatFormat format = FormatOf(example.reasoning, example.tools);
    AnswerPlan plan = {.tools = tools_};
    const std::string calls = example.first_call + example.more_calls;
    const bool one = !format.tools->parallel;
    EXPECT_EQ(Judge(format, plan, example.thought + example.text + calls), "whole");
    EXPECT_EQ(Judge(format, plan, example.text + calls), "whole");
    EXPECT_EQ(Judge(format, plan, calls), "whole");
    if (example.text == "So.") {
      EXPECT_EQ(Judge(format, plan, example.text), "whole");
    }
    // One call.
    const std::string first = example.first_call + std::string(format.tools->end);
    plan.parallel = false;
    EXPECT_EQ(Judge(format, plan, example.text + first), "whole");
    if (!one) {
      EXPECT_NE(Judge(format, plan, example.text + calls), "whole");
    }
    // Calls from the first token on.
    plan.parallel = true;
    plan.choice = AnswerPlan::Choice::kRequired;
    const bool breaks = calls[0] == '\n';
    EXPECT_EQ(Judge(format, plan, calls.substr(breaks)), "whole");
    EXPECT_NE(Judge(format, plan, example.text + "x" + calls), "whole");
    EXPECT_NE(Judge(format, plan, ""), "whole");
    plan.only = 1;
    EXPECT_NE(Judge(format, plan, calls.substr(breaks)), "whole");
    // None.
    plan.only.reset();
    plan.choice = AnswerPlan::Choice::kNone;
    EXPECT_NE(Judge(format, plan, calls), "whole");
    if (example.text == "So.") {
      EXPECT_EQ(Judge(format, plan, example.text), "whole");
    }
  }
}

TEST_F(AnswerTest, HoldsReasoning) {
  const ChatFormat think = FormatOf("think", "hermes");
  AnswerPlan plan = {.tools = tools_, .reasoning = true};
  EXPECT_EQ(Judge(think, plan, "<think>a</think>b"), "whole");
  EXPECT_EQ(Judge(think, plan, "b"), "not b");
  plan.reasoning = false;
  EXPECT_EQ(Judge(think, plan, "b"), "whole");
  plan.begins_in_reasoning = true;
  EXPECT_EQ(Judge(think, plan, "b"), "not b");
  EXPECT_EQ(Judge(think, plan, "\n</think>\n\nb"), "whole");
  plan = {.reasoning_budget = 3};
  EXPECT_EQ(Judge(think, plan, "<think>ab"), "whole");
  EXPECT_EQ(Judge(think, plan, "<think>abc"), "open");
  EXPECT_EQ(Judge(think, plan, "<think>abcd"), "not <think>abcd");
  EXPECT_EQ(Judge(think, plan, "<think>abc\n</think>\n\nd"), "whole");
  EXPECT_EQ(Judge(think, plan, "d<think>abcdef"), "whole");
  plan = {.begins_in_reasoning = true};
  EXPECT_EQ(Judge(think, plan, "abc"), "free");
  plan.choice = AnswerPlan::Choice::kRequired;
  plan.tools = tools_;
  EXPECT_EQ(Judge(think, plan, "abc"), "open");
  EXPECT_EQ(Judge(think, plan, "abc</think>x"), "not abc</think>x");
  EXPECT_EQ(Judge(think, plan, "abc</think>\n\n" + kExamples[0].first_call.substr(1)), "whole");
}

TEST_F(AnswerTest, HoldsTheTextsOwnConstraint) {
  ConstraintSpec digits;
  digits.language = ConstraintSpec::Regex{"[0-9]+"};
  AnswerPlan plan = {.tools = tools_, .text = digits};
  const ChatFormat think = FormatOf("think", "hermes");
  EXPECT_EQ(Judge(think, plan, "12"), "whole");
  EXPECT_EQ(Judge(think, plan, "12a"), "not 12a");
  EXPECT_EQ(Judge(think, plan, kExamples[0].first_call.substr(1)), "whole");
  EXPECT_EQ(Judge(think, plan, "<think>\na\n</think>\n\n12"), "whole");
  EXPECT_EQ(Judge(think, plan, "<think>\na"), "open");
  const ChatFormat harmony = FormatOf("harmony", "harmony");
  EXPECT_EQ(Judge(harmony, plan, "<|channel|>final<|message|>12"), "whole");
  EXPECT_NE(Judge(harmony, plan, "<|channel|>final<|message|>a"), "open");
  EXPECT_EQ(Judge(harmony, plan, "<|channel|>commentary<|message|>").substr(0, 3), "not");
}

// Random answers are as their plans say, told by the reader of regions.
class RandomAnswerTest : public AnswerTest {
 protected:
  struct Regions {
    std::string text;  // of deltas and markers
    std::vector<RegionKind> kinds;
    std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
    bool complete = true;
  };

  Regions Read(const RegionPlan& plan, const std::string& text) {
    RegionReader reader(plan);
    std::vector<RegionEvent> events;
    reader.Append(text, events);
    reader.End(events);
    Regions regions;
    for (const RegionEvent& event : events) {
      regions.text += event.text;
      switch (event.type) {
        case RegionEvent::Type::kStarted:
          regions.kinds.push_back(event.region);
          if (event.region == RegionKind::kToolCall) regions.calls.emplace_back(event.name, "");
          break;
        case RegionEvent::Type::kDelta:
          if (event.region == RegionKind::kToolCall) {
            regions.calls.back().second += event.arguments_json;
          }
          break;
        case RegionEvent::Type::kFinished:
          regions.complete &= event.complete;
          break;
        case RegionEvent::Type::kMarker:
          break;
      }
    }
    return regions;
  }

  // A text under the plan's constraint, of at most `max_tokens`; whether it may end there.
  std::pair<std::string, bool> Walk(const std::shared_ptr<Constraint>& constraint, int max_tokens) {
    ConstraintMatcher matcher(constraint);
    std::string text;
    for (int i = 0; i < max_tokens; ++i) {
      const ConstraintMatcher::Allowed allowed = matcher.Next();
      // Ends where nothing else can be, and sometimes.
      if (allowed.may_end && (allowed.no_token || random_() % 24 == 0)) return {text, true};
      if (allowed.no_token) {
        ADD_FAILURE() << "nothing may follow " << text;
        return {text, false};
      }
      std::vector<int32_t> tokens;
      for (int32_t token = 0; token < end_; ++token) {
        const auto at = static_cast<size_t>(token);
        if ((allowed.tokens[at / 64] >> (at % 64) & 1) == 0) continue;
        // Markers would be rare.
        const bool is_marker = texts_[at].size() > 1 || texts_[at] == "<" || texts_[at] == "}";
        tokens.insert(tokens.end(), is_marker ? 20 : 1, token);
      }
      const int32_t token = tokens[random_() % tokens.size()];
      EXPECT_TRUE(matcher.Accept(token));
      const std::string& piece = texts_[token];
      text += piece[0] == kSpecialTokenMark ? piece.substr(1) : piece;
    }
    return {text, matcher.Next().may_end};
  }

  std::mt19937 random_{7};
};

TEST_F(RandomAnswerTest, AreAsPlanned) {
  std::map<RegionKind, int> seen;
  int ended = 0;
  for (int round = 0; round < 400; ++round) {
    const Example& example = kExamples[random_() % kExamples.size()];
    const ChatFormat format = FormatOf(example.reasoning, example.tools);
    AnswerPlan plan = {.tools = tools_};
    plan.choice = static_cast<AnswerPlan::Choice>(random_() % 3);
    if (plan.choice == AnswerPlan::Choice::kRequired && random_() % 2 == 0) {
      plan.only = random_() % tools_.size();
    }
    plan.parallel = random_() % 2 == 0;
    if (format.reasoning != nullptr) {
      if (random_() % 3 == 0) plan.reasoning = random_() % 2 == 0;
      if (random_() % 2 == 0) plan.reasoning_budget = random_() % 8;
      plan.begins_in_reasoning = format.reasoning->name == "think" && random_() % 2 == 0;
    }
    RegionPlan regions_plan = {.format = format, .begins_in_reasoning = plan.begins_in_reasoning};
    for (const ChatTool& tool : tools_) {
      regions_plan.text_parameters[tool.name] = std::make_shared<const std::vector<std::string>>(
          TextParameters(tool.parameters_json_schema));
    }
    SCOPED_TRACE(fmt::format("round {}: {}", round, example.tools));
    const auto constraint = Compile(format, plan);
    ASSERT_NE(constraint, nullptr);
    const auto [text, whole] = Walk(constraint, 400);
    const Regions regions = Read(regions_plan, text);
    EXPECT_EQ(regions.text, text);
    if (!whole) continue;
    SCOPED_TRACE(text);
    ++ended;
    for (const RegionKind kind : regions.kinds) ++seen[kind];
    if (plan.choice == AnswerPlan::Choice::kNone) {
      EXPECT_TRUE(regions.calls.empty());
      continue;
    }
    EXPECT_TRUE(regions.complete || regions.kinds.back() == RegionKind::kReasoning);
    if (plan.choice == AnswerPlan::Choice::kRequired) {
      EXPECT_FALSE(regions.calls.empty());
      for (const RegionKind kind : regions.kinds) EXPECT_NE(kind, RegionKind::kText);
    }
    if (!plan.parallel) {
      EXPECT_LE(regions.calls.size(), 1u);
    }
    for (const auto& [name, arguments] : regions.calls) {
      if (plan.only.has_value()) {
        EXPECT_EQ(name, tools_[*plan.only].name);
      }
      const auto json = nlohmann::json::parse(arguments, nullptr, false);
      ASSERT_TRUE(json.is_object()) << arguments;
      if (name == "add") {
        EXPECT_TRUE(json["a"].is_number_integer()) << arguments;
      } else {
        EXPECT_EQ(name, "find");
        EXPECT_TRUE(json["text"].is_string() && json["case"].is_boolean()) << arguments;
      }
    }
  }
  // The walks came everywhere.
  EXPECT_GT(ended, 200);
  EXPECT_GT(seen[RegionKind::kReasoning], 20);
  EXPECT_GT(seen[RegionKind::kText], 20);
  EXPECT_GT(seen[RegionKind::kToolCall], 50);
}

}  // namespace
}  // namespace tlm
