#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using R = v1::VerifyRequest;

// Its prompt has 4 tokens; the context of the model 64, its fingerprint is f00d.
R ValidRequest() {
  R request;
  for (const uint32_t id : {1, 2, 3, 4}) {
    request.mutable_request()->mutable_prompt_token_ids()->add_ids(id);
  }
  request.mutable_request()->mutable_sampling()->set_seed(9);
  for (const uint32_t id : {5, 6}) request.add_claimed_token_ids(id);
  return request;
}

absl::StatusOr<GenerateCall> Convert(const R& request) {
  return ConvertVerify(request, SharedModel());
}

v1::GenerateRequest& Original(R& r) { return *r.mutable_request(); }

using Case = ConvertCase<R>;

TEST(ConvertVerifyTest, IsTheOutputInQuestion) {
  R request = ValidRequest();
  Original(request).mutable_sampling()->set_num_sequences(3);
  Original(request).mutable_sampling()->set_temperature(0.5f);
  Original(request).mutable_stopping()->set_max_new_tokens(7);
  Original(request).mutable_scheduling()->set_priority(-3);
  request.set_output_index(2);
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->prompt, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(call->work.claimed, ElementsAre(5, 6));
  EXPECT_EQ(call->work.output_index, 2u);
  EXPECT_EQ(call->num_sequences, 1);
  EXPECT_EQ(call->work.sampling.seed, 9u);
  EXPECT_EQ(call->work.sampling.temperature, 0.5f);
  EXPECT_EQ(call->work.stop.max_new_tokens, 7);
  EXPECT_EQ(call->priority, -3);
}

TEST(ConvertVerifyTest, WhatChangesNoTokenHasNoEffect) {
  R request = ValidRequest();
  Original(request).mutable_output()->set_top_logprobs(3);
  Original(request).mutable_output()->set_prompt_logprobs(true);
  Original(request).mutable_scheduling()->mutable_soft_time_limit()->set_seconds(1);
  Original(request).mutable_speculation()->set_max_draft_tokens(3);
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_FALSE(call->work.score_prompt);
  EXPECT_FALSE(call->work.score.logprob);
  EXPECT_EQ(call->work.score.top, 0u);
  EXPECT_EQ(call->soft_time_limit, absl::InfiniteDuration());
  EXPECT_EQ(call->work.max_draft_tokens, 0);
}

class VerifiableTest : public ::testing::TestWithParam<Case> {};
TEST_P(VerifiableTest, Converts) {
  R request = ValidRequest();
  GetParam().change(request);
  EXPECT_THAT(Convert(request), IsOk());
}
INSTANTIATE_TEST_SUITE_P(
    Verify, VerifiableTest,
    ::testing::Values(Case{"TheServersFingerprint", [](R& r) { r.set_fingerprint("f00d"); }},
                      Case{"GreedyWithoutSeed",
                           [](R& r) {
                             Original(r).mutable_sampling()->clear_seed();
                             Original(r).mutable_sampling()->set_temperature(0.0f);
                           }},
                      Case{"MoreThanMaxNewTokens",
                           [](R& r) { Original(r).mutable_stopping()->set_max_new_tokens(1); }},
                      Case{"AFullContext",
                           [](R& r) { r.mutable_claimed_token_ids()->Resize(60, 7); }}),
    NameOfCase<R>);

class UnverifiableTest : public ::testing::TestWithParam<Case> {};
TEST_P(UnverifiableTest, NamesTheField) {
  R request = ValidRequest();
  GetParam().change(request);
  ExpectRefused(Convert(request).status(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Verify, UnverifiableTest,
    ::testing::Values(
        Case{"NoRequest", [](R& r) { r.clear_request(); }, "request", "is missing"},
        Case{"NoTokens", [](R& r) { r.clear_claimed_token_ids(); }, "claimed_token_ids",
             "is empty"},
        Case{"AnUnknownToken", [](R& r) { r.add_claimed_token_ids(300); }, "claimed_token_ids[2]",
             "is 300, the vocabulary has 300 tokens"},
        Case{"MoreTokensThanAnyContext", [](R& r) { r.mutable_claimed_token_ids()->Resize(64, 7); },
             "claimed_token_ids", "has 64 entries, the limit is 63"},
        Case{"MoreTokensThanTheContext", [](R& r) { r.mutable_claimed_token_ids()->Resize(61, 7); },
             "claimed_token_ids",
             "has 61 entries after a prompt of 4 tokens, the limit of both is 64"},
        Case{"NoSuchOutput", [](R& r) { r.set_output_index(1); }, "output_index",
             "is 1, the request has 1 outputs"},
        Case{"NoSeed", [](R& r) { Original(r).mutable_sampling()->clear_seed(); },
             "request.sampling.seed", "is unset at a temperature of 1"},
        Case{"AResumedRequest", [](R& r) { Original(r).mutable_resume(); }, "request.resume",
             "is set"},
        Case{"AnInvalidRequest", [](R& r) { Original(r).mutable_sampling()->set_top_p(2); },
             "request.sampling.top_p", "is 2"},
        Case{"NoPrompt", [](R& r) { Original(r).clear_input(); }, "request.input", "is missing"}),
    NameOfCase<R>);

TEST(ConvertVerifyTest, AnotherServersFingerprintIsStale) {
  R request = ValidRequest();
  request.set_fingerprint("beef");
  const absl::Status status = Convert(request).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("f00d"), HasSubstr("beef"))));
  EXPECT_EQ(ReasonOf(status), "STALE_FINGERPRINT");
  EXPECT_EQ(FieldOf(status), "fingerprint");
}

TEST(ConvertVerifyTest, ErrorsOfTheRequestKeepTheirDetails) {
  R request = ValidRequest();
  Original(request).set_model("other");
  const absl::Status status = Convert(request).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, StartsWith("request.model")));
  EXPECT_EQ(FieldOf(status), "request.model");
  EXPECT_THAT(InRequest(WithReason(absl::InternalError("late"), "X")).message(), "late");
}

}  // namespace
}  // namespace tlm
