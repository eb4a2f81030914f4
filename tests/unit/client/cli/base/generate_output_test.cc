#include "client/cli/base/generate_output.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/escaping.h"
#include "tests/support/proto.h"

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

  static void Add(GenerateOutput& output, const std::vector<v1::GenerateResponse>& events) {
    for (const auto& event : events) ASSERT_TRUE(output.Add(event, absl::UnixEpoch()).ok());
  }

  static v1::GenerateResponse Event(const std::string& text) {
    return Proto<v1::GenerateResponse>(text);
  }
  static v1::GenerateResponse Started(uint32_t outputs) {
    return Event(fmt::format(
        "started {{ effective {{ num_sequences: {} }} prompt_token_count: 5 }}", outputs));
  }
  static v1::GenerateResponse Tokens(uint32_t output, const std::string& text, uint32_t id) {
    return Event(
        fmt::format("tokens {{ output_index: {0} text: '{1}' tokens {{ id: {2} bytes: "
                    "'{1}' logprob: -1.25 rank: 2 }} }}",
                    output, absl::CEscape(text), id));
  }
  static v1::GenerateResponse Finished(uint32_t output, v1::FinishReason reason) {
    return Event(fmt::format("finished {{ output_index: {} reason: {} }}", output,
                             static_cast<int>(reason)));
  }
  static v1::GenerateResponse Summary(uint64_t prompt, uint64_t completion,
                                      const std::string& more = "") {
    return Event(fmt::format("summary {{ usage {{ prompt_tokens: {} completion_tokens: {} }} {} }}",
                             prompt, completion, more));
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
  Add(output, {Started(1), Tokens(0, "Once", 10)});
  EXPECT_EQ(out_.str(), "Once");
  output.Abandon();
  EXPECT_EQ(out_.str(), "Once\n");
}

constexpr char kThought[] = R"(tokens { text: "<think>Add it."
  regions { marker: "<think>" }
  regions { started { region_index: 0 kind: REGION_KIND_REASONING } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "Add" } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: " it." } } })";
constexpr char kSaid[] = R"(tokens { text: "</think>I add."
  regions { finished { region_index: 0 kind: REGION_KIND_REASONING complete: true } }
  regions { marker: "</think>" }
  regions { started { region_index: 1 kind: REGION_KIND_TEXT } }
  regions { delta { region_index: 1 kind: REGION_KIND_TEXT text: "I add." } }
  regions { finished { region_index: 1 kind: REGION_KIND_TEXT complete: true } } })";
constexpr char kCalling[] = R"(tokens { text: "<call>{"
  regions { marker: "<call>" }
  regions { started { region_index: 2 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 0 id: "id0" name: "add" } } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "{"
                    arguments_json: "{" } } })";
constexpr char kCalled[] = R"(tokens { text: "}"
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "}" arguments_json: "}" } }
  regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } } })";

TEST_F(GenerateOutputTest, DimsReasoningAtATerminal) {
  console_.out_is_terminal = true;
  const v1::GenerateResponse end = Event(R"(finished { reason: FINISH_REASON_LENGTH
      regions { finished { kind: REGION_KIND_TOOL_CALL } } })");
  Run({.regions = true},
      {Started(1), Event(kThought), Event(kSaid), Event(kCalling), end, Summary(5, 3)});
  EXPECT_EQ(out_.str(), "\x1b[2mAdd\x1b[0m\x1b[2m it.\x1b[0m\nI add.\n\x1b[1madd\x1b[0m({\n");
}

TEST_F(GenerateOutputTest, ShowsCallsWhileTheyGrow) {
  GenerateOutput output({.regions = true}, absl::UnixEpoch(), &console_);
  Add(output, {Started(1), Event(kCalling)});
  EXPECT_EQ(out_.str(), "add({");
}

TEST_F(GenerateOutputTest, PrintsEachOutputAsSoonAsItIsFinished) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  Add(output,
      {Started(3), Tokens(0, "a", 1), Tokens(2, "c", 1), Finished(2, v1::FINISH_REASON_EOS)});
  EXPECT_EQ(out_.str(), "");
  Add(output, {Finished(0, v1::FINISH_REASON_EOS)});
  EXPECT_EQ(out_.str(), "[0]\na\n");
  Add(output, {Finished(1, v1::FINISH_REASON_EOS)});
  EXPECT_EQ(out_.str(), "[0]\na\n[1]\n[2]\nc\n");
}

