#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tests/unit/server/rpc/language_model/unary_call_fixture.h"

namespace tlm {
namespace {

class ScoreHandlerTest : public UnaryCallTest<v1::ScoreRequest, v1::ScoreResponse> {
 protected:
  ScoreHandlerTest() : UnaryCallTest(&v1::LanguageModel::Stub::Score) {
    request_.set_prompt("ab");
    request_.set_add_special_tokens(false);
    request_.add_continuations()->set_text("cd");
    request_.add_continuations()->set_text("e");
  }
  void PushScored(int64_t continuation, int32_t id, float logprob, uint32_t rank) {
    SampledToken token;
    token.id = id;
    token.score = ScoredToken{id, logprob, rank};
    stream_->PushScored({continuation, token});
  }
};

TEST_F(ScoreHandlerTest, SumsEachContinuation) {
  request_.set_request_id("mine");
  request_.set_top_logprobs(2);
  Start();
  const Request& queued = engine_.WaitForRequest();
  EXPECT_EQ(queued.prompt, ByteIds("ab"));
  ASSERT_TRUE(queued.score() != nullptr);
  EXPECT_EQ(queued.score()->continuations.size(), 2u);
  EXPECT_EQ(queued.score()->top, 2u);
  stream_->PushStart({.queue_time = absl::Milliseconds(1), .cached_prompt_tokens = 1});
  PushScored(0, 'c', -0.5f, 1);
  FakeEngine::Deliver(*stream_);
  PushScored(1, 'e', -2.0f, 3);
  PushScored(0, 'd', -0.25f, 1);
  PushEnd();
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(response_.request_id(), "mine");
  EXPECT_EQ(response_.fingerprint(), "f00d");
  EXPECT_EQ(response_.usage().prompt_tokens(), 5u);
  EXPECT_EQ(response_.usage().cached_prompt_tokens(), 1u);
  EXPECT_EQ(response_.usage().completion_tokens(), 0u);
  ASSERT_EQ(response_.scores_size(), 2);
  const v1::ContinuationScore& first = response_.scores(0);
  EXPECT_EQ(first.sum_logprob(), -0.75);
  EXPECT_EQ(first.token_count(), 2u);
  EXPECT_TRUE(first.is_greedy());
  EXPECT_EQ(first.tokens(1).id(), static_cast<uint32_t>('d'));
  EXPECT_EQ(first.tokens(1).bytes(), "d");
  EXPECT_EQ(first.tokens(1).logprob(), -0.25f);
  EXPECT_EQ(first.tokens(1).rank(), 1u);
  EXPECT_EQ(response_.scores(1).sum_logprob(), -2.0);
  EXPECT_FALSE(response_.scores(1).is_greedy());
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(ScoreHandlerTest, AFaultEndsTheCallWithItsStatus) {
  Start();
  stream_->PushStart({});
  PushScored(0, 'c', -0.5f, 1);
  PushEnd(DataLoss("non-finite logits"));
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status_.error_message(), "non-finite logits");
}

TEST_F(ScoreHandlerTest, AnInvalidFieldIsNamed) {
  request_.clear_continuations();
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "continuations");
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(ScoreHandlerTest, ARefusedRequestTellsWhy) {
  engine_.set_submit_status(WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"));
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "QUEUE_FULL");
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(ScoreHandlerTest, CancelLetsGoOfTheSequenceAndOfTheId) {
  request_.set_request_id("mine");
  Start();
  context_->TryCancel();
  engine_.WaitUntilDetached(*stream_);
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  // Results of a call that is over are ignored.
  PushScored(0, 'c', -0.5f, 1);
  PushEnd(Cancelled("detached"));
  Start(1);
  PushEnd();
  EXPECT_TRUE(Finish().ok());
}

TEST_F(ScoreHandlerTest, APassedDeadlineLetsGoOfTheSequence) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  const grpc::Status status = Call(context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(ScoreHandlerTest, ADeadlineThatOnlyTheServerKnowsHasItsReason) {
  const grpc::Status status = ExpiredStatusOf(
      [this](const std::unique_ptr<grpc::ClientContext>& context) { return Call(*context); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonIn(status), "EXPIRED_IN_QUEUE");
}

TEST_F(ScoreHandlerTest, AFullEngineRefusesBeforeTheRequestIsRead) {
  engine_.set_open_status(WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"));
  request_.clear_continuations();  // not looked at
  EXPECT_EQ(ReasonIn(Refusal()), "QUEUE_FULL");
}

TEST_F(ScoreHandlerTest, SurvivesCancellationAtAnyMoment) {
  for (size_t round = 0; round < 100; ++round) {
    Start(round);
    std::thread engine_side([this] {
      stream_->PushStart({});
      FakeEngine::Deliver(*stream_);
      PushScored(0, 'c', -0.5f, 1);
      FakeEngine::Deliver(*stream_);
      PushEnd();
    });
    if (round % 2 == 0) context_->TryCancel();
    engine_side.join();
    context_->TryCancel();
    Finish();
  }
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm
