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
R ValidRequest(const std::string& more = "") {
  auto request = Proto<R>(R"(request { prompt_token_ids { ids: [1, 2, 3, 4] } sampling { seed: 9 } }
                             claimed_token_ids: [5, 6])");
  Merge(more, request);
  return request;
}

absl::StatusOr<GenerateCall> Convert(const R& request) {
  return ConvertVerify(request, SharedModel());
}

v1::GenerateRequest& Original(R& r) { return *r.mutable_request(); }

TEST(ConvertVerifyTest, IsTheOutputInQuestion) {
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest(R"(
      output_index: 2 request { sampling { num_sequences: 3 temperature: 0.5 }
                                stopping { max_new_tokens: 7 } scheduling { priority: -3 } })"));
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
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest(R"(
      request { output { top_logprobs: 3 prompt_logprobs: true }
                scheduling { soft_time_limit { seconds: 1 } }
                speculation { max_draft_tokens: 3 } })"));
  ASSERT_THAT(call, IsOk());
  EXPECT_FALSE(call->work.score_prompt);
  EXPECT_FALSE(call->work.score.logprob);
  EXPECT_EQ(call->work.score.top, 0u);
  EXPECT_EQ(call->soft_time_limit, absl::InfiniteDuration());
  EXPECT_EQ(call->work.max_draft_tokens, 0);
}

TEST(ConvertVerifyTest, TakesWhatAnOutputCanBe) {
  const auto greedy = [](R& r) {
    Original(r).mutable_sampling()->clear_seed();
    Original(r).mutable_sampling()->set_temperature(0);
  };
  ExpectAccepted(ValidRequest(), Convert,
                 {R"(fingerprint: "f00d")", greedy, "request { stopping { max_new_tokens: 1 } }",
                  [](R& r) { r.mutable_claimed_token_ids()->Resize(60, 7); }});
}

TEST(ConvertVerifyTest, NamesTheFieldAtFault) {
  const auto claim = [](int tokens) {
    return [tokens](R& r) { r.mutable_claimed_token_ids()->Resize(tokens, 7); };
  };
  const auto no_seed = [](R& r) { Original(r).mutable_sampling()->clear_seed(); };
  ExpectRefused(
      ValidRequest(), Convert,
      {{[](R& r) { r.clear_request(); }, "request", "is missing"},
       {claim(0), "claimed_token_ids", "is empty"},
       {"claimed_token_ids: 300", "claimed_token_ids[2]", "is 300, the vocabulary has 300 tokens"},
       {claim(64), "claimed_token_ids", "has 64 entries, the limit is 63"},
       {claim(61), "claimed_token_ids",
        "has 61 entries after a prompt of 4 tokens, the limit of both is 64"},
       {"output_index: 1", "output_index", "is 1, the request has 1 outputs"},
       {no_seed, "request.sampling.seed", "is unset at a temperature of 1"},
       {"request { resume {} }", "request.resume", "is set"},
       {"request { sampling { top_p: 2 } }", "request.sampling.top_p", "is 2"},
       {[](R& r) { Original(r).clear_input(); }, "request.input", "is missing"}});
}

TEST(ConvertVerifyTest, AnotherServersFingerprintIsStale) {
  const absl::Status status = Convert(ValidRequest(R"(fingerprint: "beef")")).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("f00d"), HasSubstr("beef"))));
  EXPECT_EQ(ReasonOf(status), "STALE_FINGERPRINT");
  EXPECT_EQ(FieldOf(status), "fingerprint");
}

TEST(ConvertVerifyTest, ErrorsOfTheRequestKeepTheirDetails) {
  const absl::Status status = Convert(ValidRequest(R"(request { model: "other" })")).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, StartsWith("request.model")));
  EXPECT_EQ(FieldOf(status), "request.model");
  EXPECT_THAT(InRequest(WithReason(absl::InternalError("late"), "X")).message(), "late");
}

}  // namespace
}  // namespace tlm
