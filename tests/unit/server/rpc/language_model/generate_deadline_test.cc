// Generate calls that run out of time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "model/base/errors.h"
#include "server/rpc/call/deadline_timer.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

class GenerateDeadlineTest : public GenerateTest {
 protected:
  void Begin(std::unique_ptr<grpc::ClientContext> context) {
    streams_.resize(1);
    Call(std::move(context));
  }
};

TEST(AnswerByTest, LeavesTheAnswerTimeToArrive) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_EQ(AnswerBy(now + absl::Seconds(100), now), now + absl::Milliseconds(99'950));
  EXPECT_EQ(AnswerBy(now + absl::Milliseconds(100), now), now + absl::Milliseconds(95));
  EXPECT_EQ(AnswerBy(now - absl::Seconds(1), now), now - absl::Seconds(1));
  EXPECT_EQ(AnswerBy(absl::InfiniteFuture(), now), absl::InfiniteFuture());
}

TEST_F(GenerateDeadlineTest, ExpiredWhileRunningKeepsWhatWasSentAndTellsTheUsage) {
  const grpc::Status status = ExpiredStatusOf([this](std::unique_ptr<grpc::ClientContext> context) {
    const auto index = static_cast<size_t>(engine_.submitted());
    Begin(std::move(context));
    streams_[0] = engine_.WaitForRequest(index).stream;
    PushStart();
    PushText("ab");
    return ReadToTheEnd();
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonIn(status), "EXPIRED_RUNNING");
  EXPECT_EQ(texts_[0], "ab");
  EXPECT_EQ(Trailer("tlm-completion-tokens"), "2");
  engine_.WaitUntilDetached(*streams_[0]);
}

// The timer, gRPC's own cancellation, wake-ups and the end race in every order.
TEST_F(GenerateDeadlineTest, SurvivesADeadlineAtAnyMoment) {
  std::thread engine_side([this] {
    for (size_t i = 0; Request* const request = engine_.WaitForRequestOrStop(i); ++i) {
      TokenStream& stream = *request->stream;
      stream.PushStart({});
      for (int n = 0; n < 10; ++n) {
        stream.PushToken(Token('a'));
        FakeEngine::Deliver(stream);
      }
      stream.PushEnd(EndedWith(FinishReason::kLength));
      FakeEngine::Deliver(stream);
    }
  });
  for (int round = 0; round < 200; ++round) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("grpc-timeout", std::to_string(100 + round * 10) + "u");
    Begin(std::move(context));
    ReadToTheEnd();
  }
  engine_.Stop();
  engine_side.join();
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(GenerateDeadlineTest, TheEngineIsToldToBeDoneBeforeTheDeadline) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const absl::Time deadline = Clock::Monotonic()->Now() + absl::Hours(1);
  Begin(std::move(context));
  EXPECT_LT(engine_.WaitForRequest().deadline, deadline);
  EXPECT_GT(engine_.WaitForRequest().deadline, deadline - absl::Minutes(1));
  EXPECT_EQ(engine_.WaitForRequest().soft_deadline, absl::InfiniteFuture());
}

TEST_F(GenerateDeadlineTest, TheSoftLimitReachesTheEngine) {
  request_.mutable_scheduling()->mutable_soft_time_limit()->set_seconds(3600);
  const absl::Time before = Clock::Monotonic()->Now();
  Start();
  const absl::Time limit = engine_.WaitForRequest().soft_deadline;
  EXPECT_GE(limit, before + absl::Hours(1));
  EXPECT_LE(limit, Clock::Monotonic()->Now() + absl::Hours(1));
  EXPECT_EQ(engine_.WaitForRequest().deadline, absl::InfiniteFuture());
}

TEST_F(GenerateDeadlineTest, ASoftLimitInTheQueueEndsTheOutputWithoutTokens) {
  request_.mutable_output()->set_timing(true);
  request_.mutable_output()->set_resource_usage(true);
  Start();
  StreamEnd end;
  end.reason = FinishReason::kTimeLimit;
  end.queue_time = absl::Milliseconds(40);
  PushEnd(end);
  const v1::GenerateResponse started = Read();
  EXPECT_EQ(started.started().queue_time().nanos(), 40'000'000);
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(kinds_, ElementsAre(Event::kFinished, Event::kSummary));
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_THAT(summary_, IsProto(R"(
      usage { prompt_tokens: 5 } resources {} speculation {}
      timing { queue { nanos: 40000000 } prefill {} decode {} total { nanos: 40000000 } })"));
}

TEST_F(GenerateDeadlineTest, ASoftLimitWithinThePromptCostsWhatWasComputedOfIt) {
  request_.mutable_output()->set_resource_usage(true);
  Start();
  streams_[0]->PushStart({.queue_time = absl::ZeroDuration(), .cached_prompt_tokens = 2});
  StreamEnd end = EndedWith(FinishReason::kTimeLimit);
  end.computed_prompt_tokens = 4;
  ReadToTheEndAfter(end);
  EXPECT_EQ(summary_.resources().flops(), 2 * kLayerFlops + (3 + 4) * kAttentionFlops);
}

}  // namespace
}  // namespace tlm
