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

void AddSequence(R& request, int tokens, uint32_t id = 5) {
  request.add_sequences()->mutable_ids()->Resize(tokens, id);
}

R ValidRequest() {
  R request;
  AddSequence(request, 3);
  AddSequence(request, 5);
  return request;
}

absl::StatusOr<ForwardCall> Convert(const R& request) {
  return ConvertForward(request, SharedModel());
}

using Case = ConvertCase<R>;

class ForwardRefusedTest : public ::testing::TestWithParam<Case> {};
TEST_P(ForwardRefusedTest, NamesTheFieldInMessageAndDetail) {
  R request = ValidRequest();
  GetParam().change(request);
  ExpectRefused(Convert(request).status(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Fields, ForwardRefusedTest,
    ::testing::Values(
        Case{"OtherModel", [](R& r) { r.set_model("huge"); }, "model", "",
             absl::StatusCode::kNotFound},
        Case{"NoSequences", [](R& r) { r.clear_sequences(); }, "sequences"},
        Case{"SequencesAndPrompts", [](R& r) { r.add_prompts("x"); }, "prompts"},
        Case{"TooManySequences",
             [](R& r) {
               while (r.sequences_size() < 257) AddSequence(r, 1);
             },
             "sequences"},
        Case{"EmptySequence", [](R& r) { AddSequence(r, 0); }, "sequences[2]"},
        Case{"SequenceTooLong", [](R& r) { AddSequence(r, 65); }, "sequences[2]"},
        Case{"IdOutOfRange", [](R& r) { r.mutable_sequences(1)->add_ids(300); },
             "sequences[1].ids[5]"},
        Case{"LastSetToFalse", [](R& r) { r.set_last(false); }, "last"},
        Case{"AllSetToFalse", [](R& r) { r.set_all(false); }, "all"},
        Case{"NoIndices", [](R& r) { r.mutable_indices(); }, "indices.indices"},
        Case{"IndexPastTheShortest", [](R& r) { r.mutable_indices()->add_indices(3); },
             "indices.indices[0]"},
        Case{"IndexRepeated",
             [](R& r) {
               r.mutable_indices()->add_indices(1);
               r.mutable_indices()->add_indices(1);
             },
             "indices.indices[1]"},
        Case{"IndexBelowTheOneBefore",
             [](R& r) {
               r.mutable_indices()->add_indices(1);
               r.mutable_indices()->add_indices(0);
             },
             "indices.indices[1]"},
        Case{"UnknownValues", [](R& r) { r.set_values(static_cast<v1::RowValues>(9)); }, "values"},
        Case{"UnknownDType", [](R& r) { r.set_dtype(static_cast<v1::DataType>(9)); }, "dtype"},
        Case{"TopKZero", [](R& r) { r.set_top_k(0); }, "top_k"},
        Case{"TopKTooLarge", [](R& r) { r.set_top_k(1025); }, "top_k"},
        Case{"SlicePastTheVocabulary", [](R& r) { r.mutable_vocab_slice()->set_end(301); },
             "vocab_slice.end"},
        Case{"EmptySlice", [](R& r) { r.mutable_vocab_slice(); }, "vocab_slice.start"},
        Case{"SliceBackwards",
             [](R& r) {
               r.mutable_vocab_slice()->set_start(5);
               r.mutable_vocab_slice()->set_end(4);
             },
             "vocab_slice.start"}),
    NameOfCase<R>);

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

TEST(ConvertForwardTest, AllPositionsOfEverySequence) {
  R request = ValidRequest();
  request.set_all(true);
  const absl::StatusOr<ForwardCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->total_rows, 8);
  EXPECT_THAT(call->PositionsOf(0), ElementsAre(0, 1, 2));
}

TEST(ConvertForwardTest, NamedPositions) {
  R request = ValidRequest();
  request.mutable_indices()->add_indices(0);
  request.mutable_indices()->add_indices(2);
  const absl::StatusOr<ForwardCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->total_rows, 4);
  EXPECT_THAT(call->PositionsOf(1), ElementsAre(0, 2));
}

TEST(ConvertForwardTest, ASequenceMayFillTheContext) {
  R request;
  AddSequence(request, 64);
  EXPECT_THAT(Convert(request), IsOk());
}

TEST(ConvertForwardTest, PromptsAreTokenized) {
  R request;
  request.add_prompts("ab");
  const absl::StatusOr<ForwardCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->sequences, ElementsAre(ElementsAre(kBosId, 'a', 'b')));
}

TEST(ConvertForwardTest, AnEmptyPromptIsNamed) {
  R request;
  request.add_prompts("ab");
  request.add_prompts("");
  request.set_add_special_tokens(false);
  EXPECT_EQ(FieldOf(Convert(request).status()), "prompts[1]");
}

class WideVocabularyTest : public ::testing::Test {
 protected:
  WideVocabularyTest() { model_.config.vocab_size = 1 << 21; }
  absl::Status Refusal(const R& request) { return ConvertForward(request, model_).status(); }
  ServedModel model_ = MakeServedModel(nullptr);
};

TEST_F(WideVocabularyTest, RowsThatFitNoMessageAreRefused) {
  EXPECT_THAT(Refusal(ValidRequest()), StatusIs(kInvalid, HasSubstr("top_k")));
}

TEST_F(WideVocabularyTest, TopKOrASliceMakesThemFit) {
  R top = ValidRequest();
  top.set_top_k(5);
  EXPECT_THAT(Refusal(top), IsOk());
  R slice = ValidRequest();
  slice.mutable_vocab_slice()->set_end(1000);
  EXPECT_THAT(Refusal(slice), IsOk());
}

TEST_F(WideVocabularyTest, TooManyTokensInAllAreRefused) {
  model_.limits.max_context_tokens = 1 << 20;
  R request;
  request.set_top_k(1);
  for (int i = 0; i < 5; ++i) AddSequence(request, 1 << 16);
  EXPECT_THAT(Refusal(request), StatusIs(kInvalid, HasSubstr("the limit is 262144")));
}

}  // namespace
}  // namespace tlm
