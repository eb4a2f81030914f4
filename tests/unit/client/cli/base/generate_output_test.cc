#include "client/cli/base/generate_output.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tlm::cli {
namespace {

class GenerateOutputTest : public testing::Test {
 protected:
  // Feeds the events at 10 ms intervals and finishes.
  void Run(const GenerateOutputOptions& options, const std::vector<v1::GenerateResponse>& events) {
    absl::Time now = absl::UnixEpoch();
    GenerateOutput output(options, now, &console_);
    for (const auto& event : events) {
      now += absl::Milliseconds(10);
      ASSERT_TRUE(output.Add(event, now).ok());
    }
    ASSERT_TRUE(output.Finish().ok());
  }

  static v1::GenerateResponse Started(uint32_t outputs) {
    v1::GenerateResponse event;
    event.mutable_started()->mutable_effective()->set_num_sequences(outputs);
    event.mutable_started()->set_prompt_token_count(5);
    return event;
  }
  static v1::GenerateResponse Tokens(uint32_t output, const std::string& text, uint32_t id) {
    v1::GenerateResponse event;
    event.mutable_tokens()->set_output_index(output);
    event.mutable_tokens()->set_text(text);
    v1::TokenInfo* token = event.mutable_tokens()->add_tokens();
    token->set_id(id);
    token->set_bytes(text);
    token->set_logprob(-1.25f);
    token->set_rank(2);
    return event;
  }
  static v1::GenerateResponse Finished(uint32_t output, v1::FinishReason reason) {
    v1::GenerateResponse event;
    event.mutable_finished()->set_output_index(output);
    event.mutable_finished()->set_reason(reason);
    return event;
  }
  static v1::GenerateResponse Summary(uint64_t prompt, uint64_t completion) {
    v1::GenerateResponse event;
    event.mutable_summary()->mutable_usage()->set_prompt_tokens(prompt);
    event.mutable_summary()->mutable_usage()->set_completion_tokens(completion);
    return event;
  }
  static std::vector<v1::GenerateResponse> TwoTokens() {
    return {Started(1), Tokens(0, "Once", 10), Tokens(0, " upon", 11),
            Finished(0, v1::FINISH_REASON_LENGTH), Summary(5, 2)};
  }

  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Console console_{in_, out_, err_};
};

TEST_F(GenerateOutputTest, StreamsTextAndEndsTheLine) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  ASSERT_TRUE(output.Add(Started(1), absl::UnixEpoch()).ok());
  ASSERT_TRUE(output.Add(Tokens(0, "Once", 10), absl::UnixEpoch()).ok());
  EXPECT_EQ(out_.str(), "Once");
  output.Abandon();
  EXPECT_EQ(out_.str(), "Once\n");
}

// Events in the text format of Protobuf.
v1::GenerateResponse Regions(const std::string& regions) {
  v1::GenerateResponse event;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(regions, event.mutable_tokens()));
  return event;
}

constexpr char kThought[] = R"(
  text: "<think>Add it."
  regions { marker: "<think>" }
  regions { started { region_index: 0 kind: REGION_KIND_REASONING } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "Add" } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: " it." } })";
constexpr char kSaid[] = R"(
  text: "</think>I add."
  regions { finished { region_index: 0 kind: REGION_KIND_REASONING complete: true } }
  regions { marker: "</think>" }
  regions { started { region_index: 1 kind: REGION_KIND_TEXT } }
  regions { delta { region_index: 1 kind: REGION_KIND_TEXT text: "I add." } }
  regions { finished { region_index: 1 kind: REGION_KIND_TEXT complete: true } })";
constexpr char kCalling[] = R"(
  text: "<call>{"
  regions { marker: "<call>" }
  regions { started { region_index: 2 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 0 id: "id0" name: "add" } } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "{" arguments_json: "{" } })";
constexpr char kCalled[] = R"(
  text: "}"
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "}" arguments_json: "}" } }
  regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } })";

TEST_F(GenerateOutputTest, TellsRegionsApart) {
  GenerateOutputOptions options;
  options.regions = true;
  Run(options, {Started(1), Regions(kThought), Regions(kSaid), Regions(kCalling), Regions(kCalled),
                Finished(0, v1::FINISH_REASON_EOS), Summary(5, 4)});
  EXPECT_EQ(out_.str(), "<reasoning>\nAdd it.\n</reasoning>\nI add.\nadd({})\n");
}

