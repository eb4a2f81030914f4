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

using R = v1::ScoreRequest;

absl::StatusOr<ScoreCall> Convert(const R& request) { return ConvertScore(request, SharedModel()); }

R ValidRequest() { return Proto<R>(R"(prompt: "ab" continuations { text: "cd" })"); }

void AddIds(R& r, int count) {
  r.add_continuations()->mutable_token_ids()->mutable_ids()->Resize(count, 1);
}

TEST(ConvertScoreTest, TextsAreTokenizedEachOnItsOwn) {
  R request = ValidRequest();
  Merge("top_logprobs: 3 continuations { token_ids { ids: 299 } }", request);
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
  ExpectAccepted(Proto<R>("prompt_token_ids { ids: 1 }"), Convert, {[](R& r) { AddIds(r, 63); }});
}

TEST(ConvertScoreTest, NamesTheFieldAtFault) {
  const auto too_many = [](R& r) {
    while (r.continuations_size() < 257) AddIds(r, 1);
  };
  const auto long_prompt = [](R& r) { r.mutable_prompt_token_ids()->mutable_ids()->Resize(64, 1); };
  ExpectRefused(ValidRequest(), Convert,
                {{R"(model: "huge")", "model", "", absl::StatusCode::kNotFound},
                 {[](R& r) { r.clear_context(); }, "context"},
                 {"prompt_token_ids {}", "prompt_token_ids.ids"},
                 {R"(prompt: "" add_special_tokens: false)", "prompt"},
                 {"prompt_token_ids { ids: 300 }", "prompt_token_ids.ids[0]"},
                 {long_prompt, "prompt_token_ids.ids"},
                 {[](R& r) { r.clear_continuations(); }, "continuations"},
                 {too_many, "continuations"},
                 {"continuations {}", "continuations[1]"},
                 {R"(continuations { text: "" })", "continuations[1]"},
                 {"continuations { token_ids {} }", "continuations[1]"},
                 {"continuations { token_ids { ids: 300 } }", "continuations[1].token_ids.ids[0]"},
                 {[](R& r) { AddIds(r, 62); }, "continuations[1]"},  // beyond the context
                 {"top_logprobs: 21", "top_logprobs"}});
}

TEST(ConvertScoreTest, TooManyTokensInAllAreRefused) {
  ServedModel model = MakeServedModel(nullptr);
  model.limits.max_forward_tokens = 10;
  auto request = Proto<R>("prompt_token_ids { ids: 1 }");
  AddIds(request, 4);
  AddIds(request, 5);
  EXPECT_THAT(ConvertScore(request, model), IsOk());
  AddIds(request, 1);
  EXPECT_THAT(ConvertScore(request, model), StatusIs(kInvalid, HasSubstr("11 tokens in all")));
}

TEST(ConvertScoreTest, AnAnswerThatFitsNoMessageIsRefusedBeforehand) {
  ServedModel model = MakeServedModel(nullptr);
  model.limits.max_response_bytes = 16384;
  auto request = Proto<R>("prompt_token_ids { ids: 1 }");
  for (int i = 0; i < 100; ++i) AddIds(request, 1);
  const auto convert = [&](const R& r) { return ConvertScore(r, model).status(); };
  EXPECT_THAT(convert(request), IsOk());
  ExpectRefused(request, convert, {{"top_logprobs: 20", "continuations", "the limit is 16384"}});
}

TEST(ConvertScoreTest, TextNeedsATokenizer) {
  EXPECT_THAT(ConvertScore(ValidRequest(), MakeServedModel(nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("prompt_token_ids")));
}

}  // namespace
}  // namespace tlm
