#include "server/rpc/convert/convert_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "model/base/errors.h"
#include "tests/support/proto.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// "role:content;role:content;" and ">" for the assistant to begin; keeps what it was given.
class PlainTemplate : public ChatTemplate {
 public:
  absl::StatusOr<std::string> Render(const Conversation& conversation,
                                     const nlohmann::json& arguments) const override {
    messages_.assign(conversation.messages.begin(), conversation.messages.end());
    tools_.assign(conversation.tools.begin(), conversation.tools.end());
    reasoning_ = conversation.reasoning;
    arguments_ = arguments;
    if (!status_.ok()) return status_;
    std::string text;
    for (const ChatMessage& message : messages_) {
      text += message.role + ":" + message.content + ";";
    }
    for (int64_t i = 0; i < repeat_; ++i) text += '.';
    return conversation.add_generation_prompt ? text + ">" + opening_ : text;
  }
  const ChatTemplateTraits& traits() const override { return traits_; }
  std::string_view source() const override { return "<tool_call> arguments </think>"; }

  mutable std::vector<ChatMessage> messages_;
  mutable std::vector<ChatTool> tools_;
  mutable std::optional<bool> reasoning_;
  mutable nlohmann::json arguments_;
  ChatTemplateTraits traits_;
  absl::Status status_;
  std::string opening_;
  int64_t repeat_ = 0;
};

class ConvertChatTest : public ::testing::Test {
 protected:
  ConvertChatTest() {
    model_.chat = &template_;
    template_.traits_.tools = template_.traits_.tool_calls = true;
    model_.chat_format = *FindChatFormat(&template_, *tokenizer_, "auto", "auto");
    AddMessage("user", "hi");
  }
  void AddMessage(const std::string& role, const std::string& content) {
    Merge("messages { role: '" + role + "' content: '" + content + "' }", chat_);
  }
  google::protobuf::Value& Argument(const std::string& key) {
    return (*chat_.mutable_template_arguments()->mutable_fields())[key];
  }
  absl::StatusOr<std::vector<int32_t>> Convert(std::optional<bool> special = std::nullopt) {
    TLM_ASSIGN_OR_RETURN(PromptInput prompt, ConvertChat(chat_, special, model_));
    EXPECT_EQ(prompt.tools.size(), static_cast<size_t>(chat_.tools_size()));
    return std::move(prompt.ids);
  }
  // The field of the refusal it must end with.
  std::string RefusedField(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = Convert().status();
    EXPECT_THAT(status, StatusIs(code, _));
    return FieldOf(status);
  }

