#include "server/rpc/convert/sampling_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using S = v1::SamplingParams;

// Through the whole of convert, as sets of ids are compared with stop ids there.
absl::StatusOr<GenerateCall> Convert(const v1::GenerateRequest& request) {
  static const ServedModel* const model = new ServedModel(MakeServedModel(nullptr));
  return ConvertGenerate(request, *model, [] { return uint64_t{7}; });
}
v1::GenerateRequest RequestWith(const std::function<void(S&)>& change) {
  v1::GenerateRequest request;
  request.mutable_prompt_token_ids()->add_ids(1);
  change(*request.mutable_sampling());
  return request;
}

void AddAll(google::protobuf::RepeatedField<uint32_t>* ids, uint32_t begin, uint32_t end) {
  for (uint32_t id = begin; id < end; ++id) ids->Add(id);
}

using Case = ConvertCase<S>;

class AcceptedSamplingTest : public ::testing::TestWithParam<Case> {};
TEST_P(AcceptedSamplingTest, Converts) {
  EXPECT_THAT(Convert(RequestWith(GetParam().change)), IsOk());
}
INSTANTIATE_TEST_SUITE_P(
    Values, AcceptedSamplingTest,
    ::testing::Values(Case{"GreedyTemperature", [](S& s) { s.set_temperature(0.0f); }},
                      Case{"NegativeZeroTemperature", [](S& s) { s.set_temperature(-0.0f); }},
                      Case{"TinyTemperature", [](S& s) { s.set_temperature(1e-30f); }},
                      Case{"HugeTemperature", [](S& s) { s.set_temperature(1e30f); }},
                      Case{"AnyTopK", [](S& s) { s.set_top_k(~0u); }},
                      Case{"TopPOne", [](S& s) { s.set_top_p(1.0f); }},
                      Case{"TinyTopP", [](S& s) { s.set_top_p(1e-30f); }},
                      Case{"MinPZero", [](S& s) { s.set_min_p(0.0f); }},
                      Case{"MinPOne", [](S& s) { s.set_min_p(1.0f); }},
                      Case{"TinyTypicalP", [](S& s) { s.set_typical_p(1e-30f); }},
                      Case{"HugeRepetitionPenalty", [](S& s) { s.set_repetition_penalty(1e30f); }},
                      Case{"LowestPresencePenalty", [](S& s) { s.set_presence_penalty(-2.0f); }},
                      Case{"HighestFrequencyPenalty", [](S& s) { s.set_frequency_penalty(2.0f); }},
                      Case{"LargestBiases",
                           [](S& s) {
                             (*s.mutable_logit_bias())[0] = -100.0f;
                             (*s.mutable_logit_bias())[299] = 100.0f;
                           }},
                      Case{"RepeatedAllowedIds",
                           [](S& s) {
                             for (int i = 0; i < 1000; ++i) s.add_allowed_token_ids(5);
                           }},
                      Case{"AllButOneBanned",
                           [](S& s) { AddAll(s.mutable_banned_token_ids(), 1, 300); }},
                      Case{"AnySeed", [](S& s) { s.set_seed(~uint64_t{0}); }},
                      Case{"MostSequences", [](S& s) { s.set_num_sequences(4); }}),
    NameOfCase<S>);