TEST_F(GenerateOutputTest, DimsReasoningAtATerminal) {
  console_.out_is_terminal = true;
  GenerateOutputOptions options;
  options.regions = true;
  v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_LENGTH);
  v1::RegionEvent::Finished& call = *end.mutable_finished()->add_regions()->mutable_finished();
  call.set_kind(v1::REGION_KIND_TOOL_CALL);
  Run(options,
      {Started(1), Regions(kThought), Regions(kSaid), Regions(kCalling), end, Summary(5, 3)});
  EXPECT_EQ(out_.str(), "\x1b[2mAdd\x1b[0m\x1b[2m it.\x1b[0m\nI add.\n\x1b[1madd\x1b[0m({\n");
}

TEST_F(GenerateOutputTest, ShowsCallsWhileTheyGrow) {
  GenerateOutputOptions options;
  options.regions = true;
  GenerateOutput output(options, absl::UnixEpoch(), &console_);
  ASSERT_TRUE(output.Add(Started(1), absl::UnixEpoch()).ok());
  ASSERT_TRUE(output.Add(Regions(kCalling), absl::UnixEpoch()).ok());
  EXPECT_EQ(out_.str(), "add({");
}

TEST_F(GenerateOutputTest, PrintsTheTextOfAServerThatTellsNoRegions) {
  GenerateOutputOptions options;
  options.regions = true;
  Run(options, TwoTokens());
  EXPECT_EQ(out_.str(), "Once upon\n");
}

TEST_F(GenerateOutputTest, AddsNoSecondLineEnd) {
  Run({}, {Started(1), Tokens(0, "line\n", 1), Finished(0, v1::FINISH_REASON_EOS), Summary(1, 1)});
  EXPECT_EQ(out_.str(), "line\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(GenerateOutputTest, PrintsIdsWhenAsked) {
  GenerateOutputOptions options;
  options.ids = true;
  Run(options, TwoTokens());
  EXPECT_EQ(out_.str(), "10,11\n");
}

TEST_F(GenerateOutputTest, PrintsIdsWhenThereIsNoText) {
  Run({}, {Started(1), Tokens(0, "", 10), Tokens(0, "", 11), Finished(0, v1::FINISH_REASON_LENGTH),
           Summary(5, 2)});
  EXPECT_EQ(out_.str(), "10,11\n");
}

TEST_F(GenerateOutputTest, PrintsSeveralOutputsInTheirOrder) {
  Run({}, {Started(2), Tokens(1, "x", 1), Tokens(0, "a", 2), Tokens(1, "y", 3),
           Finished(1, v1::FINISH_REASON_EOS), Finished(0, v1::FINISH_REASON_STOP), Summary(5, 3)});
  EXPECT_EQ(out_.str(), "[0]\na\n[1]\nxy\n");
}

TEST_F(GenerateOutputTest, PrintsEachOutputAsSoonAsItIsFinished) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  const auto add = [&output](const v1::GenerateResponse& event) {
    ASSERT_TRUE(output.Add(event, absl::UnixEpoch()).ok());
  };
  add(Started(3));
  add(Tokens(0, "a", 1));
  add(Tokens(2, "c", 1));
  add(Finished(2, v1::FINISH_REASON_EOS));
  EXPECT_EQ(out_.str(), "");
  add(Finished(0, v1::FINISH_REASON_EOS));
  EXPECT_EQ(out_.str(), "[0]\na\n");
  add(Finished(1, v1::FINISH_REASON_EOS));
  EXPECT_EQ(out_.str(), "[0]\na\n[1]\n[2]\nc\n");
}

TEST_F(GenerateOutputTest, PrintsWhatHasComeOfSeveralOutputsWhenAbandoned) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  ASSERT_TRUE(output.Add(Started(2), absl::UnixEpoch()).ok());
  ASSERT_TRUE(output.Add(Tokens(1, "x", 1), absl::UnixEpoch()).ok());
  ASSERT_TRUE(output.Add(Finished(1, v1::FINISH_REASON_EOS), absl::UnixEpoch()).ok());
  ASSERT_TRUE(output.Add(Tokens(0, "a", 1), absl::UnixEpoch()).ok());
  output.Abandon();
  EXPECT_EQ(out_.str(), "[0]\na\n[1]\nx\n");
}