  v1::ChatInput::Tool& AddTool(const std::string& name, const std::string& schema = "") {
    v1::ChatInput::Tool& tool = *chat_.add_tools();
    tool.set_name(name);
    tool.set_parameters_json_schema(schema);
    return tool;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  PlainTemplate template_;
  ServedModel model_ = MakeServedModel(tokenizer_.get());
  v1::ChatInput chat_;
};

TEST_F(ConvertChatTest, IsTokenizedAsRenderedWithoutFurtherSpecialTokens) {
  EXPECT_EQ(*Convert(), ByteIds("user:hi;>"));
  EXPECT_EQ(Convert(true)->front(), kBosId);
  EXPECT_EQ(*Convert(false), ByteIds("user:hi;>"));
  EXPECT_EQ(template_.arguments_, nlohmann::json::object());
  chat_.set_add_generation_prompt(false);
  EXPECT_EQ(*Convert(), ByteIds("user:hi;"));
}

TEST_F(ConvertChatTest, ArgumentsBecomeJson) {
  Argument("flag").set_bool_value(false);
  Argument("whole").set_number_value(3.0);
  Argument("half").set_number_value(2.5);
  Argument("huge").set_number_value(1e300);
  Argument("none").set_null_value(google::protobuf::NULL_VALUE);
  Argument("text").set_string_value("é");
  Argument("list").mutable_list_value()->add_values()->set_number_value(-1);
  (*Argument("object").mutable_struct_value()->mutable_fields())["key"].set_string_value("value");
  ASSERT_THAT(Convert(), IsOk());
  EXPECT_EQ(template_.arguments_, nlohmann::json({{"flag", false},
                                                  {"whole", 3},
                                                  {"half", 2.5},
                                                  {"huge", 1e300},
                                                  {"none", nullptr},
                                                  {"text", "é"},
                                                  {"list", {-1}},
                                                  {"object", {{"key", "value"}}}}));
  EXPECT_TRUE(template_.arguments_["whole"].is_number_integer());
  EXPECT_TRUE(template_.arguments_["huge"].is_number_float());
}

TEST_F(ConvertChatTest, ArgumentsThatAreNoneAreRefused) {
  Argument("number").set_number_value(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(RefusedField(), "chat.template_arguments");
  Argument("number").Clear();
  EXPECT_EQ(RefusedField(), "chat.template_arguments");
  Argument("number").set_string_value(std::string(1 << 20, 'x'));
  EXPECT_EQ(RefusedField(), "chat.template_arguments");
}

TEST_F(ConvertChatTest, DeepArgumentsAreRefused) {
  google::protobuf::Value* value = &Argument("deep");
  for (int depth = 0; depth < 15; ++depth) value = value->mutable_list_value()->add_values();
  value->set_bool_value(true);
  EXPECT_THAT(Convert(), IsOk());
  value->mutable_list_value()->add_values()->set_bool_value(true);
  EXPECT_EQ(RefusedField(), "chat.template_arguments");
}

TEST_F(ConvertChatTest, MessagesAreCheckedAndNamed) {
  AddMessage("", "who?");
  EXPECT_EQ(RefusedField(), "chat.messages[1].role");
  chat_.clear_messages();
  EXPECT_EQ(RefusedField(), "chat.messages");
  model_.limits.max_chat_messages = 3;
  for (int i = 0; i < 4; ++i) AddMessage("user", "x");
  EXPECT_EQ(RefusedField(), "chat.messages");
  chat_.clear_messages();
  AddMessage("user", std::string(1 << 20, 'x'));
  EXPECT_EQ(RefusedField(), "chat.messages");
}

TEST_F(ConvertChatTest, TooLongATextIsRefused) {
  template_.repeat_ = 1 << 20;
  EXPECT_EQ(RefusedField(), "chat");
}

TEST_F(ConvertChatTest, WhatTheTemplateRefusesIsTheClientsFault) {
  template_.status_ = InvalidArgument("roles must alternate");
  EXPECT_THAT(Convert(), IsInvalidArgument("roles must alternate"));
  EXPECT_EQ(RefusedField(), "chat");
  template_.status_ = ResourceExhausted("takes more than 1000 steps");
  EXPECT_THAT(Convert(), IsInvalidArgument("1000 steps"));
}

TEST_F(ConvertChatTest, NeedsATemplateAndATokenizer) {
  model_.chat = nullptr;
  EXPECT_THAT(Convert(), IsFailedPrecondition("chat template"));
  EXPECT_EQ(RefusedField(absl::StatusCode::kFailedPrecondition), "chat");
  model_.chat = &template_;
  model_.tokenizer = nullptr;
  EXPECT_THAT(Convert(), IsFailedPrecondition("tokenizer"));
}

TEST_F(ConvertChatTest, IsAPromptLikeAnyOther) {
  v1::GenerateRequest request;
  *request.mutable_chat() = chat_;
  const auto random = [] { return uint64_t{1}; };
  EXPECT_EQ(ConvertGenerate(request, model_, random)->prompt, ByteIds("user:hi;>"));
  request.set_truncate_prompt_tokens(3);
  EXPECT_EQ(ConvertGenerate(request, model_, random)->prompt, ByteIds("i;>"));
  request.clear_truncate_prompt_tokens();
  template_.repeat_ = 100;
  const absl::Status status = ConvertGenerate(request, model_, random).status();
  EXPECT_THAT(status, IsInvalidArgument("109 tokens", "the limit is 63"));
  EXPECT_EQ(FieldOf(status), "chat");
}

TEST_F(ConvertChatTest, TheTemplateIsGivenAllOfAMessageAndTheTools) {
  constexpr char kArguments[] = R"({"b": 1, "a": 2})";
  Merge(R"(messages { role: "assistant" reasoning: "hm"
                      tool_calls { id: "abc" name: "add" arguments_json: '{"b": 1, "a": 2}' } }
           messages { role: "tool" content: "3" tool_call_id: "abc" name: "add" }
           tools { name: "add" description: "Adds."
                   parameters_json_schema: '{"properties": {"b": {}, "a": {}}}' }
           reasoning { enabled: false })",
        chat_);
  ASSERT_THAT(Convert(), IsOk());
  ASSERT_EQ(template_.messages_.size(), 3u);
  EXPECT_EQ(template_.messages_[1].reasoning, "hm");
  ASSERT_EQ(template_.messages_[1].tool_calls.size(), 1u);
  EXPECT_EQ(template_.messages_[1].tool_calls[0].id, "abc");
  EXPECT_EQ(template_.messages_[1].tool_calls[0].name, "add");
  EXPECT_EQ(template_.messages_[1].tool_calls[0].arguments_json, kArguments);
  EXPECT_EQ(template_.messages_[2].tool_call_id, "abc");
  EXPECT_EQ(template_.messages_[2].name, "add");
  ASSERT_EQ(template_.tools_.size(), 1u);
  EXPECT_EQ(template_.tools_[0].name, "add");
  EXPECT_EQ(template_.tools_[0].description, "Adds.");
  // As it was sent: what makes it a schema of an object is for the constraint.
  EXPECT_EQ(template_.tools_[0].parameters_json_schema, chat_.tools(0).parameters_json_schema());
  EXPECT_EQ(template_.reasoning_, false);
}

