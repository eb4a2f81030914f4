#include "client/cpp/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/fake_server.h"

namespace tlm::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Choice = v1::ChatInput::ToolChoice;

constexpr v1::RegionKind kCall = v1::REGION_KIND_TOOL_CALL;
constexpr v1::RegionKind kText = v1::REGION_KIND_TEXT;

class RunToolsTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = *Client::Connect(server_.target());
    for (const char* name : {"add", "look"}) request_.mutable_chat()->add_tools()->set_name(name);
    conversation_.AddUser("1 + 2?");
  }

  void AddAnswer(const std::vector<ScriptedRegion>& regions) {
    server_.generates.emplace_back().responses = RegionScript(regions);
  }

  absl::StatusOr<GenerateResult> Run(const RunToolsOptions& options = {}) {
    return RunTools(*client_, request_, functions_, &conversation_, options);
  }

  // "role: content" or "role: name(arguments)" of each message.
  static std::vector<std::string> Said(const Conversation& conversation) {
    std::vector<std::string> said;
    for (const v1::ChatInput::Message& message : conversation.messages()) {
      std::string& line = said.emplace_back(message.role() + ":");
      if (!message.content().empty()) line += " " + message.content();
      for (const auto& call : message.tool_calls()) {
        line += " " + call.name() + "(" + call.arguments_json() + ")";
      }
      if (!message.tool_call_id().empty()) line += " to " + message.tool_call_id();
    }
    return said;
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
  v1::GenerateRequest request_;
  Conversation conversation_;
  std::map<std::string, ToolFunction> functions_ = {
      {"add", [](const std::string& arguments) { return "sum of " + arguments; }},
      {"look", [](const std::string&) { return absl::NotFoundError("it is dark"); }}};
};

TEST_F(RunToolsTest, CallsUntilAnAnswerHasNoCall) {
  AddAnswer({{kText, "I add."}, {kCall, R"({"b":1})", "add"}, {kCall, "{}", "look"}});
  AddAnswer({{kCall, R"({"a":2})", "add"}});
  AddAnswer({{kText, "3."}});
  request_.mutable_chat()->mutable_tool_choice()->set_mode(Choice::REQUIRED);
  request_.mutable_sampling()->set_seed(4);
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outputs[0].content, "3.");
  EXPECT_THAT(
      Said(conversation_),
      ElementsAre("user: 1 + 2?", R"(assistant: I add. add({"b":1}) look({}))",
                  R"(tool: sum of {"b":1} to call0)", "tool: error: NOT_FOUND: it is dark to call1",
                  R"(assistant: add({"a":2}))", R"(tool: sum of {"a":2} to call0)",
                  "assistant: 3."));
  const std::vector<v1::GenerateRequest> requests = server_.generate_requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].chat().messages_size(), 1);
  EXPECT_EQ(requests[2].chat().messages_size(), 6);
  EXPECT_EQ(requests[0].chat().tool_choice().mode(), Choice::REQUIRED);
  EXPECT_FALSE(requests[1].chat().has_tool_choice()) << "else the loop could not end";
  EXPECT_TRUE(requests[2].output().regions());
  EXPECT_EQ(requests[2].sampling().seed(), 4u);
  EXPECT_EQ(requests[2].chat().tools_size(), 2);
}

TEST_F(RunToolsTest, LeavesOutACallThatIsNotComplete) {
  AddAnswer({{kText, "I add."}, {kCall, R"({"b")", "add", /*complete=*/false}});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Said(conversation_), ElementsAre("user: 1 + 2?", "assistant: I add."));
}

TEST_F(RunToolsTest, PassesEventsOn) {
  AddAnswer({{kCall, "{}", "add"}});
  AddAnswer({{kText, "3."}});
  RunToolsOptions options;
  std::string text;
  options.on_event = [&text](const v1::GenerateResponse& event) { text += event.tokens().text(); };
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(text, "{}3.");
}

TEST_F(RunToolsTest, EndsAfterTheRoundsAllowed) {
  server_.generate.responses = RegionScript({{kCall, "{}", "add"}});
  RunToolsOptions options;
  options.max_rounds = 2;
  const absl::Status status = Run(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("after 2 rounds"));
  EXPECT_EQ(server_.generate_requests().size(), 3u);
  EXPECT_EQ(conversation_.messages().size(), 5u) << "every call has a result";
}

TEST_F(RunToolsTest, KeepsCompletedRoundsOnErrors) {
  AddAnswer({{kCall, "{}", "add"}});
  server_.generates.emplace_back().status = grpc::Status(grpc::StatusCode::DATA_LOSS, "lost");
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(conversation_.messages().size(), 3u);

  functions_["look"] = [](const std::string&) { return absl::CancelledError("enough"); };
  server_.generates.clear();
  server_.generate.responses = RegionScript({{kCall, "{}", "add"}, {kCall, "{}", "look"}});
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(conversation_.messages().size(), 3u);
}

TEST_F(RunToolsTest, RefusesWhatItCannotRun) {
  request_.mutable_chat()->add_tools()->set_name("fly");
  const absl::Status status = Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"fly\""));
  request_.mutable_chat()->mutable_tools()->RemoveLast();
  request_.mutable_sampling()->set_num_sequences(2);
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(server_.generate_requests().empty());
}

}  // namespace
}  // namespace tlm::client
