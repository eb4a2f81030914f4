// `tlm chat` through pipes: each line a turn.
#include <utility>

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

  void AddRegions(const std::vector<ScriptedRegion>& regions) {
    server_.generates.emplace_back().responses = RegionScript(regions);
  }
  // "role: content" of each message of the i-th request, calls as "name(arguments)".
  std::vector<std::string> Said(size_t request) const {
    const std::vector<v1::GenerateRequest> requests = server_.generate_requests();
    std::vector<std::string> said;
    if (request >= requests.size()) return said;
    for (const auto& message : requests[request].chat().messages()) {
      std::string& line = said.emplace_back(message.role() + ": " + message.content());
      for (const auto& call : message.tool_calls()) {
        line += call.name() + "(" + call.arguments_json() + ")";
      }
      if (!message.tool_call_id().empty()) line += " to " + message.tool_call_id();
    }
    return said;
  }
};

TEST_F(ChatTest, KeepsTheConversation) {
  AddAnswer("Hello.");
  EXPECT_EQ(RunWithInput("hi\n\n  \nmore", "chat"), kSuccess) << err_.str();
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
    EXPECT_THAT(request.chat().messages(0), IsProto("role: 'system' content: 'be brief'"));
    EXPECT_THAT(request, HasFields(R"(model: "demo" sampling { temperature: 0 }
        stopping { max_new_tokens: 9 } chat { template_arguments {
          fields { key: "enable_thinking" value { bool_value: false } }
          fields { key: "n" value { list_value { values { number_value: 1 } } } } } })"));
  }
  EXPECT_EQ(server_.generate_requests().size(), 2u);
  EXPECT_FALSE(server_.last_generate().chat().has_add_generation_prompt());
}

