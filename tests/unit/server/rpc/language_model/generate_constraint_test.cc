// Constraints of Generate calls, from the request to the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GenerateConstraintTest : public GenerateTest {
 protected:
  // The texts of single bytes that may follow.
  std::string Next(const OutputConstraint& constraint) {
    ConstraintMatcher matcher = constraint.matcher;
    const ConstraintMatcher::Allowed allowed = matcher.Next();
    std::string next;
    for (int byte = 0; byte < 256; ++byte) {
      if ((allowed.tokens[byte / 64] >> byte % 64 & 1) != 0) next += static_cast<char>(byte);
    }
    return next;
  }
  const OutputConstraint& Queued(size_t index = 0) {
    Start(index);
    return *engine_.WaitForRequest(index).generate()->constraint;
  }
  grpc::Status Refusal() {
    context_ = std::make_unique<grpc::ClientContext>();
    reader_ = stub_->Generate(context_.get(), request_);
    return reader_->Finish();
  }
};

TEST_F(GenerateConstraintTest, TheEngineGetsAMatcher) {
  request_.mutable_choices()->add_choices("yes");
  request_.mutable_choices()->add_choices("no");
  EXPECT_EQ(Next(Queued()), "ny");
  // From what was compiled before.
  request_.set_request_id("second");
  EXPECT_EQ(Next(Queued(1)), "ny");
}

TEST_F(GenerateConstraintTest, EndsAreEosAndSpecialStopTokens) {
  request_.mutable_choices()->add_choices("yes");
  request_.mutable_stopping()->add_stop_token_ids('e');
  request_.mutable_stopping()->add_stop_token_ids(kBosId);
  EXPECT_THAT(Queued().end_ids, ::testing::ElementsAre(kEosId, kBosId));
}

TEST_F(GenerateConstraintTest, AResumedOutputIsWalkedThrough) {
  request_.mutable_choices()->add_choices("yes");
  request_.mutable_sampling()->set_seed(1);
  request_.mutable_resume()->set_fingerprint("f00d");
  request_.mutable_resume()->add_generated_token_ids('y');
  EXPECT_EQ(Next(Queued()), "e");
}

TEST_F(GenerateConstraintTest, AResumedOutputThatItForbidsIsRefused) {
  request_.mutable_choices()->add_choices("yes");
  request_.mutable_sampling()->set_seed(1);
  request_.mutable_resume()->set_fingerprint("f00d");
  request_.mutable_resume()->add_generated_token_ids('y');
  request_.mutable_resume()->add_generated_token_ids('o');
  grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("resume.generated_token_ids[1]"));
  // An end where the text is not whole.
  request_.mutable_resume()->set_generated_token_ids(1, kEosId);
  status = Refusal();
  EXPECT_THAT(status.error_message(), HasSubstr("resume.generated_token_ids[1]"));
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(GenerateConstraintTest, WhatIsMalformedNamesTheField) {
  request_.set_regex("(a");
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("regex: the pattern "));
  const auto bad = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "regex");
}

TEST_F(GenerateConstraintTest, ACancelledCallGetsNoConstraint) {
  std::promise<void> begun;
  std::promise<void> end;
  std::vector<FairPool::Undo> busy;
  // Both threads of the pool.
  std::atomic<int> arrived = 0;
  std::shared_future<void> ended = end.get_future().share();
  for (const char* const choice : {"one", "two"}) {
    const ConstraintSpec spec = {.language = ConstraintSpec::Choices{{choice}}, .json = {}};
    busy.push_back(constraints_.Compile("", spec, false, [&, ended](const auto&) {
      if (++arrived == 2) begun.set_value();
      ended.wait();
    }));
  }
  begun.get_future().wait();
  request_.mutable_choices()->add_choices("yes");
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  context_->TryCancel();
  EXPECT_EQ(reader_->Finish().error_code(), grpc::StatusCode::CANCELLED);
  end.set_value();
  constraints_.Stop();
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(GenerateConstraintTest, FinishReasonsAreTold) {
  for (const auto& [reason, told] :
       {std::pair(FinishReason::kConstraint, v1::FINISH_REASON_CONSTRAINT),
        std::pair(FinishReason::kConstraintComplete, v1::FINISH_REASON_CONSTRAINT_COMPLETE)}) {
    request_.mutable_choices()->add_choices("yes");
    Start(static_cast<size_t>(engine_.submitted()));
    PushStart();
    PushText("ye");
    PushEnd(EndedWith(reason));
    EXPECT_TRUE(ReadToTheEnd().ok());
    EXPECT_EQ(finished_.back().reason(), told);
  }
}

}  // namespace
}  // namespace tlm
