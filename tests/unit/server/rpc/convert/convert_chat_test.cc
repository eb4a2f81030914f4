#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "role:content;role:content;" and ">" for the assistant to begin; keeps what it was given.
class PlainTemplate : public ChatTemplate {
 public:
  absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages,
                                     bool add_generation_prompt,
                                     const nlohmann::json& arguments) const override {
    arguments_ = arguments;
    if (!status_.ok()) return status_;
    std::string text;
    for (const ChatMessage& message : messages) {
      text += message.role + ":" + message.content + ";";
    }
    for (int64_t i = 0; i < repeat_; ++i) text += '.';
    return add_generation_prompt ? text + ">" : text;
  }

  mutable nlohmann::json arguments_;
  absl::Status status_;
  int64_t repeat_ = 0;
};

class ConvertChatTest : public ::testing::Test {
 protected:
  ConvertChatTest() {
    model_.chat = &template_;
    AddMessage("user", "hi");
  }
  void AddMessage(const std::string& role, const std::string& content) {
    auto* message = chat_.add_messages();
    message->set_role(role);
    message->set_content(content);
  }
  google::protobuf::Value& Argument(const std::string& key) {
    return (*chat_.mutable_template_arguments()->mutable_fields())[key];
  }
  absl::StatusOr<std::vector<int32_t>> Convert(std::optional<bool> special = std::nullopt) {
    return ConvertChat(chat_, special, model_);
  }
  // The field of the INVALID_ARGUMENT it must end with.
  std::string RefusedField() {
    const absl::Status status = Convert().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, _));
    return FieldOf(status);
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
}

TEST_F(ConvertChatTest, TheGenerationPromptCanBeLeftOut) {
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

TEST_F(ConvertChatTest, NoArgumentsAreAnEmptyObject) {
  ASSERT_THAT(Convert(), IsOk());
  EXPECT_EQ(template_.arguments_, nlohmann::json::object());
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
  EXPECT_THAT(Convert(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("roles must alternate")));
  EXPECT_EQ(RefusedField(), "chat");
  template_.status_ = ResourceExhausted("takes more than 1000 steps");
  EXPECT_THAT(Convert(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1000 steps")));
}

TEST_F(ConvertChatTest, NeedsATemplateAndATokenizer) {
  model_.chat = nullptr;
  EXPECT_THAT(Convert(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("chat template")));
  EXPECT_EQ(FieldOf(Convert().status()), "chat");
  model_.chat = &template_;
  model_.tokenizer = nullptr;
  EXPECT_THAT(Convert(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tokenizer")));
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
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("109 tokens"), HasSubstr("the limit is 63"))));
  EXPECT_EQ(FieldOf(status), "chat");
}

}  // namespace
}  // namespace tlm
