#include "client/cpp/generate_collector.h"

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