TEST_F(ConvertChatTest, ToolsAreCheckedAndNamed) {
  const std::string longest(256, 'n'), too_long(257, 'n');
  const auto tools = [this](const std::string& last) {
    chat_.clear_tools();
    AddTool("first");
    AddTool(last);
  };
  for (const std::string name : {"a", "get_Weather-1", "ns.mod:sub/x", longest.c_str()}) {
    tools(name);
    EXPECT_THAT(Convert(), IsOk()) << name;
  }
  for (const std::string name : {"", "a b", "a\"", "\n", "é", too_long.c_str()}) {
    tools(name);
    EXPECT_EQ(RefusedField(), "chat.tools[1].name") << name;
  }
  tools("first");
  EXPECT_THAT(Convert(), IsInvalidArgument("chat.tools[1].name is 'first', the name of "
                                           "chat.tools[0]"));
  chat_.clear_tools();
  for (int i = 0; i <= 256; ++i) AddTool("t" + std::to_string(i));
  EXPECT_EQ(RefusedField(), "chat.tools");
}

TEST_F(ConvertChatTest, ParametersAreAnObject) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"not\": ";
  v1::ChatInput::Tool& tool = AddTool("t");
  for (const std::string schema : {"", "{}", R"({"type": "object"})", R"({"anyOf": [{}]})"}) {
    tool.set_parameters_json_schema(schema);
    EXPECT_THAT(Convert(), IsOk()) << schema;
  }
  for (const std::string schema :
       {"{", "true", "[]", "null", "{} {}", R"({"type": "array"})", R"({"type": ["object"]})",
        R"({"a": 1, "a": 2})", deep.c_str()}) {
    tool.set_parameters_json_schema(schema);
    EXPECT_EQ(RefusedField(), "chat.tools[0].parameters_json_schema") << schema;
  }
}