class RefusedSamplingTest : public ::testing::TestWithParam<Case> {};
TEST_P(RefusedSamplingTest, NamesTheFieldInMessageAndDetail) {
  ExpectRefused(Convert(RequestWith(GetParam().change)).status(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Numbers, RefusedSamplingTest,
    ::testing::Values(
        Case{"NegativeTemperature", [](S& s) { s.set_temperature(-1.0f); }, "sampling.temperature"},
        Case{"NegativeTinyTemperature", [](S& s) { s.set_temperature(-1e-30f); },
             "sampling.temperature"},
        Case{"NanTemperature", [](S& s) { s.set_temperature(kNan); }, "sampling.temperature"},
        Case{"InfiniteTemperature", [](S& s) { s.set_temperature(kInfinity); },
             "sampling.temperature"},
        Case{"TopPZero", [](S& s) { s.set_top_p(0.0f); }, "sampling.top_p"},
        Case{"TopPAboveOne", [](S& s) { s.set_top_p(1.001f); }, "sampling.top_p"},
        Case{"NegativeTopP", [](S& s) { s.set_top_p(-0.1f); }, "sampling.top_p"},
        Case{"NanTopP", [](S& s) { s.set_top_p(kNan); }, "sampling.top_p"},
        Case{"NegativeMinP", [](S& s) { s.set_min_p(-0.1f); }, "sampling.min_p"},
        Case{"MinPAboveOne", [](S& s) { s.set_min_p(1.1f); }, "sampling.min_p"},
        Case{"NanMinP", [](S& s) { s.set_min_p(kNan); }, "sampling.min_p"},
        Case{"TypicalPZero", [](S& s) { s.set_typical_p(0.0f); }, "sampling.typical_p"},
        Case{"TypicalPAboveOne", [](S& s) { s.set_typical_p(1.5f); }, "sampling.typical_p"},
        Case{"NanTypicalP", [](S& s) { s.set_typical_p(kNan); }, "sampling.typical_p"},
        Case{"RepetitionPenaltyZero", [](S& s) { s.set_repetition_penalty(0.0f); },
             "sampling.repetition_penalty"},
        Case{"NegativeRepetitionPenalty", [](S& s) { s.set_repetition_penalty(-1.0f); },
             "sampling.repetition_penalty"},
        Case{"NanRepetitionPenalty", [](S& s) { s.set_repetition_penalty(kNan); },
             "sampling.repetition_penalty"},
        Case{"InfiniteRepetitionPenalty", [](S& s) { s.set_repetition_penalty(kInfinity); },
             "sampling.repetition_penalty"},
        Case{"PresencePenaltyTooHigh", [](S& s) { s.set_presence_penalty(2.5f); },
             "sampling.presence_penalty"},
        Case{"NanPresencePenalty", [](S& s) { s.set_presence_penalty(kNan); },
             "sampling.presence_penalty"},
        Case{"FrequencyPenaltyTooLow", [](S& s) { s.set_frequency_penalty(-2.5f); },
             "sampling.frequency_penalty"},
        Case{"NanFrequencyPenalty", [](S& s) { s.set_frequency_penalty(kNan); },
             "sampling.frequency_penalty"},
        Case{"ZeroSequences", [](S& s) { s.set_num_sequences(0); }, "sampling.num_sequences"},
        Case{"TooManySequences", [](S& s) { s.set_num_sequences(5); }, "sampling.num_sequences"}),
    NameOfCase<S>);
INSTANTIATE_TEST_SUITE_P(
    Ids, RefusedSamplingTest,
    ::testing::Values(Case{"BiasOfForeignId", [](S& s) { (*s.mutable_logit_bias())[300] = 1.0f; },
                           "sampling.logit_bias"},
                      Case{"BiasTooHigh", [](S& s) { (*s.mutable_logit_bias())[7] = 100.5f; },
                           "sampling.logit_bias[7]"},
                      Case{"NanBias", [](S& s) { (*s.mutable_logit_bias())[7] = kNan; },
                           "sampling.logit_bias[7]"},
                      Case{"InfiniteBias", [](S& s) { (*s.mutable_logit_bias())[7] = -kInfinity; },
                           "sampling.logit_bias[7]"},
                      Case{"TooManyBiases",
                           [](S& s) {
                             for (uint32_t id = 0; id <= 4096; ++id)
                               (*s.mutable_logit_bias())[id] = 1.0f;
                           },
                           "sampling.logit_bias"},
                      Case{"ForeignAllowedId",
                           [](S& s) {
                             s.add_allowed_token_ids(1);
                             s.add_allowed_token_ids(300);
                           },
                           "sampling.allowed_token_ids[1]"},
                      Case{"BannedIdAbove31Bits", [](S& s) { s.add_banned_token_ids(~0u); },
                           "sampling.banned_token_ids[0]"},
                      Case{"TooManyAllowedIds",
                           [](S& s) { s.mutable_allowed_token_ids()->Resize(65537, 1); },
                           "sampling.allowed_token_ids"},
                      Case{"TooManyBannedIds",
                           [](S& s) { s.mutable_banned_token_ids()->Resize(65537, 1); },
                           "sampling.banned_token_ids"},
                      Case{"AllBanned", [](S& s) { AddAll(s.mutable_banned_token_ids(), 0, 300); },
                           "sampling.banned_token_ids"},
                      Case{"AllAllowedAreBanned",
                           [](S& s) {
                             AddAll(s.mutable_allowed_token_ids(), 10, 20);
                             AddAll(s.mutable_banned_token_ids(), 5, 25);
                           },
                           "sampling.allowed_token_ids"}),
    NameOfCase<S>);

TEST(SamplingMessageTest, MinNewTokensThatKeepsBackAllAllowedIdsIsRefused) {
  v1::GenerateRequest request = RequestWith([](S& s) {
    s.add_allowed_token_ids(256);  // end of sequence
    s.add_allowed_token_ids(40);
  });
  request.mutable_stopping()->add_stop_token_ids(40);
  EXPECT_THAT(Convert(request), IsOk());
  request.mutable_stopping()->set_min_new_tokens(1);
  const absl::Status status = Convert(request).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("min_new_tokens")));
  EXPECT_EQ(FieldOf(status), "sampling.allowed_token_ids");
  request.mutable_stopping()->set_ignore_eos(true);
  EXPECT_THAT(Convert(request), IsOk());
}