TEST_F(GenerateOutputTest, PrintsPromptTableFirst) {
  v1::GenerateResponse prompt;
  prompt.mutable_prompt()->add_tokens()->set_id(7);
  v1::TokenInfo* token = prompt.mutable_prompt()->add_tokens();
  token->set_id(8);
  token->set_bytes("b");
  token->set_logprob(-2);
  token->set_rank(3);
  std::vector<v1::GenerateResponse> events = TwoTokens();
  events.insert(events.begin() + 1, prompt);
  Run({}, events);
  EXPECT_EQ(out_.str(),
            "position  id  logprob  rank  token  alternatives\n"
            "       0   7        -     -  \"\"\n"
            "       1   8  -2.0000     3  \"b\"\n"
            "Once upon\n");
}

TEST_F(GenerateOutputTest, PrintsReasonsOfSeveralOutputsAndServerTimes) {
  GenerateOutputOptions options;
  options.stats = true;
  v1::GenerateResponse summary = Summary(5, 0);
  v1::Timing& timing = *summary.mutable_summary()->mutable_timing();
  timing.mutable_queue()->set_nanos(1'500'000);
  timing.mutable_prefill()->set_nanos(20'000'000);
  timing.mutable_decode()->set_seconds(1);
  Run(options, {Started(2), Finished(0, v1::FINISH_REASON_EOS),
                Finished(1, v1::FINISH_REASON_LENGTH), summary});
  EXPECT_EQ(err_.str(),
            "tlm: 5 prompt + 0 tokens, EOS LENGTH (server: queue 1.5 ms, prefill 20.0 ms, decode "
            "1000.0 ms)\n");
}

TEST_F(GenerateOutputTest, PrintsStatistics) {
  GenerateOutputOptions options;
  options.stats = true;
  Run(options, TwoTokens());
  // Two tokens until 30 ms after the start, the first of them after 20 ms.
  EXPECT_EQ(err_.str(), "tlm: 5 prompt + 2 tokens, LENGTH, 66.7 tok/s, TTFT 20.0 ms\n");
}

TEST_F(GenerateOutputTest, PrintsHowManyGuessesWereRight) {
  GenerateOutputOptions options;
  options.stats = true;
  v1::GenerateResponse summary = Summary(5, 0);
  summary.mutable_summary()->mutable_speculation()->set_drafted_tokens(1200);
  summary.mutable_summary()->mutable_speculation()->set_accepted_tokens(900);
  Run(options, {Started(1), Finished(0, v1::FINISH_REASON_EOS), summary});
  EXPECT_EQ(err_.str(), "tlm: 5 prompt + 0 tokens, EOS, 900 of 1,200 guesses right\n");
}

TEST_F(GenerateOutputTest, PrintsStatisticsOfAnEmptyOutput) {
  GenerateOutputOptions options;
  options.stats = true;
  Run(options, {Started(1), Finished(0, v1::FINISH_REASON_EOS), Summary(5, 0)});
  EXPECT_EQ(err_.str(), "tlm: 5 prompt + 0 tokens, EOS\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(GenerateOutputTest, PrintsTokenTable) {
  GenerateOutputOptions options;
  options.logprobs = true;
  Run(options, TwoTokens());
  EXPECT_EQ(out_.str(),
            "Once upon\n"
            "position  id  logprob  rank  token    alternatives\n"
            "       5  10  -1.2500     2  \"Once\"\n"
            "       6  11  -1.2500     2  \" upon\"\n");
}

TEST_F(GenerateOutputTest, DisarmsControlCharactersOnTerminalsOnly) {
  const std::vector<v1::GenerateResponse> events = {
      Started(1), Tokens(0, "\x1b[2J\n", 1), Finished(0, v1::FINISH_REASON_EOS), Summary(1, 1)};
  Run({}, events);
  EXPECT_EQ(out_.str(), "\x1b[2J\n");
  out_.str("");
  console_.out_is_terminal = true;
  Run({}, events);
  EXPECT_EQ(out_.str(), "\\x1b[2J\n");
}

TEST_F(GenerateOutputTest, NoticesIncompleteStream) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  ASSERT_TRUE(output.Add(Started(1), absl::UnixEpoch()).ok());
  EXPECT_EQ(output.Finish().code(), absl::StatusCode::kInternal);
}

TEST(ReasonNameTest, NamesReasons) {
  EXPECT_EQ(ReasonName(v1::FINISH_REASON_CONTEXT_LENGTH), "CONTEXT_LENGTH");
  EXPECT_EQ(ReasonName(static_cast<v1::FinishReason>(99)), "unknown");
}

}  // namespace
}  // namespace tlm::cli