TEST_F(ConvertChatTest, TextsOfMessagesAndToolsHaveOneLimit) {
  model_.limits.max_text_bytes = 100;
  AddTool("tool", R"({"type": "object"})").set_description(std::string(60, 'd'));
  // 6 bytes of the message, 4 and 18 and 60 of the tool.
  EXPECT_THAT(Convert(), IsOk());
  v1::ChatInput::Message& message = *chat_.mutable_messages(0);
  message.set_reasoning("0123456789");
  EXPECT_THAT(Convert(), IsOk());
  message.set_name("xyz");
  EXPECT_THAT(Convert(), IsInvalidArgument("chat has 101 bytes of text, the limit is 100"));
}

TEST_F(ConvertChatTest, CallsInMessagesAreChecked) {
  chat_.mutable_messages(0)->add_tool_calls()->set_arguments_json("{}");
  EXPECT_EQ(RefusedField(), "chat.messages[0].tool_calls[0].name");
  chat_.mutable_messages(0)->mutable_tool_calls(0)->set_name("f");
  template_.status_ =
      InvalidArgument("messages[0].tool_calls[0].arguments_json: line 1, column 2: no JSON");
  EXPECT_EQ(RefusedField(), "chat.messages[0].tool_calls[0].arguments_json");
  EXPECT_THAT(std::string(Convert().status().message()),
              StartsWith("chat.messages[0].tool_calls[0].arg"));
  // A template raises what it likes, a user's text too: no part of that is a field.
  for (const char* const raised :
       {"messages[0].a secret", "messages[secret]: no", "messages[0].secret: no", "tools[0].secret",
        "messages.role: no", "messages[0].role.secret: no", "secret: no", "tools[0", ""}) {
    template_.status_ = InvalidArgument("{}", raised);
    EXPECT_EQ(RefusedField(), "chat") << raised;
  }
  template_.status_ = absl::OkStatus();
  template_.traits_.tool_calls = false;
  EXPECT_EQ(RefusedField(absl::StatusCode::kFailedPrecondition), "chat.messages[0].tool_calls");
}

TEST_F(ConvertChatTest, WhatTheModelHasNoFormatForIsNotThere) {
  model_.chat_format = {};
  const std::pair<const char*, const char*> kCases[] = {
      {"tools { name: 't' }", "chat.tools"},
      {"reasoning { enabled: true }", "chat.reasoning.enabled"},
      {"reasoning { enabled: false budget_tokens: 0 }", "chat.reasoning.budget_tokens"}};
  const v1::ChatInput plain = chat_;
  for (const auto& [input, field] : kCases) {
    chat_ = plain;
    Merge(input, chat_);
    EXPECT_EQ(RefusedField(absl::StatusCode::kFailedPrecondition), field);
  }
  chat_ = plain;
  Merge("reasoning { enabled: false }", chat_);
  EXPECT_THAT(Convert(), IsOk());
}

// What follows the conversation.
class ConvertAnswerTest : public ConvertChatTest {
 protected:
  ConvertAnswerTest() { model_.limits.max_context_tokens = 256; }

  absl::StatusOr<GenerateCall> ConvertCall() {
    if (!request_.has_prompt() && !request_.has_prompt_token_ids()) {
      *request_.mutable_chat() = chat_;
    }
    return ConvertGenerate(request_, model_, [] { return uint64_t{1}; });
  }
  std::string RefusedCallField(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = ConvertCall().status();
    EXPECT_THAT(status, StatusIs(code, _));
    return FieldOf(status);
  }
  // The edges of the call's constraint whose errors are about `field`.
  static std::vector<ConstraintSpec::Edge> EdgesOf(const GenerateCall& call,
                                                   std::string_view field) {
    std::vector<ConstraintSpec::Edge> edges;
    for (const ConstraintSpec::Node& node : call.constraint->spec.flow()->nodes) {
      for (const ConstraintSpec::Edge& edge : node.edges) {
        if (edge.field == field) edges.push_back(edge);
      }
    }
    return edges;
  }
  absl::Status Fail(GenerateCall& call, const absl::Status& status) {
    return ApplyConstraint(status, {}, call);
  }

  v1::GenerateRequest request_;
};

