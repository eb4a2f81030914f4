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
using ::testing::IsEmpty;

using R = v1::GenerateRequest;

// Its prompt has 4 tokens; the context of the model 64, its fingerprint is f00d.
R ValidRequest() {
  R request;
  for (const uint32_t id : {1, 2, 3, 4}) request.mutable_prompt_token_ids()->add_ids(id);
  request.mutable_sampling()->set_seed(9);
  request.mutable_resume()->set_fingerprint("f00d");
  for (const uint32_t id : {5, 6}) request.mutable_resume()->add_generated_token_ids(id);
  return request;
}

absl::StatusOr<GenerateCall> Convert(const R& request) {
  return ConvertGenerate(request, SharedModel(), [] { return uint64_t{1}; });
}

v1::ResumePoint& Resume(R& r) { return *r.mutable_resume(); }

using Case = ConvertCase<R>;

class ResumableTest : public ::testing::TestWithParam<Case> {};
TEST_P(ResumableTest, Converts) {
  R request = ValidRequest();
  GetParam().change(request);
  EXPECT_THAT(Convert(request), IsOk());
}
INSTANTIATE_TEST_SUITE_P(
    Resume, ResumableTest,
    ::testing::Values(
        Case{"SomeTokens", [](R&) {}},
        Case{"NoTokensYet", [](R& r) { Resume(r).clear_generated_token_ids(); }},
        Case{"NoTokensYetWithPromptLogprobs",
             [](R& r) {
               Resume(r).clear_generated_token_ids();
               r.mutable_output()->set_prompt_logprobs(true);
             }},
        Case{"GreedyWithoutSeed",
             [](R& r) {
               r.mutable_sampling()->clear_seed();
               r.mutable_sampling()->set_temperature(0.0f);
             }},
        Case{"OneSequence", [](R& r) { r.mutable_sampling()->set_num_sequences(1); }},
        Case{"AllTokens", [](R& r) { r.mutable_stopping()->set_max_new_tokens(2); }},
        Case{"AFullContext", [](R& r) { Resume(r).mutable_generated_token_ids()->Resize(60, 7); }},
        Case{"AnEosAsTheLastToken", [](R& r) { Resume(r).add_generated_token_ids(256); }},
        Case{"AnEosThatIsIgnored",
             [](R& r) {
               Resume(r).set_generated_token_ids(0, 256);
               r.mutable_stopping()->set_ignore_eos(true);
             }},
        Case{"AnEosBelowTheMinimum",
             [](R& r) {
               Resume(r).set_generated_token_ids(0, 256);
               r.mutable_stopping()->set_min_new_tokens(1);
             }}),
    NameOfCase<R>);

class NotResumableTest : public ::testing::TestWithParam<Case> {};
TEST_P(NotResumableTest, NamesFieldValueAndLimit) {
  R request = ValidRequest();
  GetParam().change(request);
  ExpectRefused(Convert(request).status(), GetParam());
}
constexpr char kIds[] = "resume.generated_token_ids";
INSTANTIATE_TEST_SUITE_P(
    Resume, NotResumableTest,
    ::testing::Values(
        Case{"NoFingerprint", [](R& r) { Resume(r).clear_fingerprint(); }, "resume.fingerprint"},
        Case{"SeveralSequences", [](R& r) { r.mutable_sampling()->set_num_sequences(2); },
             "sampling.num_sequences", "is 2"},
        Case{"NoSeed", [](R& r) { r.mutable_sampling()->clear_seed(); }, "sampling.seed",
             "temperature of 1"},
        Case{"PromptLogprobs", [](R& r) { r.mutable_output()->set_prompt_logprobs(true); },
             "output.prompt_logprobs", "2 tokens"},
        Case{"IdOutOfRange", [](R& r) { Resume(r).add_generated_token_ids(300); },
             "resume.generated_token_ids[2]", "is 300, the vocabulary has 300"},
        Case{"IdAbove31Bits", [](R& r) { Resume(r).add_generated_token_ids(~0u); },
             "resume.generated_token_ids[2]"},
        Case{"MoreThanMaxNewTokens", [](R& r) { r.mutable_stopping()->set_max_new_tokens(1); },
             kIds, "has 2 entries, at most 1"},
        Case{"MoreThanTheContext",
             [](R& r) { Resume(r).mutable_generated_token_ids()->Resize(61, 7); }, kIds,
             "has 61 entries after a prompt of 4 tokens, the limit of both is 64"},
        Case{"FarMoreThanTheContext",
             [](R& r) { Resume(r).mutable_generated_token_ids()->Resize(100'000, 7); }, kIds,
             "has 100000 entries"},
        Case{"BehindAnEos", [](R& r) { Resume(r).set_generated_token_ids(0, 256); },
             "resume.generated_token_ids[0]", "is 256, which ends the output, but 1 follow"},
        Case{"BehindAStopToken", [](R& r) { r.mutable_stopping()->add_stop_token_ids(5); },
             "resume.generated_token_ids[0]"}),
    NameOfCase<R>);

TEST(ConvertResumeTest, TheTokensReachTheEngine) {
  EXPECT_THAT(Convert(ValidRequest())->work.generated, ElementsAre(5, 6));
  R fresh = ValidRequest();
  fresh.clear_resume();
  EXPECT_THAT(Convert(fresh)->work.generated, IsEmpty());
}

TEST(ConvertResumeTest, AStaleFingerprintIsAPreconditionThatFailed) {
  R request = ValidRequest();
  Resume(request).set_fingerprint("beef");
  const absl::Status status = Convert(request).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("f00d"), HasSubstr("beef"))));
  EXPECT_EQ(ReasonOf(status), "STALE_FINGERPRINT");
  EXPECT_EQ(FieldOf(status), "resume.fingerprint");
}

}  // namespace
}  // namespace tlm
