// Generate calls that continue what another replica began.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

class GenerateResumeTest : public GenerateTest {
 protected:
  GenerateResumeTest() {
    Merge(R"(sampling { seed: 3 } resume { fingerprint: "f00d" } output { token_ids: true })",
          request_);
  }
  void Received(std::string_view text) {
    for (const int32_t id : ByteIds(text)) {
      request_.mutable_resume()->add_generated_token_ids(static_cast<uint32_t>(id));
    }
  }
};

TEST_F(GenerateResumeTest, ContinuesBehindTheTokensReceived) {
  Received("ab");
  Start();
  EXPECT_THAT(engine_.WaitForRequest().generate()->generated, ElementsAre('a', 'b'));
  PushStart();
  PushText("c");
  EXPECT_EQ(Read().started().prompt_token_count(), 5u);
  const v1::GenerateTokens event = Read().tokens();
  EXPECT_EQ(event.position(), 7u);
  EXPECT_EQ(event.text(), "c");
  ASSERT_EQ(event.tokens_size(), 1);
  ReadToTheEndAfter();
  EXPECT_EQ(summary_.usage().completion_tokens(), 3u);
}

TEST_F(GenerateResumeTest, WhatWasReceivedIsNotComputedForTokensButAsAPrompt) {
  Received("abc");
  request_.mutable_output()->set_resource_usage(true);
  Start();
  streams_[0]->PushStart({.queue_time = absl::ZeroDuration(), .cached_prompt_tokens = 4});
  PushText("de");
  ReadToTheEndAfter();
  // Positions 4 .. 8 of prompt and output; the tokens drawn from 7 and 8.
  EXPECT_EQ(summary_.resources().flops(),
            5 * kLayerFlops + (5 + 6 + 7 + 8 + 9) * kAttentionFlops + 2 * kHeadFlops);
  EXPECT_EQ(summary_.usage().cached_prompt_tokens(), 4u);
}

TEST_F(GenerateResumeTest, AStreamThatLackedOnlyItsEnd) {
  Received("abc");
  request_.mutable_stopping()->set_max_new_tokens(3);
  request_.mutable_output()->set_timing(true);
  request_.mutable_output()->set_resource_usage(true);
  Start();
  // Nothing is left to compute.
  ReadToTheEndAfter();
  EXPECT_THAT(kinds_, ElementsAre(Event::kStarted, Event::kFinished, Event::kSummary));
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(summary_.usage().completion_tokens(), 3u);
  EXPECT_FALSE(summary_.timing().has_first_token());
  EXPECT_EQ(summary_.resources().flops(), 0u);
}

TEST_F(GenerateResumeTest, AStopStringAmongTheTokensReceivedEndsItWithoutTheEngine) {
  Received("abSTOP");
  request_.mutable_stopping()->add_stop_strings("STOP");
  request_.mutable_stopping()->set_include_stop_in_output(true);
  Start();
  EXPECT_TRUE(stream_->detached());
  ReadToTheEndAfter(FailedWith(Cancelled("detached")));
  EXPECT_THAT(kinds_, ElementsAre(Event::kStarted, Event::kFinished, Event::kSummary));
  EXPECT_EQ(finished_.front().stop_string(), "STOP");
  EXPECT_EQ(summary_.usage().completion_tokens(), 6u);
}

TEST_F(GenerateResumeTest, IdsBehindAStopStringNameTheField) {
  Received("abSTOPc");
  request_.mutable_stopping()->add_stop_strings("STOP");
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldIn(status), "resume.generated_token_ids");
  EXPECT_EQ(engine_.submitted(), 0);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm
