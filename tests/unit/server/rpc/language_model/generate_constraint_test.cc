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
  Merge(R"(choices { choices: "yes" } stopping { stop_token_ids: [101, 257] })", request_);
  EXPECT_THAT(Queued().end_ids, ::testing::ElementsAre(kEosId, kBosId));
}

TEST_F(GenerateConstraintTest, AResumedOutputIsWalkedThrough) {
  Merge(R"(choices { choices: "yes" } sampling { seed: 1 }
           resume { fingerprint: "f00d" generated_token_ids: 121 })",
        request_);
  EXPECT_EQ(Next(Queued()), "e");
}

TEST_F(GenerateConstraintTest, AResumedOutputThatItForbidsIsRefused) {
  Merge(R"(choices { choices: "yes" } sampling { seed: 1 }
           resume { fingerprint: "f00d" generated_token_ids: [121, 0] })",
        request_);
  // Another letter, and an end where the text is not whole.
  for (const uint32_t id : {uint32_t{'o'}, uint32_t{kEosId}}) {
    request_.mutable_resume()->set_generated_token_ids(1, id);
    const grpc::Status status = Refusal();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("resume.generated_token_ids[1]"));
  }
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(GenerateConstraintTest, WhatIsMalformedNamesTheField) {
  request_.set_regex("(a");
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("regex: the pattern "));
  EXPECT_EQ(FieldIn(status), "regex");
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
  Call();
  context_->TryCancel();
  EXPECT_EQ(reader_->Finish().error_code(), grpc::StatusCode::CANCELLED);
  end.set_value();
  constraints_.Stop();
  EXPECT_EQ(engine_.submitted(), 0);
}

}  // namespace
}  // namespace tlm
