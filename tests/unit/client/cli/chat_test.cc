// `tlm chat` through pipes: each line a turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class ChatTest : public CommandFixture {
 protected:
  void SetUp() override { server_.generate.responses = GenerateScript({"Once", " upon"}); }

  // The next call ends with this.
  void AddFailure(grpc::StatusCode code, const std::string& message) {
    server_.generates.emplace_back().status = grpc::Status(code, message);
  }
  void AddAnswer(const std::string& text) {
    server_.generates.emplace_back().responses = GenerateScript({text});
  }

  // "role: content" of each message of the i-th request.
  std::vector<std::string> Said(size_t request) const {
    const std::vector<v1::GenerateRequest> requests = server_.generate_requests();
    std::vector<std::string> said;
    if (request >= requests.size()) return said;
    for (const auto& message : requests[request].chat().messages()) {
      said.push_back(message.role() + ": " + message.content());
    }
    return said;
  }
};

TEST_F(ChatTest, KeepsTheConversation) {
  AddAnswer("Hello.");
  EXPECT_EQ(RunWithInput("hi\n\n  \nmore", {"chat"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "Hello.\nOnce upon\n");
  EXPECT_EQ(err_.str(), "");
  ASSERT_EQ(server_.generate_requests().size(), 2u);
  EXPECT_THAT(Said(0), ElementsAre("user: hi"));
  EXPECT_THAT(Said(1), ElementsAre("user: hi", "assistant: Hello.", "user: more"));
}

TEST_F(ChatTest, SendsFlagsWithEveryTurn) {
  EXPECT_EQ(
      RunWithInput("hi\nmore\n", {"chat", "--system=be brief", "--temperature=0",
                                  "--max_new_tokens=9", "--template_argument=enable_thinking=false",
                                  "--template_argument=n=[1]", "--model=demo"}),
      kSuccess)
      << err_.str();
  for (const v1::GenerateRequest& request : server_.generate_requests()) {
    EXPECT_EQ(request.chat().messages(0).role(), "system");
    EXPECT_EQ(request.chat().messages(0).content(), "be brief");
    EXPECT_TRUE(request.sampling().has_temperature());
    EXPECT_EQ(request.stopping().max_new_tokens(), 9u);
    EXPECT_EQ(request.model(), "demo");
    const auto& fields = request.chat().template_arguments().fields();
    EXPECT_TRUE(fields.at("enable_thinking").has_bool_value());
    EXPECT_EQ(fields.at("n").list_value().values_size(), 1);
  }
  EXPECT_EQ(server_.generate_requests().size(), 2u);
  EXPECT_FALSE(server_.last_generate().chat().has_add_generation_prompt());
}

TEST_F(ChatTest, ObeysCommands) {
  EXPECT_EQ(RunWithInput("one\n/seed 7\n/reset\n/system be brief\n//two\n/history\n/seed\n/system\n"
                         "three\n/quit\nnever\n",
                         {"chat", "--seed=3"}),
            kSuccess);
  const auto requests = server_.generate_requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].sampling().seed(), 3u);
  EXPECT_THAT(Said(1), ElementsAre("system: be brief", "user: /two"));
  EXPECT_EQ(requests[1].sampling().seed(), 7u);
  EXPECT_THAT(Said(2), ElementsAre("user: /two", "assistant: Once upon", "user: three"));
  EXPECT_FALSE(requests[2].sampling().has_seed());
  EXPECT_EQ(
      out_.str(),
      "Once upon\nOnce upon\nsystem: be brief\nuser: /two\nassistant: Once upon\nOnce upon\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(ChatTest, PrintsHelp) {
  EXPECT_EQ(RunWithInput("/help\n", {"chat"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("/reset"));
  EXPECT_THAT(server_.generate_requests(), IsEmpty());
}

TEST_F(ChatTest, GoesOnAfterLinesThatAreWrong) {
  EXPECT_EQ(RunWithInput("a\xff\n/nope\nhi\n", {"chat"}), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: the text is not valid UTF-8: byte 0xff"));
  EXPECT_THAT(err_.str(), HasSubstr("\ntlm: chat: no command \"/nope\"; /help lists them"));
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_THAT(Said(0), ElementsAre("user: hi"));
}

TEST_F(ChatTest, AnswersMessageOfTheCommandLine) {
  EXPECT_EQ(RunWithInput("never\n", {"chat", "/help me"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_THAT(Said(0), ElementsAre("user: /help me"));
  EXPECT_EQ(RunWithInput("two\nlines\n", {"chat", "-"}), kSuccess);
  EXPECT_THAT(Said(1), ElementsAre("user: two\nlines"));
  EXPECT_EQ(server_.generate_requests().size(), 2u);
}

TEST_F(ChatTest, EndsAfterOneAnswerWhenAsked) {
  EXPECT_EQ(RunWithInput("/system s\nhi\nnever\n", {"chat", "--once"}), kSuccess);
  EXPECT_EQ(server_.generate_requests().size(), 1u);
  EXPECT_THAT(Said(0), ElementsAre("system: s", "user: hi"));
}

TEST_F(ChatTest, ReportsMissingTemplateOnOneLine) {
  AddFailure(grpc::StatusCode::FAILED_PRECONDITION, "model demo has no chat template");
  EXPECT_EQ(RunWithInput("hi\nmore\n", {"chat"}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: chat: FAILED_PRECONDITION: model demo has no chat template\n");
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(ChatTest, TakesRefusedMessageBackAndOffersReset) {
  AddAnswer("Hello.");
  AddFailure(grpc::StatusCode::INVALID_ARGUMENT, "chat has 300 tokens, the limit is 256");
  EXPECT_EQ(RunWithInput("hi\nlong\nshort\n", {"chat"}), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: INVALID_ARGUMENT: chat has 300 tokens"));
  EXPECT_THAT(err_.str(), HasSubstr("/reset begins a new one"));
  EXPECT_THAT(Said(2), ElementsAre("user: hi", "assistant: Hello.", "user: short"));
  EXPECT_THAT(out_.str(), EndsWith("Once upon\n"));
}

TEST_F(ChatTest, StopsWhereAnAnswerIsMissing) {
  AddFailure(grpc::StatusCode::UNAVAILABLE, "draining");
  EXPECT_EQ(RunWithInput("hi\nmore\n", {"chat"}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: chat: UNAVAILABLE: draining\n");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(ChatTest, ReportsFailureInMidAnswer) {
  AddAnswer("Hel");
  server_.generates[0].responses.resize(2);
  server_.generates[0].status = grpc::Status(grpc::StatusCode::DATA_LOSS, "non-finite logits");
  EXPECT_EQ(RunWithInput("", {"chat", "hi"}), kFailure);
  EXPECT_EQ(out_.str(), "Hel\n");
  EXPECT_EQ(err_.str(), "tlm: chat: DATA_LOSS: non-finite logits\n");
}

TEST_F(ChatTest, SaysWhenTheContextIsFull) {
  AddAnswer("Hel");
  server_.generates[0].responses[2].mutable_finished()->set_reason(
      v1::FINISH_REASON_CONTEXT_LENGTH);
  EXPECT_EQ(RunWithInput("", {"chat", "hi"}), kSuccess);
  EXPECT_THAT(err_.str(), HasSubstr("the context is full"));
}

TEST_F(ChatTest, PrintsTiming) {
  EXPECT_EQ(RunWithInput("hi\n", {"chat", "--timing"}), kSuccess);
  EXPECT_THAT(err_.str(), StartsWith("tlm: 3 prompt + 2 tokens, LENGTH"));
  EXPECT_TRUE(server_.last_generate().output().timing());
}

TEST_F(ChatTest, GivesUpAtTimeout) {
  server_.generate.hold = true;
  EXPECT_EQ(RunWithInput("", {"chat", "hi", "--timeout=0.05"}), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: DEADLINE_EXCEEDED:"));
}

TEST_F(ChatTest, RefusesWrongUsage) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"chat", "a", "b"},
           {"chat", ""},
           {"chat", "\xff"},
           {"chat", "--system=\xff"},
           {"chat", "--template_argument=x"},
           {"chat", "--template_argument=x=yes"},
           {"chat", "--num_sequences=2"},
           {"chat", "--prompt_ids=1"},
           {"chat", "--min_new_tokens=2", "--max_new_tokens=1"}}) {
    EXPECT_EQ(RunWithInput("hi\n", args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: chat: "));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
  EXPECT_THAT(server_.generate_requests(), IsEmpty());
}

}  // namespace
}  // namespace tlm::cli