TEST_F(GenerateOutputTest, PrintsWhatHasComeOfSeveralOutputsWhenAbandoned) {
  GenerateOutput output({}, absl::UnixEpoch(), &console_);
  Add(output,
      {Started(2), Tokens(1, "x", 1), Finished(1, v1::FINISH_REASON_EOS), Tokens(0, "a", 1)});
  output.Abandon();
  EXPECT_EQ(out_.str(), "[0]\na\n[1]\nx\n");
}

TEST_F(GenerateOutputTest, PrintsPromptTableFirst) {
  std::vector<v1::GenerateResponse> events = TwoTokens();
  events.insert(events.begin() + 1, Event(R"(
      prompt { tokens { id: 7 } tokens { id: 8 bytes: "b" logprob: -2 rank: 3 } })"));
  Run({}, events);
  EXPECT_EQ(out_.str(),
            "position  id  logprob  rank  token  alternatives\n"
            "       0   7        -     -  \"\"\n"
            "       1   8  -2.0000     3  \"b\"\n"
            "Once upon\n");
}

TEST_F(GenerateOutputTest, PrintsStatistics) {
  const v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_EOS);
  const std::pair<std::vector<v1::GenerateResponse>, std::string> kCases[] = {
      // Two tokens until 30 ms after the start, the first of them after 20 ms.
      {TwoTokens(), "5 prompt + 2 tokens, LENGTH, 66.7 tok/s, TTFT 20.0 ms"},
      {{Started(1), end, Summary(5, 0)}, "5 prompt + 0 tokens, EOS"},
      {{Started(1), end,
        Summary(5, 0, "speculation { drafted_tokens: 1200 accepted_tokens: 900 }")},
       "5 prompt + 0 tokens, EOS, 900 of 1,200 guesses right"},
      {{Started(2), end, Finished(1, v1::FINISH_REASON_LENGTH),
        Summary(5, 0, R"(timing { queue { nanos: 1500000 } prefill { nanos: 20000000 }
                                  decode { seconds: 1 } })")},
       "5 prompt + 0 tokens, EOS LENGTH (server: queue 1.5 ms, prefill 20.0 ms, decode 1000.0 "
       "ms)"}};
  for (const auto& [events, line] : kCases) {
    err_.str("");
    Run({.stats = true}, events);
    EXPECT_EQ(err_.str(), "tlm: " + line + "\n");
  }
}

TEST_F(GenerateOutputTest, PrintsOutputsAsAsked) {
  const v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_EOS);
  const struct {
    const char* what;
    GenerateOutputOptions options;
    std::vector<v1::GenerateResponse> events;
    const char* text;
  } kCases[] = {
      {"regions",
       {.regions = true},
       {Started(1), Event(kThought), Event(kSaid), Event(kCalling), Event(kCalled), end,
        Summary(5, 4)},
       "<reasoning>\nAdd it.\n</reasoning>\nI add.\nadd({})\n"},
      {"text of a server that tells no regions", {.regions = true}, TwoTokens(), "Once upon\n"},
      {"no second line end",
       {},
       {Started(1), Tokens(0, "line\n", 1), end, Summary(1, 1)},
       "line\n"},
      {"ids when asked", {.ids = true}, TwoTokens(), "10,11\n"},
      {"ids when there is no text",
       {},
       {Started(1), Tokens(0, "", 10), Tokens(0, "", 11), end, Summary(5, 2)},
       "10,11\n"},
      {"several outputs in their order",
       {},
       {Started(2), Tokens(1, "x", 1), Tokens(0, "a", 2), Tokens(1, "y", 3),
        Finished(1, v1::FINISH_REASON_EOS), end, Summary(5, 3)},
       "[0]\na\n[1]\nxy\n"},
      {"a table of tokens",
       {.logprobs = true},
       TwoTokens(),
       "Once upon\n"
       "position  id  logprob  rank  token    alternatives\n"
       "       5  10  -1.2500     2  \"Once\"\n"
       "       6  11  -1.2500     2  \" upon\"\n"},
      {"nothing of an empty output", {}, {Started(1), end, Summary(5, 0)}, ""}};
  for (const auto& [what, options, events, text] : kCases) {
    out_.str("");
    Run(options, events);
    EXPECT_EQ(out_.str(), text) << what;
  }
  EXPECT_EQ(err_.str(), "");
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
  Add(output, {Started(1)});
  EXPECT_EQ(output.Finish().code(), absl::StatusCode::kInternal);
}

TEST(ReasonNameTest, NamesReasons) {
  EXPECT_EQ(ReasonName(v1::FINISH_REASON_CONTEXT_LENGTH), "CONTEXT_LENGTH");
  EXPECT_EQ(ReasonName(static_cast<v1::FinishReason>(99)), "unknown");
}

}  // namespace
}  // namespace tlm::cli
