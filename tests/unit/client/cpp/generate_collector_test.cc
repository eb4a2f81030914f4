#include "client/cpp/generate_collector.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace tlm::client {
namespace {

v1::GenerateResponse Started(uint32_t outputs) {
  v1::GenerateResponse event;
  event.mutable_started()->mutable_effective()->set_num_sequences(outputs);
  return event;
}

v1::GenerateResponse Tokens(uint32_t output, const std::string& text, uint32_t id) {
  v1::GenerateResponse event;
  event.mutable_tokens()->set_output_index(output);
  event.mutable_tokens()->set_text(text);
  event.mutable_tokens()->add_tokens()->set_id(id);
  return event;
}

v1::GenerateResponse Finished(uint32_t output) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_output_index(output);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
  return event;
}

v1::GenerateResponse Summary() {
  v1::GenerateResponse event;
  event.mutable_summary()->mutable_usage()->set_completion_tokens(3);
  return event;
}

TEST(GenerateCollectorTest, KeepsInterleavedOutputsApart) {
  GenerateCollector collector;
  for (const v1::GenerateResponse& event :
       {Started(2), Tokens(0, "a", 1), Tokens(1, "x", 2), Tokens(0, "b", 3), Finished(1),
        Finished(0), Summary()}) {
    ASSERT_TRUE(collector.Add(event).ok());
  }
  ASSERT_TRUE(collector.CheckComplete().ok());
  const GenerateResult result = collector.TakeResult();
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_EQ(result.outputs[0].text, "ab");
  EXPECT_EQ(result.outputs[0].tokens.at(1).id(), 3u);
  EXPECT_EQ(result.outputs[1].text, "x");
  EXPECT_EQ(result.outputs[1].finished.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.summary.usage().completion_tokens(), 3u);
}

// An event with text and region events, those in the text format of Protobuf.
v1::GenerateResponse Regions(const std::string& text, const std::string& regions) {
  v1::GenerateResponse event;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(regions, event.mutable_tokens()));
  event.mutable_tokens()->set_text(text);
  return event;
}

constexpr char kThought[] = R"(
  regions { marker: "<think>" }
  regions { started { region_index: 0 kind: REGION_KIND_REASONING } }
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "Add" } })";
constexpr char kSaid[] = R"(
  regions { delta { region_index: 0 kind: REGION_KIND_REASONING text: "." } }
  regions { finished { region_index: 0 kind: REGION_KIND_REASONING complete: true } }
  regions { marker: "</think>" }
  regions { started { region_index: 1 kind: REGION_KIND_TEXT } }
  regions { delta { region_index: 1 kind: REGION_KIND_TEXT text: "So" } }
  regions { finished { region_index: 1 kind: REGION_KIND_TEXT complete: true } })";
constexpr char kCalled[] = R"(
  regions { marker: "<call>" }
  regions { started { region_index: 2 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 0 id: "id0" name: "add" } } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "1" arguments_json: "[1" } }
  regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL text: "2" arguments_json: "]" } }
  regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } }
  regions { started { region_index: 3 kind: REGION_KIND_TOOL_CALL
                      tool_call { index: 1 id: "id1" name: "look" } } }
  regions { delta { region_index: 3 kind: REGION_KIND_TOOL_CALL text: "{" arguments_json: "{" } })";

TEST(GenerateCollectorTest, TellsRegionsApart) {
  GenerateCollector collector;
  v1::GenerateResponse finished = Finished(0);
  v1::RegionEvent::Delta& rest = *finished.mutable_finished()->add_regions()->mutable_delta();
  rest.set_region_index(3);
  rest.set_kind(v1::REGION_KIND_TOOL_CALL);
  rest.set_arguments_json("\"a\"");
  v1::RegionEvent::Finished& end = *finished.mutable_finished()->add_regions()->mutable_finished();
  end.set_region_index(3);
  end.set_kind(v1::REGION_KIND_TOOL_CALL);
  for (const v1::GenerateResponse& event :
       {Started(1), Regions("<thi", ""), Regions("nk>Add", kThought), Regions(".</think>So", kSaid),
        Regions("<call>12{", kCalled)}) {
    ASSERT_TRUE(collector.Add(event).ok());
  }
  const Output& output = collector.result().outputs[0];
  EXPECT_EQ(output.text, "<think>Add.</think>So<call>12{");
  EXPECT_EQ(output.reasoning, "Add.");
  EXPECT_EQ(output.content, "So");
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].id, "id0");
  EXPECT_EQ(output.tool_calls[0].name, "add");
  EXPECT_EQ(output.tool_calls[0].arguments_json, "[1]");
  EXPECT_TRUE(output.tool_calls[0].complete);
  ASSERT_TRUE(collector.Add(finished).ok());
  EXPECT_EQ(output.tool_calls[1].name, "look");
  EXPECT_EQ(output.tool_calls[1].arguments_json, "{\"a\"");
  EXPECT_FALSE(output.tool_calls[1].complete);
}

TEST(GenerateCollectorTest, ContentIsTheTextWhereNoRegionIsKnown) {
  GenerateCollector collector;
  for (const v1::GenerateResponse& event : {Started(1), Tokens(0, "a", 1), Tokens(0, "b", 2)}) {
    ASSERT_TRUE(collector.Add(event).ok());
  }
  EXPECT_EQ(collector.result().outputs[0].content, "ab");
}

TEST(GenerateCollectorTest, TakesStreamsResumedWithinACall) {
  GenerateCollector collector;
  ASSERT_TRUE(collector.Add(Started(1)).ok());
  ASSERT_TRUE(collector
                  .Add(Regions("2]", R"(
      regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL arguments_json: "2" } }
      regions { delta { region_index: 2 kind: REGION_KIND_TOOL_CALL arguments_json: "]" } }
      regions { finished { region_index: 2 kind: REGION_KIND_TOOL_CALL complete: true } })"))
                  .ok());
  const Output& output = collector.result().outputs[0];
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].id, "");
  EXPECT_EQ(output.tool_calls[0].arguments_json, "2]");
  EXPECT_TRUE(output.tool_calls[0].complete);
}

TEST(GenerateCollectorTest, RefusesOutputsNotAnnounced) {
  GenerateCollector collector;
  EXPECT_EQ(collector.Add(Tokens(0, "a", 1)).code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(collector.Add(Started(1)).ok());
  EXPECT_EQ(collector.Add(Tokens(1, "a", 1)).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(collector.Add(Finished(4'000'000'000u)).code(), absl::StatusCode::kInternal);
}

TEST(GenerateCollectorTest, RefusesAbsurdNumberOfOutputs) {
  GenerateCollector collector;
  EXPECT_EQ(collector.Add(Started(4'000'000'000u)).code(), absl::StatusCode::kInternal);
}

TEST(GenerateCollectorTest, IgnoresEventsOfNewerServers) {
  GenerateCollector collector;
  EXPECT_TRUE(collector.Add(v1::GenerateResponse()).ok());
}

TEST(GenerateCollectorTest, NoticesStreamsThatAreNotComplete) {
  GenerateCollector collector;
  EXPECT_FALSE(collector.CheckComplete().ok());
  ASSERT_TRUE(collector.Add(Started(2)).ok());
  ASSERT_TRUE(collector.Add(Finished(0)).ok());
  ASSERT_TRUE(collector.Add(Summary()).ok());
  EXPECT_FALSE(collector.CheckComplete().ok());
  ASSERT_TRUE(collector.Add(Finished(1)).ok());
  EXPECT_TRUE(collector.CheckComplete().ok());
}

}  // namespace
}  // namespace tlm::client
