#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<ScoreCall> Convert(const v1::ScoreRequest& request) {
  return ConvertScore(request, SharedModel());
}

v1::ScoreRequest ValidRequest() {
  v1::ScoreRequest request;
  request.set_prompt("ab");
  request.add_continuations()->set_text("cd");
  return request;
}

using R = v1::ScoreRequest;
void AddIds(R& r, int count) {
  r.add_continuations()->mutable_token_ids()->mutable_ids()->Resize(count, 1);
}

TEST(ConvertScoreTest, TextsAreTokenizedEachOnItsOwn) {
  v1::ScoreRequest request = ValidRequest();
  request.set_top_logprobs(3);
  request.add_continuations()->mutable_token_ids()->add_ids(299);
  const absl::StatusOr<ScoreCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->prompt, ElementsAre(kBosId, 'a', 'b'));
  EXPECT_THAT(call->work.continuations, ElementsAre(ElementsAre('c', 'd'), ElementsAre(299)));
  EXPECT_EQ(call->work.top, 3u);
  EXPECT_EQ(call->total_tokens, 6);
  request.set_add_special_tokens(false);
  EXPECT_THAT(Convert(request)->prompt, ElementsAre('a', 'b'));
}

TEST(ConvertScoreTest, PromptAndContinuationMayFillTheContext) {
  v1::ScoreRequest request;
  request.mutable_prompt_token_ids()->add_ids(1);
  AddIds(request, 63);
  EXPECT_THAT(Convert(request), IsOk());
}

using Case = ConvertCase<R>;

class RefusedScoreTest : public ::testing::TestWithParam<Case> {};
TEST_P(RefusedScoreTest, NamesTheFieldInMessageAndDetail) {
  v1::ScoreRequest request = ValidRequest();
  GetParam().change(request);
  ExpectRefused(Convert(request).status(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Fields, RefusedScoreTest,
    ::testing::Values(
        Case{"OtherModel", [](R& r) { r.set_model("huge"); }, "model", "",
             absl::StatusCode::kNotFound},
        Case{"NoContext", [](R& r) { r.clear_context(); }, "context"},
        Case{"EmptyPromptIds", [](R& r) { r.mutable_prompt_token_ids(); }, "prompt_token_ids.ids"},
        Case{"EmptyPromptWithoutSpecialTokens",
             [](R& r) {
               r.set_prompt("");
               r.set_add_special_tokens(false);
             },
             "prompt"},
        Case{"ForeignPromptId", [](R& r) { r.mutable_prompt_token_ids()->add_ids(300); },
             "prompt_token_ids.ids[0]"},
        Case{"PromptFillsTheContext",
             [](R& r) { r.mutable_prompt_token_ids()->mutable_ids()->Resize(64, 1); },
             "prompt_token_ids.ids"},
        Case{"NoContinuations", [](R& r) { r.clear_continuations(); }, "continuations"},
        Case{"TooManyContinuations",
             [](R& r) {
               for (int i = 0; i < 256; ++i) AddIds(r, 1);
             },
             "continuations"},
        Case{"UnsetContinuation", [](R& r) { r.add_continuations(); }, "continuations[1]"},
        Case{"EmptyText", [](R& r) { r.add_continuations()->set_text(""); }, "continuations[1]"},
        Case{"EmptyIds", [](R& r) { AddIds(r, 0); }, "continuations[1]"},
        Case{"ForeignId", [](R& r) { r.add_continuations()->mutable_token_ids()->add_ids(300); },
             "continuations[1].token_ids.ids[0]"},
        Case{"ContinuationBeyondTheContext", [](R& r) { AddIds(r, 62); }, "continuations[1]"},
        Case{"TooManyAlternatives", [](R& r) { r.set_top_logprobs(21); }, "top_logprobs"}),
    NameOfCase<R>);

TEST(ConvertScoreTest, TooManyTokensInAllAreRefused) {
  ServedModel model = MakeServedModel(nullptr);
  model.limits.max_forward_tokens = 10;
  v1::ScoreRequest request;
  request.mutable_prompt_token_ids()->add_ids(1);
  AddIds(request, 4);
  AddIds(request, 5);
  EXPECT_THAT(ConvertScore(request, model), IsOk());
  AddIds(request, 1);
  EXPECT_THAT(ConvertScore(request, model), StatusIs(kInvalid, HasSubstr("11 tokens in all")));
}

TEST(ConvertScoreTest, AnAnswerThatFitsNoMessageIsRefusedBeforehand) {
  ServedModel model = MakeServedModel(nullptr);
  model.limits.max_response_bytes = 16384;
  v1::ScoreRequest request;
  request.mutable_prompt_token_ids()->add_ids(1);
  for (int i = 0; i < 100; ++i) AddIds(request, 1);
  EXPECT_THAT(ConvertScore(request, model), IsOk());
  request.set_top_logprobs(20);
  const absl::Status status = ConvertScore(request, model).status();
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("the limit is 16384")));
  EXPECT_EQ(FieldOf(status), "continuations");
}

TEST(ConvertScoreTest, TextNeedsATokenizer) {
  EXPECT_THAT(ConvertScore(ValidRequest(), MakeServedModel(nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("prompt_token_ids")));
}

}  // namespace
}  // namespace tlm