TEST_F(ChatTest, ObeysCommands) {
  EXPECT_EQ(RunWithInput("one\n/seed 7\n/reset\n/system be brief\n//two\n/history\n/seed\n/system\n"
                         "three\n/quit\nnever\n",
                         "chat --seed=3"),
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
  EXPECT_EQ(RunWithInput("/help\n", "chat"), kSuccess);
  for (const char* command : {"/reset", "/system", "/history", "/seed", "/help", "/quit"}) {
    EXPECT_THAT(out_.str(), HasSubstr(command));
  }
  EXPECT_THAT(server_.generate_requests(), IsEmpty());
}

TEST_F(ChatTest, TellsCommandsFromMessages) {
  EXPECT_EQ(RunWithInput(" /reset\na /help\n//\n/seed 18446744073709551615\n/system  be brief \n"
                         "/history \t\n",
                         "chat"),
            kSuccess);
  EXPECT_THAT(out_.str(), EndsWith("\nsystem: be brief\nuser:  /reset\nassistant: Once upon\n"
                                   "user: a /help\nassistant: Once upon\nuser: /\n"
                                   "assistant: Once upon\n"));
  for (const std::string& line :
       {std::string("/"), std::string("/resett"), std::string("/RESET"), std::string("/reset now"),
        std::string("/seed -1"), std::string("/seed 1 2"), std::string("/seed x"),
        "/" + std::string(10'000, 'x')}) {
    EXPECT_EQ(RunWithInput(line + "\n", "chat"), kFailure) << line.substr(0, 20);
    EXPECT_LT(err_.str().size(), 220u);
  }
}

TEST_F(ChatTest, GoesOnAfterLinesThatAreWrong) {
  EXPECT_EQ(RunWithInput("a\xff\n/nope\nhi\n", "chat"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: the text is not valid UTF-8: byte 0xff"));
  EXPECT_THAT(err_.str(), HasSubstr("\ntlm: chat: no command \"/nope\"; /help lists them"));
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_THAT(Said(0), ElementsAre("user: hi"));
}

TEST_F(ChatTest, AnswersMessageOfTheCommandLine) {
  EXPECT_EQ(RunWithInput("never\n", {"chat", "/help me"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_THAT(Said(0), ElementsAre("user: /help me"));
  EXPECT_EQ(RunWithInput("two\nlines\n", "chat -"), kSuccess);
  EXPECT_THAT(Said(1), ElementsAre("user: two\nlines"));
  EXPECT_EQ(server_.generate_requests().size(), 2u);
}

TEST_F(ChatTest, EndsAfterOneAnswerWhenAsked) {
  EXPECT_EQ(RunWithInput("/system s\nhi\nnever\n", "chat --once"), kSuccess);
  EXPECT_EQ(server_.generate_requests().size(), 1u);
  EXPECT_THAT(Said(0), ElementsAre("system: s", "user: hi"));
}

TEST_F(ChatTest, ReportsMissingTemplateOnOneLine) {
  AddFailure(grpc::StatusCode::FAILED_PRECONDITION, "model demo has no chat template");
  EXPECT_EQ(RunWithInput("hi\nmore\n", "chat"), kFailure);
  EXPECT_EQ(err_.str(), "tlm: chat: FAILED_PRECONDITION: model demo has no chat template\n");
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(ChatTest, TakesRefusedMessageBackAndOffersReset) {
  AddAnswer("Hello.");
  AddFailure(grpc::StatusCode::INVALID_ARGUMENT, "chat has 300 tokens, the limit is 256");
  EXPECT_EQ(RunWithInput("hi\nlong\nshort\n", "chat"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: INVALID_ARGUMENT: chat has 300 tokens"));
  EXPECT_THAT(err_.str(), HasSubstr("/reset begins a new one"));
  EXPECT_THAT(Said(2), ElementsAre("user: hi", "assistant: Hello.", "user: short"));
  EXPECT_THAT(out_.str(), EndsWith("Once upon\n"));
}

TEST_F(ChatTest, StopsWhereAnAnswerIsMissing) {
  AddFailure(grpc::StatusCode::UNAVAILABLE, "draining");
  EXPECT_EQ(RunWithInput("hi\nmore\n", "chat"), kFailure);
  EXPECT_EQ(err_.str(), "tlm: chat: UNAVAILABLE: draining\n");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(ChatTest, ReportsFailureInMidAnswer) {
  AddAnswer("Hel");
  server_.generates[0].responses.resize(2);
  server_.generates[0].status = grpc::Status(grpc::StatusCode::DATA_LOSS, "non-finite logits");
  EXPECT_EQ(RunWithInput("", "chat hi"), kFailure);
  EXPECT_EQ(out_.str(), "Hel\n");
  EXPECT_EQ(err_.str(), "tlm: chat: DATA_LOSS: non-finite logits\n");
}

TEST_F(ChatTest, SaysWhenTheContextIsFull) {
  AddAnswer("Hel");
  server_.generates[0].responses[2].mutable_finished()->set_reason(
      v1::FINISH_REASON_CONTEXT_LENGTH);
  EXPECT_EQ(RunWithInput("", "chat hi"), kSuccess);
  EXPECT_THAT(err_.str(), HasSubstr("the context is full"));
}

TEST_F(ChatTest, PrintsTiming) {
  EXPECT_EQ(RunWithInput("hi\n", "chat --timing"), kSuccess);
  EXPECT_THAT(err_.str(), StartsWith("tlm: 3 prompt + 2 tokens, LENGTH"));
  EXPECT_TRUE(server_.last_generate().output().timing());
}

TEST_F(ChatTest, GivesUpAtTimeout) {
  server_.generate.hold = true;
  EXPECT_EQ(RunWithInput("", "chat hi --timeout=0.05"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: chat: DEADLINE_EXCEEDED:"));
}

class ChatToolsTest : public ChatTest {
 protected:
  static constexpr v1::RegionKind kMarker = v1::REGION_KIND_UNSPECIFIED;
  static constexpr v1::RegionKind kReasoning = v1::REGION_KIND_REASONING;
  static constexpr v1::RegionKind kText = v1::REGION_KIND_TEXT;
  static constexpr v1::RegionKind kCall = v1::REGION_KIND_TOOL_CALL;

  void SetUp() override {
    ChatTest::SetUp();
    v1::CapabilitiesInfo& capabilities =
        *server_.model_info.responses.emplace_back().mutable_capabilities();
    capabilities.mutable_chat_format()->set_tool_format("hermes");
    flag_ = "--tools=" + FileWith(R"([
        {"name": "add", "exec": "sed s/^/sum\\ of\\ /", "parameters": {"z": 1, "a": 2}},
        {"name": "look", "exec": "echo dark; exit 3"}, {"name": "ask"}])");
  }

  std::string flag_;
};

TEST_F(ChatToolsTest, SendsToolsWithEveryTurn) {
  EXPECT_EQ(RunWithInput("hi\nmore\n", {"chat", flag_, "--tool_choice=look", "--reasoning=on",
                                        "--noparallel_tool_calls", "--reasoning_budget=7"}),
            kSuccess)
      << err_.str();
  ASSERT_EQ(server_.generate_requests().size(), 2u);
  for (const v1::GenerateRequest& request : server_.generate_requests()) {
    EXPECT_THAT(request, HasFields(R"(
        chat { tools { name: "add" parameters_json_schema: '{"z":1,"a":2}' }
               tools { name: "look" } tools { name: "ask" } tool_choice { name: "look" }
               parallel_tool_calls: false reasoning { enabled: true budget_tokens: 7 } }
        output { regions: true })"));
  }
}

TEST_F(ChatToolsTest, SetsWhatTheFlagsSay) {
  using Choice = v1::ChatInput::ToolChoice;
  const std::pair<std::string, Choice::Mode> kModes[] = {
      {"auto", Choice::AUTO}, {"none", Choice::NONE}, {"required", Choice::REQUIRED}};
  for (const auto& [name, mode] : kModes) {
    EXPECT_EQ(Run({"chat", "hi", flag_, "--tool_choice=" + name, "--reasoning=off"}), kSuccess);
    EXPECT_EQ(server_.last_generate().chat().tool_choice().mode(), mode);
    EXPECT_TRUE(server_.last_generate().chat().reasoning().has_enabled());
    EXPECT_FALSE(server_.last_generate().chat().reasoning().enabled());
  }
  EXPECT_EQ(Run("chat hi"), kSuccess);
  EXPECT_FALSE(server_.last_generate().chat().has_reasoning());
  EXPECT_FALSE(server_.last_generate().chat().has_tool_choice());
}

TEST_F(ChatToolsTest, AsksForRegionsWhereTheModelHasSome) {
  EXPECT_EQ(Run("chat hi"), kSuccess);
  EXPECT_TRUE(server_.last_generate().output().regions());
  server_.model_info.responses[0].Clear();
  EXPECT_EQ(Run("chat hi"), kSuccess);
  EXPECT_FALSE(server_.last_generate().output().has_regions());
}

TEST_F(ChatToolsTest, TakesTheNextLinesForResults) {
  AddRegions({{kMarker, "<think>"},
              {kReasoning, "Two calls."},
              {kMarker, "</think>"},
              {kText, "I look."},
              {kCall, R"({"b":1})", "add"},
              {kCall, "{}", "ask"}});
  AddRegions({{kCall, "{}", "ask"}});
  EXPECT_EQ(RunWithInput("1 + 2?\n3\n\n/history\nyes\nno\n/reset\nhi\n",
                         {"chat", flag_, "--tool_choice=required"}),
            kSuccess)
      << err_.str();
  EXPECT_EQ(out_.str(),
            "<reasoning>\nTwo calls.\n</reasoning>\nI look.\nadd({\"b\":1})\nask({})\n"
            "user: 1 + 2?\nassistant: I look.\n  add({\"b\":1})\n  ask({})\ntool add: 3\n"
            "ask({})\nOnce upon\nOnce upon\n");
  EXPECT_THAT(Said(1), ElementsAre("user: 1 + 2?", R"(assistant: I look.add({"b":1})ask({}))",
                                   "tool: 3 to call0", "tool: yes to call1"));
  EXPECT_THAT(Said(2), testing::Contains("tool: no to call0"));
  EXPECT_THAT(Said(3), ElementsAre("user: hi"));
  const auto requests = server_.generate_requests();
  EXPECT_EQ(requests[1].chat().messages(1).reasoning(), "Two calls.");
  EXPECT_TRUE(requests[0].chat().has_tool_choice());
  EXPECT_FALSE(requests[1].chat().has_tool_choice()) << "the model could never answer";
  EXPECT_TRUE(requests[3].chat().has_tool_choice());
}

TEST_F(ChatToolsTest, RunsNothingUnlessAsked) {
  AddRegions({{kCall, "{}", "add"}});
  EXPECT_EQ(RunWithInput("", {"chat", "1 + 2?", flag_}), kSuccess);
  EXPECT_EQ(out_.str(), "add({})\n");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(ChatToolsTest, RunsCommandsWhenAsked) {
  AddRegions({{kCall, R"({"b":1})", "add"}, {kCall, "{}", "look"}});
  AddRegions({{kCall, "{}", "ask"}, {kCall, "{}", "add"}});
  EXPECT_EQ(RunWithInput("yes\n", {"chat", "1 + 2?", flag_, "--run_tools"}), kSuccess)
      << err_.str();
  EXPECT_EQ(out_.str(), "add({\"b\":1})\nlook({})\nask({})\nadd({})\nOnce upon\n");
  EXPECT_THAT(Said(2), ElementsAre("user: 1 + 2?", R"(assistant: add({"b":1})look({}))",
                                   R"(tool: sum of {"b":1} to call0)",
                                   "tool: error: UNKNOWN: exit status 3: dark to call1",
                                   "assistant: ask({})add({})", "tool: yes to call0",
                                   "tool: sum of {} to call1"));
  EXPECT_THAT(err_.str(), HasSubstr(R"(  = "sum of {\"b\":1}")"));
}

TEST_F(ChatToolsTest, EndsAfterTheRoundsAllowed) {
  server_.generate.responses = RegionScript({{kCall, "{}", "add"}});
  EXPECT_EQ(Run({"chat", "hi", flag_, "--run_tools", "--max_tool_rounds=2"}), kFailure);
  EXPECT_EQ(server_.generate_requests().size(), 3u);
  EXPECT_THAT(err_.str(), HasSubstr("RESOURCE_EXHAUSTED: the model still calls tools after 2"));
}

TEST_F(ChatToolsTest, BoundsTheTimeOfACommand) {
  AddRegions({{kCall, "{}", "wait"}});
  const std::string tools = "--tools=" + FileWith(R"([{"name": "wait", "exec": "sleep 1000"}])");
  EXPECT_EQ(Run({"chat", "hi", tools, "--run_tools", "--tool_timeout=50ms"}), kSuccess);
  EXPECT_THAT(Said(1), testing::Contains("tool: error: DEADLINE_EXCEEDED: the command did not end "
                                         "within 50ms to call0"));
}

TEST_F(ChatToolsTest, LeavesOutACallThatIsNotComplete) {
  AddRegions({{kText, "I add."}, {kCall, "{\"b", "add", /*complete=*/false}});
  EXPECT_EQ(RunWithInput("1 + 2?\nmore\n", {"chat", flag_, "--run_tools"}), kSuccess);
  EXPECT_EQ(err_.str(),
            "tlm: chat: the answer ended within a call of add (LENGTH), which is left out\n");
  EXPECT_THAT(Said(1), ElementsAre("user: 1 + 2?", "assistant: I add.", "user: more"));
}

TEST_F(ChatToolsTest, TakesTheMessageBackWithItsCalls) {
  AddAnswer("Hello.");
  AddRegions({{kCall, "{}", "add"}});
  AddFailure(grpc::StatusCode::INVALID_ARGUMENT, "chat has 300 tokens, the limit is 256");
  EXPECT_EQ(RunWithInput("hi\n1 + 2?\nmore\n", {"chat", flag_, "--run_tools"}), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("the message was taken back"));
  EXPECT_THAT(Said(3), ElementsAre("user: hi", "assistant: Hello.", "user: more"));
}

TEST_F(ChatToolsTest, RefusesWrongUsage) {
  const std::string plain = "--tools=" + FileWith(R"([{"name": "add"}])");
  const std::pair<std::string, std::string> kMistakes[] = {
      {"--tools=/nonexistent", "--tools: /nonexistent: cannot be read"},
      {"--tools=" + FileWith("[{}]"), "[0].name is missing"},
      {"--tools=" + FileWith("\xff"), "is not valid UTF-8"},
      {flag_ + " --tool_choice=fly", "--tool_choice is \"fly\", but the tools are add, look, ask"},
      {plain + " --run_tools", "has an \"exec\""},
      {"--tool_choice=auto", "need --tools"},
      {"--run_tools", "need --tools"},
      {"--reasoning=yes", "--reasoning is on or off, not \"yes\""},
      {"--reasoning=off --reasoning_budget=3", "--reasoning_budget is for"},
      {"--reasoning_budget=-1", "reasoning_budget"},
  };
  for (const auto& [flags, message] : kMistakes) {
    ExpectUsageError(RunWithInput("hi\n", "chat " + flags), "chat: ", message);
  }
  EXPECT_THAT(server_.generate_requests(), IsEmpty());
}

TEST_F(ChatTest, RefusesWrongUsage) {
  ExpectUsageErrors("chat",
                    {"a b", Line(std::vector<std::string>{""}), "\xff", "--system=\xff",
                     "--template_argument=x", "--template_argument=x=yes", "--num_sequences=2",
                     "--prompt_ids=1", "--min_new_tokens=2 --max_new_tokens=1"});
  EXPECT_THAT(server_.generate_requests(), IsEmpty());
}

}  // namespace
}  // namespace tlm::cli