TEST_F(ConvertAnswerTest, AConversationAloneIsFree) {
  const absl::StatusOr<GenerateCall> call = ConvertCall();
  ASSERT_THAT(call, IsOk());
  EXPECT_FALSE(call->constraint.has_value());
  EXPECT_FALSE(call->output.regions.has_value());
}

TEST_F(ConvertAnswerTest, ToolsConstrainAndTellRegions) {
  AddTool("add", R"({"properties": {"a": {}}})");
  AddTool("get");
  absl::StatusOr<GenerateCall> call = ConvertCall();
  ASSERT_THAT(call, IsOk());
  ASSERT_TRUE(call->constraint.has_value());
  EXPECT_EQ(call->constraint->field, "chat.tools");
  const std::string field = "chat.tools[0].parameters_json_schema";
  ASSERT_FALSE(EdgesOf(*call, field).empty());
  EXPECT_THAT(EdgesOf(*call, field)[0].begin, HasSubstr("add"));
  EXPECT_EQ(nlohmann::json::parse(TextOf(EdgesOf(*call, field)[0].content))["type"], "object");
  ASSERT_TRUE(call->output.regions.has_value());
  EXPECT_EQ(call->output.regions->format.tools, model_.chat_format.tools);
  EXPECT_FALSE(call->output.regions->begins_in_reasoning);
  // A part's error says so itself; the whole's gets a name.
  absl::Status status = Fail(*call, InvalidArgument("{}: $.a: not a schema", field));
  EXPECT_EQ(status.message(), field + ": $.a: not a schema");
  EXPECT_EQ(FieldOf(status), field);
  status = Fail(*call, WithReason(ResourceExhausted("too many states"), "CONSTRAINT_TOO_LARGE"));
  EXPECT_EQ(status.message(), "chat.tools: too many states");
  EXPECT_EQ(FieldOf(status), "chat.tools");

  request_.mutable_output()->set_regions(false);
  EXPECT_FALSE(ConvertCall()->output.regions.has_value());
}

TEST_F(ConvertAnswerTest, ChoiceOfTools) {
  v1::ChatInput::ToolChoice& choice = *chat_.mutable_tool_choice();
  choice.set_mode(v1::ChatInput::ToolChoice::REQUIRED);
  EXPECT_EQ(RefusedCallField(), "chat.tool_choice.mode");
  choice.set_name("get");
  EXPECT_EQ(RefusedCallField(), "chat.tool_choice.name");
  choice.set_mode(v1::ChatInput::ToolChoice::NONE);
  EXPECT_FALSE(ConvertCall()->constraint.has_value());

  AddTool("add");
  AddTool("get");
  const auto edges = [&](int tool) {
    return EdgesOf(*ConvertCall(),
                   "chat.tools[" + std::to_string(tool) + "].parameters_json_schema")
        .size();
  };
  const auto is_free = [&] { return ConvertCall()->constraint->spec.flow()->nodes[0].is_free; };
  EXPECT_EQ(edges(0), 0u);
  EXPECT_TRUE(is_free());
  EXPECT_EQ(ConvertCall()->output.regions->format.tools, nullptr);
  choice.set_name("get");
  EXPECT_EQ(edges(0), 0u);
  EXPECT_GT(edges(1), 0u);
  EXPECT_FALSE(is_free());
  EXPECT_EQ(ConvertCall()->output.regions->format.tools, model_.chat_format.tools);
  choice.set_name("put");
  EXPECT_EQ(RefusedCallField(), "chat.tool_choice.name");
  choice.set_mode(v1::ChatInput::ToolChoice::REQUIRED);
  EXPECT_GT(edges(0), 0u);
  EXPECT_FALSE(is_free());
  choice.set_mode(static_cast<v1::ChatInput::ToolChoice::Mode>(99));
  EXPECT_EQ(RefusedCallField(), "chat.tool_choice.mode");
}

