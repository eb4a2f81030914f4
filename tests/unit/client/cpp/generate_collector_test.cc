#include "client/cpp/generate_collector.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/proto.h"

namespace tlm::client {
namespace {

absl::Status Add(GenerateCollector& collector, const std::string& event) {
  return collector.Add(Proto<v1::GenerateResponse>(event));
}
void AddAll(GenerateCollector& collector, const std::vector<std::string>& events) {
  for (const std::string& event : events) ASSERT_TRUE(Add(collector, event).ok()) << event;
}

constexpr char kOneStarted[] = "started { effective { num_sequences: 1 } }";
constexpr char kTwoStarted[] = "started { effective { num_sequences: 2 } }";
constexpr char kSummary[] = "summary { usage { completion_tokens: 3 } }";
std::string Tokens(int output, const std::string& text, int id) {
  return "tokens { output_index: " + std::to_string(output) + " text: '" + text +
         "' tokens { id: " + std::to_string(id) + " } }";
}
std::string Finished(int64_t output) {
  return "finished { output_index: " + std::to_string(output) + " reason: FINISH_REASON_STOP }";
}

TEST(GenerateCollectorTest, KeepsInterleavedOutputsApart) {
  GenerateCollector collector;
  AddAll(collector, {kTwoStarted, Tokens(0, "a", 1), Tokens(1, "x", 2), Tokens(0, "b", 3),
                     Finished(1), Finished(0), kSummary});
  ASSERT_TRUE(collector.CheckComplete().ok());
  const GenerateResult result = collector.TakeResult();
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_EQ(result.outputs[0].text, "ab");
  EXPECT_EQ(result.outputs[0].content, "ab") << "no region is known";
  EXPECT_EQ(result.outputs[0].tokens.at(1).id(), 3u);
  EXPECT_EQ(result.outputs[1].text, "x");
  EXPECT_EQ(result.outputs[1].finished.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.summary.usage().completion_tokens(), 3u);
}

constexpr char kThought[] = R"(tokens { text: "nk>Add"
  regions { marker: "<think>" }
  regions { started { region_index: 0 kind: REGION_KIND_REASONING } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "Add" } } })";
constexpr char kSaid[] = R"(tokens { text: ".</think>So"
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "." } }
  regions { finished { region_index: 0 kind: REGION_KIND_REASONING complete: true } }
  regions { marker: "</think>" }
  regions { started { region_index: 1 kind: REGION_KIND_TEXT } }
  regions { delta { region_index: 1 kind: REGION_KIND_TEXT text: "So" } }
  regions { finished { region_index: 1 kind: REGION_KIND_TEXT complete: true } } })";
constexpr char kCalled[] = R"(tokens { text: "<call>12{"
  regions { marker: "<call>" }
  regions { started { region_index: 2 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 0 id: "id0" name: "add" } } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "1" arguments_json: "[1" } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "2" arguments_json: "]" } }
  regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } }
  regions { started { region_index: 3 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 1 id: "id1" name: "look" } } }
  regions { delta { region_index: 3 kind: REGION_KIND_TOOL_CALL text: "{"
                    arguments_json: "{" } } })";
constexpr char kCut[] = R"(finished { reason: FINISH_REASON_STOP
  regions { delta { region_index: 3 kind: REGION_KIND_TOOL_CALL arguments_json: '"a"' } }
  regions { finished { region_index: 3 kind: REGION_KIND_TOOL_CALL } } })";

TEST(GenerateCollectorTest, TellsRegionsApart) {
  GenerateCollector collector;
  AddAll(collector, {kOneStarted, "tokens { text: '<thi' }", kThought, kSaid, kCalled});
  const Output& output = collector.result().outputs[0];
  EXPECT_EQ(output.text, "<think>Add.</think>So<call>12{");
  EXPECT_EQ(output.reasoning, "Add.");
  EXPECT_EQ(output.content, "So");
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].id, "id0");
  EXPECT_EQ(output.tool_calls[0].name, "add");
  EXPECT_EQ(output.tool_calls[0].arguments_json, "[1]");
  EXPECT_TRUE(output.tool_calls[0].complete);
  AddAll(collector, {kCut});
  EXPECT_EQ(output.tool_calls[1].name, "look");
  EXPECT_EQ(output.tool_calls[1].arguments_json, "{\"a\"");
  EXPECT_FALSE(output.tool_calls[1].complete);
}

TEST(GenerateCollectorTest, TakesStreamsResumedWithinACall) {
  GenerateCollector collector;
  AddAll(collector, {kOneStarted, R"(tokens { text: "2]"
      regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL arguments_json: "2" } }
      regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL arguments_json: "]" } }
      regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } } })"});
  const Output& output = collector.result().outputs[0];
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].id, "");
  EXPECT_EQ(output.tool_calls[0].arguments_json, "2]");
  EXPECT_TRUE(output.tool_calls[0].complete);
}

TEST(GenerateCollectorTest, RefusesOutputsNotAnnounced) {
  constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;
  GenerateCollector collector;
  EXPECT_EQ(Add(collector, Tokens(0, "a", 1)).code(), kInternal);
  AddAll(collector, {kOneStarted});
  EXPECT_EQ(Add(collector, Tokens(1, "a", 1)).code(), kInternal);
  EXPECT_EQ(Add(collector, Finished(4'000'000'000)).code(), kInternal);
  GenerateCollector absurd;
  EXPECT_EQ(Add(absurd, "started { effective { num_sequences: 4000000000 } }").code(), kInternal);
}

TEST(GenerateCollectorTest, IgnoresEventsOfNewerServers) {
  GenerateCollector collector;
  AddAll(collector, {""});
}

TEST(GenerateCollectorTest, NoticesStreamsThatAreNotComplete) {
  GenerateCollector collector;
  EXPECT_FALSE(collector.CheckComplete().ok());
  AddAll(collector, {kTwoStarted, Finished(0), kSummary});
  EXPECT_FALSE(collector.CheckComplete().ok());
  AddAll(collector, {Finished(1)});
  EXPECT_TRUE(collector.CheckComplete().ok());
}

}  // namespace
}  // namespace tlm::client
