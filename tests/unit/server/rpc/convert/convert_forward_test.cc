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

using R = v1::ForwardRequest;

void AddSequence(R& request, int tokens) {
  request.add_sequences()->mutable_ids()->Resize(tokens, 5);
}

R ValidRequest() {
  return Proto<R>("sequences { ids: [5, 5, 5] } sequences { ids: [5, 5, 5, 5, 5] }");
}

absl::StatusOr<ForwardCall> Convert(const R& request) {
  return ConvertForward(request, SharedModel());
}

TEST(ConvertForwardTest, NamesTheFieldAtFault) {
  ExpectRefused(ValidRequest(), Convert,
                {{R"(model: "huge")", "model", "", absl::StatusCode::kNotFound},
                 {[](R& r) { r.clear_sequences(); }, "sequences"},
                 {R"(prompts: "x")", "prompts"},
                 {[](R& r) {
                    while (r.sequences_size() < 257) AddSequence(r, 1);
                  },
                  "sequences"},
                 {"sequences {}", "sequences[2]"},
                 {[](R& r) { AddSequence(r, 65); }, "sequences[2]"},
                 {[](R& r) { r.mutable_sequences(1)->add_ids(300); }, "sequences[1].ids[5]"},
                 {"last: false", "last"},
                 {"all: false", "all"},
                 {"indices {}", "indices.indices"},
                 {"indices { indices: 3 }", "indices.indices[0]"},  // past the shortest
                 {"indices { indices: [1, 1] }", "indices.indices[1]"},
                 {"indices { indices: [1, 0] }", "indices.indices[1]"},
                 {"values: 9", "values"},
                 {"dtype: 9", "dtype"},
                 {"top_k: 0", "top_k"},
                 {"top_k: 1025", "top_k"},
                 {"vocab_slice { end: 301 }", "vocab_slice.end"},
                 {"vocab_slice {}", "vocab_slice.start"},
                 {"vocab_slice { start: 5 end: 4 }", "vocab_slice.start"}});
  ExpectRefused(Proto<R>(R"(prompts: ["ab", ""] add_special_tokens: false)"), Convert,
                {{"", "prompts[1]"}});
}

TEST(ConvertForwardTest, DefaultsAreTheLastRowsLogitsInFloat32) {
  const absl::StatusOr<ForwardCall> call = Convert(ValidRequest());
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->total_tokens, 8);
  EXPECT_EQ(call->total_rows, 2);
  EXPECT_THAT(call->PositionsOf(0), ElementsAre(2));
  EXPECT_THAT(call->PositionsOf(1), ElementsAre(4));
  EXPECT_EQ(call->format.values, v1::ROW_VALUES_LOGITS);
  EXPECT_EQ(call->format.dtype, v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(call->format.width(), 300);
}

TEST(ConvertForwardTest, TakesTheRowsAtThePositionsNamed) {
  R request = ValidRequest();
  request.set_all(true);
  absl::StatusOr<ForwardCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->total_rows, 8);
  EXPECT_THAT(call->PositionsOf(0), ElementsAre(0, 1, 2));
  Merge("indices { indices: [0, 2] }", request);
  call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->total_rows, 4);
  EXPECT_THAT(call->PositionsOf(1), ElementsAre(0, 2));
}

TEST(ConvertForwardTest, ASequenceMayFillTheContext) {
  ExpectAccepted(R(), Convert, {[](R& r) { AddSequence(r, 64); }});
}

TEST(ConvertForwardTest, PromptsAreTokenized) {
  const absl::StatusOr<ForwardCall> call = Convert(Proto<R>(R"(prompts: "ab")"));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->sequences, ElementsAre(ElementsAre(kBosId, 'a', 'b')));
}

TEST(ConvertForwardTest, RowsMustFitAMessageAndTokensACall) {
  ServedModel model = MakeServedModel(nullptr);
  model.config.vocab_size = 1 << 21;
  model.limits.max_context_tokens = 1 << 20;
  const auto convert = [&](const R& request) { return ConvertForward(request, model).status(); };
  EXPECT_THAT(convert(ValidRequest()), StatusIs(kInvalid, HasSubstr("top_k")));
  ExpectAccepted(ValidRequest(), convert, {"top_k: 5", "vocab_slice { end: 1000 }"});
  auto request = Proto<R>("top_k: 1");
  for (int i = 0; i < 5; ++i) AddSequence(request, 1 << 16);
  EXPECT_THAT(convert(request), StatusIs(kInvalid, HasSubstr("the limit is 262144")));
}

}  // namespace
}  // namespace tlm