TEST_F(ConvertAnswerTest, TheConstraintOfTheTextKeepsItsName) {
  AddTool("add");
  request_.set_regex("[ab]+");
  const absl::StatusOr<GenerateCall> call = ConvertCall();
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->constraint->field, "chat.tools");
  ASSERT_FALSE(EdgesOf(*call, "regex").empty());
  EXPECT_EQ(TextOf(EdgesOf(*call, "regex")[0].content), "[ab]+");
  chat_.mutable_tool_choice()->set_mode(v1::ChatInput::ToolChoice::REQUIRED);
  EXPECT_EQ(RefusedCallField(), "regex");

  chat_.clear_tool_choice();
  chat_.clear_tools();
  chat_.mutable_reasoning()->set_budget_tokens(3);
  EXPECT_EQ(ConvertCall()->constraint->field, "regex");
  request_.clear_constraint();
  EXPECT_EQ(ConvertCall()->constraint->field, "chat.reasoning");
}

TEST_F(ConvertAnswerTest, JsonOfArgumentsHasOptionsToo) {
  request_.mutable_json()->set_whitespace(v1::JSON_WHITESPACE_COMPACT);
  EXPECT_EQ(RefusedCallField(), "json");
  AddTool("add");
  EXPECT_TRUE(ConvertCall()->constraint->spec.json.compact);
  request_.set_regex("a");
  EXPECT_TRUE(ConvertCall()->constraint->spec.json.compact);
}

TEST_F(ConvertAnswerTest, AllTextsOfAConstraintHaveOneLimit) {
  model_.limits.constraint.max_text_bytes = 400;
  AddTool("add");
  EXPECT_THAT(ConvertCall(), IsOk());
  chat_.mutable_tools(0)->set_parameters_json_schema(R"({"description": ")" +
                                                     std::string(400, 'd') + "\"}");
  EXPECT_EQ(RefusedCallField(absl::StatusCode::kResourceExhausted), "chat.tools");
}

TEST_F(ConvertAnswerTest, ReasoningThatThePromptOpensIsSeen) {
  chat_.mutable_reasoning();
  ASSERT_TRUE(ConvertCall()->output.regions.has_value());
  EXPECT_FALSE(ConvertCall()->output.regions->begins_in_reasoning);
  template_.opening_ = "<think>\n";
  EXPECT_TRUE(ConvertCall()->output.regions->begins_in_reasoning);
  // Whatever the prompt came as.
  request_.mutable_output()->set_regions(true);
  request_.set_prompt("<think>");
  EXPECT_TRUE(ConvertCall()->output.regions->begins_in_reasoning);
  const std::vector<int32_t> ids = ByteIds("a<think>\n");
  request_.mutable_prompt_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  EXPECT_TRUE(ConvertCall()->output.regions->begins_in_reasoning);
  request_.mutable_prompt_token_ids()->add_ids('x');
  EXPECT_FALSE(ConvertCall()->output.regions->begins_in_reasoning);
  EXPECT_EQ(ConvertCall()->output.regions->format.tools, nullptr);
}

TEST_F(ConvertAnswerTest, TheBudgetIsTheReasonings) {
  Merge("reasoning { enabled: true budget_tokens: 7 }", chat_);
  const absl::StatusOr<GenerateCall> call = ConvertCall();
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->constraint->spec.flow()->token_budget, 7);
  EXPECT_FALSE(call->constraint->spec.flow()->nodes[0].is_free);
}

TEST_F(ConvertAnswerTest, RegionsNeedAFormat) {
  request_.set_prompt("a");
  request_.mutable_output()->set_regions(true);
  EXPECT_TRUE(ConvertCall()->output.regions.has_value());
  model_.chat_format = {};
  EXPECT_EQ(RefusedCallField(absl::StatusCode::kFailedPrecondition), "output.regions");
  // Without reasoning all is text.
  request_.Clear();
  chat_.mutable_reasoning()->set_enabled(false);
  const absl::StatusOr<GenerateCall> call = ConvertCall();
  ASSERT_THAT(call, IsOk());
  EXPECT_TRUE(call->output.regions.has_value());
  EXPECT_FALSE(call->constraint.has_value());
}

}  // namespace
}  // namespace tlm
