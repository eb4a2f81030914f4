#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <thread>

#include "tests/unit/server/rpc/language_model/unary_call_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class VerifyHandlerTest : public UnaryCallTest<v1::VerifyRequest, v1::VerifyResponse> {
 protected:
  VerifyHandlerTest() : UnaryCallTest(&v1::LanguageModel::Stub::Verify) {
    original().set_prompt("ab");
    original().set_add_special_tokens(false);
    original().mutable_sampling()->set_seed(7);
    Claim("cde");
  }
  v1::GenerateRequest& original() { return *request_.mutable_request(); }
  void Claim(std::string_view text) {
    request_.clear_claimed_token_ids();
    for (const int32_t id : ByteIds(text)) {
      request_.add_claimed_token_ids(static_cast<uint32_t>(id));
    }
  }
  void PushText(std::string_view text) {
    for (const int32_t id : ByteIds(text)) {
      SampledToken token;
      token.id = id;
      stream_->PushToken(token);
    }
  }
};

TEST_F(VerifyHandlerTest, ComparesWhatTheEngineDraws) {
  request_.set_request_id("mine");
  request_.set_output_index(1);
  original().mutable_sampling()->set_num_sequences(2);
  original().mutable_cache()->set_cache_salt("salt");
  const Request& queued = Start();
  EXPECT_EQ(queued.id, "mine");
  EXPECT_EQ(queued.prompt, ByteIds("ab"));
  EXPECT_EQ(queued.cache.salt, "salt");
  EXPECT_TRUE(queued.branch_streams.empty());
  ASSERT_TRUE(queued.generate() != nullptr);
  EXPECT_EQ(queued.generate()->claimed, ByteIds("cde"));
  EXPECT_EQ(queued.generate()->output_index, 1u);
  EXPECT_EQ(queued.generate()->sampling.seed, 7u);
  stream_->PushStart({.queue_time = absl::Milliseconds(1), .cached_prompt_tokens = 1});
  PushText("cd");
  FakeEngine::Deliver(*stream_);
  PushText("e");
  PushEnd();
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(response_.request_id(), "mine");
  EXPECT_EQ(response_.fingerprint(), "f00d");
  EXPECT_TRUE(response_.verified());
  EXPECT_EQ(response_.verified_token_count(), 3u);
  EXPECT_EQ(response_.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(response_.usage().prompt_tokens(), 5u);
  EXPECT_EQ(response_.usage().cached_prompt_tokens(), 1u);
  EXPECT_EQ(response_.usage().completion_tokens(), 0u);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(VerifyHandlerTest, TellsTheFirstTokenThatDiffers) {
  Start();
  stream_->PushStart({});
  PushText("cx");
  PushEnd();
  ASSERT_TRUE(Finish().ok());
  EXPECT_FALSE(response_.verified());
  EXPECT_EQ(response_.verified_token_count(), 1u);
  EXPECT_EQ(response_.mismatch().index(), 1u);
  EXPECT_EQ(response_.mismatch().position(), 3u);
  EXPECT_EQ(response_.mismatch().claimed_token_id(), static_cast<uint32_t>('d'));
  EXPECT_EQ(response_.mismatch().token_id(), static_cast<uint32_t>('x'));
}

TEST_F(VerifyHandlerTest, NothingBehindAStopStringIsComputed) {
  original().mutable_stopping()->add_stop_strings("d");
  EXPECT_EQ(Start().generate()->claimed, ByteIds("cd"));
  stream_->PushStart({});
  PushText("cd");
  PushEnd();
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(response_.mismatch().index(), 2u);
  EXPECT_EQ(response_.mismatch().finished(), v1::FINISH_REASON_STOP);
}

TEST_F(VerifyHandlerTest, TheEngineGetsTheConstraint) {
  original().mutable_choices()->add_choices("cde");
  const Request& queued = Start();
  ASSERT_TRUE(queued.generate()->constraint.has_value());
  EXPECT_THAT(queued.generate()->constraint->end_ids, ElementsAre(kEosId));
  stream_->PushStart({});
  PushText("cde");
  PushEnd();
  ASSERT_TRUE(Finish().ok());
  EXPECT_TRUE(response_.verified());
}

TEST_F(VerifyHandlerTest, AMalformedConstraintIsNamed) {
  original().set_regex("(a");
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("request.regex: the pattern "));
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "request.regex");
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(VerifyHandlerTest, AFaultEndsTheCallWithItsStatus) {
  Start();
  stream_->PushStart({});
  PushText("c");
  PushEnd(DataLoss("non-finite logits"), FinishReason::kLength);
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status_.error_message(), "non-finite logits");
}

TEST_F(VerifyHandlerTest, AnInvalidFieldIsNamed) {
  request_.clear_claimed_token_ids();
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(),
            "claimed_token_ids");
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(VerifyHandlerTest, AnotherServersOutputIsStale) {
  request_.set_fingerprint("beef");
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonIn(status), "STALE_FINGERPRINT");
}

TEST_F(VerifyHandlerTest, ARefusedRequestTellsWhy) {
  engine_.set_submit_status(WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"));
  EXPECT_EQ(ReasonIn(Refusal()), "QUEUE_FULL");
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(VerifyHandlerTest, CancelLetsGoOfTheSequenceAndOfTheId) {
  request_.set_request_id("mine");
  Start();
  context_->TryCancel();
  engine_.WaitUntilDetached(*stream_);
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  // Results of a call that is over are ignored.
  PushText("c");
  PushEnd(Cancelled("detached"), FinishReason::kLength);
  Start(1);
  PushText("cde");
  PushEnd();
  EXPECT_TRUE(Finish().ok());
}

TEST_F(VerifyHandlerTest, ADeadlineThatOnlyTheServerKnowsHasItsReason) {
  const grpc::Status status = ExpiredStatusOf(
      [this](const std::unique_ptr<grpc::ClientContext>& context) { return Call(*context); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonIn(status), "EXPIRED_IN_QUEUE");
}

TEST_F(VerifyHandlerTest, SurvivesCancellationAtAnyMoment) {
  for (size_t round = 0; round < 100; ++round) {
    Start(round);
    std::thread engine_side([this] {
      stream_->PushStart({});
      FakeEngine::Deliver(*stream_);
      PushText("cd");
      FakeEngine::Deliver(*stream_);
      PushText("e");
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
