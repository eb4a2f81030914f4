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
  return Proto<R>(R"(prompt_token_ids { ids: [1, 2, 3, 4] } sampling { seed: 9 }
                     resume { fingerprint: "f00d" generated_token_ids: [5, 6] })");
}

absl::StatusOr<GenerateCall> Convert(const R& request) {
  return ConvertGenerate(request, SharedModel(), [] { return uint64_t{1}; });
}

v1::ResumePoint& Resume(R& r) { return *r.mutable_resume(); }

// Generated so far: these ids, or as many.
Change<R> Ids(const std::vector<uint32_t>& ids) {
  return [ids](R& r) { Resume(r).mutable_generated_token_ids()->Assign(ids.begin(), ids.end()); };
}
Change<R> Ids(size_t count) { return Ids(std::vector<uint32_t>(count, 7)); }

TEST(ConvertResumeTest, TakesWhatCanBeContinued) {
  const auto from_the_prompt = [](R& r) {
    Resume(r).clear_generated_token_ids();
    r.mutable_output()->set_prompt_logprobs(true);
  };
  const auto greedy = [](R& r) {
    r.mutable_sampling()->clear_seed();
    r.mutable_sampling()->set_temperature(0);
  };
  // 256 is the end of sequence.
  ExpectAccepted(ValidRequest(), Convert,
                 {"", Ids(0), from_the_prompt, greedy, "sampling { num_sequences: 1 }",
                  "stopping { max_new_tokens: 2 }", Ids(60), Ids({5, 6, 256})});
  for (const char* const stopping : {"ignore_eos: true", "min_new_tokens: 1"}) {
    R request = ValidRequest();
    Merge(stopping, *request.mutable_stopping());
    ExpectAccepted(request, Convert, {Ids({256, 6})});
  }
}

TEST(ConvertResumeTest, NamesFieldValueAndLimitOfWhatCannot) {
  constexpr char kIds[] = "resume.generated_token_ids";
  ExpectRefused(
      ValidRequest(), Convert,
      {{[](R& r) { Resume(r).clear_fingerprint(); }, "resume.fingerprint"},
       {"sampling { num_sequences: 2 }", "sampling.num_sequences", "is 2"},
       {[](R& r) { r.mutable_sampling()->clear_seed(); }, "sampling.seed", "temperature of 1"},
       {"output { prompt_logprobs: true }", "output.prompt_logprobs", "2 tokens"},
       {Ids({5, 6, 300}), "resume.generated_token_ids[2]", "is 300, the vocabulary has 300"},
       {Ids({5, 6, ~0u}), "resume.generated_token_ids[2]"},
       {"stopping { max_new_tokens: 1 }", kIds, "has 2 entries, at most 1"},
       {Ids(61), kIds, "has 61 entries after a prompt of 4 tokens, the limit of both is 64"},
       {Ids(100'000), kIds, "has 100000 entries"},
       {Ids({256, 6}), "resume.generated_token_ids[0]",
        "is 256, which ends the output, but 1 follow"},
       {"stopping { stop_token_ids: 5 }", "resume.generated_token_ids[0]"}});
}

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