TEST(SamplingMessageTest, SetsOfIdsAreSortedWithoutRepetition) {
  const absl::StatusOr<GenerateCall> call = Convert(RequestWith([](S& s) {
    for (const uint32_t id : {9, 3, 9, 5}) s.add_allowed_token_ids(id);
    for (const uint32_t id : {8, 2, 8}) s.add_banned_token_ids(id);
    for (const uint32_t id : {70, 7, 30}) (*s.mutable_logit_bias())[id] = static_cast<float>(id);
    s.set_num_sequences(3);
  }));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->work.sampling.allowed_token_ids, ElementsAre(3, 5, 9));
  EXPECT_THAT(call->work.sampling.banned_token_ids, ElementsAre(2, 8));
  EXPECT_THAT(call->work.sampling.logit_bias,
              ElementsAre(Pair(7, 7.0f), Pair(30, 30.0f), Pair(70, 70.0f)));
  EXPECT_EQ(call->num_sequences, 3);
}

TEST(SamplingMessageTest, UnsetFieldsAreTheServersDefaults) {
  ServedModel model = MakeServedModel(nullptr);
  model.default_sampling = {.temperature = 0.6f,
                            .top_k = 20,
                            .top_p = 0.95f,
                            .min_p = 0.1f,
                            .typical_p = 0.9f,
                            .repetition_penalty = 1.05f};
  const auto unset = ConvertSampling(S(), model);
  ASSERT_THAT(unset, IsOk());
  EXPECT_EQ(unset->temperature, 0.6f);
  EXPECT_EQ(unset->top_k, 20u);
  EXPECT_EQ(unset->top_p, 0.95f);
  EXPECT_EQ(unset->min_p, 0.1f);
  EXPECT_EQ(unset->typical_p, 0.9f);
  EXPECT_EQ(unset->repetition_penalty, 1.05f);
  S given;
  given.set_temperature(0.0f);
  given.set_top_k(0);
  given.set_repetition_penalty(1.0f);
  const auto set = ConvertSampling(given, model);
  ASSERT_THAT(set, IsOk());
  EXPECT_EQ(set->temperature, 0.0f);
  EXPECT_EQ(set->top_k, 0u);
  EXPECT_EQ(set->repetition_penalty, 1.0f);
  EXPECT_EQ(set->top_p, 0.95f);
}

TEST(SamplingMessageTest, WhatIsWrittenIsReadBack) {
  const SamplingParams params{.temperature = 0.7f,
                              .top_k = 40,
                              .top_p = 0.9f,
                              .min_p = 0.05f,
                              .typical_p = 0.8f,
                              .repetition_penalty = 1.2f,
                              .presence_penalty = 0.5f,
                              .frequency_penalty = -0.5f,
                              .logit_bias = {{3, 1.5f}, {200, -7.0f}},
                              .allowed_token_ids = {3, 4, 200},
                              .banned_token_ids = {4}};
  S message;
  FillSampling(params, 2, message);
  EXPECT_FALSE(message.has_seed());
  EXPECT_EQ(message.num_sequences(), 2u);
  const auto read = ConvertSampling(message, MakeServedModel(nullptr));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->temperature, params.temperature);
  EXPECT_EQ(read->top_k, params.top_k);
  EXPECT_EQ(read->top_p, params.top_p);
  EXPECT_EQ(read->min_p, params.min_p);
  EXPECT_EQ(read->typical_p, params.typical_p);
  EXPECT_EQ(read->repetition_penalty, params.repetition_penalty);
  EXPECT_EQ(read->presence_penalty, params.presence_penalty);
  EXPECT_EQ(read->frequency_penalty, params.frequency_penalty);
  EXPECT_EQ(read->logit_bias, params.logit_bias);
  EXPECT_EQ(read->allowed_token_ids, params.allowed_token_ids);
  EXPECT_EQ(read->banned_token_ids, params.banned_token_ids);
}

TEST(SamplingMessageTest, EveryFieldButTheSeedIsWritten) {
  S message;
  FillSampling(SamplingParams(), 1, message);
  const auto* descriptor = S::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->is_repeated()) continue;
    EXPECT_EQ(message.GetReflection()->HasField(message, field), field->name() != "seed")
        << field->name();
  }
  EXPECT_THAT(message.allowed_token_ids(), IsEmpty());
}

}  // namespace
}  // namespace tlm
