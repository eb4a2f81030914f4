#include "server/rpc/convert/sampling_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using S = v1::SamplingParams;

// Through the whole of convert, as sets of ids are compared with stop ids there.
absl::StatusOr<GenerateCall> Convert(const v1::GenerateRequest& request) {
  static const ServedModel* const model = new ServedModel(MakeServedModel(nullptr));
  return ConvertGenerate(request, *model, [] { return uint64_t{7}; });
}
absl::StatusOr<GenerateCall> ConvertParams(const S& sampling) {
  auto request = Proto<v1::GenerateRequest>("prompt_token_ids { ids: 1 }");
  *request.mutable_sampling() = sampling;
  return Convert(request);
}

void AddAll(google::protobuf::RepeatedField<uint32_t>* ids, uint32_t begin, uint32_t end) {
  for (uint32_t id = begin; id < end; ++id) ids->Add(id);
}

TEST(SamplingMessageTest, TakesTheWholeOfEveryRange) {
  ExpectAccepted(S(), ConvertParams,
                 {"temperature: 0", "temperature: -0.0", "temperature: 1e-30", "temperature: 1e30",
                  "top_k: 4294967295", "top_p: 1", "top_p: 1e-30", "min_p: 0", "min_p: 1",
                  "typical_p: 1e-30", "repetition_penalty: 1e30", "presence_penalty: -2",
                  "frequency_penalty: 2", "seed: 18446744073709551615", "num_sequences: 4",
                  "logit_bias { key: 0 value: -100 } logit_bias { key: 299 value: 100 }",
                  [](S& s) { s.mutable_allowed_token_ids()->Resize(1000, 5); },
                  [](S& s) { AddAll(s.mutable_banned_token_ids(), 1, 300); }});
}

TEST(SamplingMessageTest, NamesTheFieldThatIsOutOfRange) {
  const std::pair<std::string, std::vector<std::string>> kCases[] = {
      {"temperature", {"-1", "-1e-30", "nan", "inf"}},
      {"top_p", {"0", "1.001", "-0.1", "nan"}},
      {"min_p", {"-0.1", "1.1", "nan"}},
      {"typical_p", {"0", "1.5", "nan"}},
      {"repetition_penalty", {"0", "-1", "nan", "inf"}},
      {"presence_penalty", {"2.5", "nan"}},
      {"frequency_penalty", {"-2.5", "nan"}},
      {"num_sequences", {"0", "5"}},
      {"logit_bias", {"{ key: 300 value: 1 }"}}};
  for (const auto& [field, values] : kCases) {
    for (const std::string& value : values) {
      const std::string colon = value.starts_with("{") ? " " : ": ";
      ExpectRefused(S(), ConvertParams, {{field + colon + value, "sampling." + field}});
    }
  }
  ExpectRefused(S(), ConvertParams,
                {{"logit_bias { key: 7 value: 100.5 }", "sampling.logit_bias[7]"},
                 {"logit_bias { key: 7 value: nan }", "sampling.logit_bias[7]"},
                 {"logit_bias { key: 7 value: -inf }", "sampling.logit_bias[7]"},
                 {"allowed_token_ids: [1, 300]", "sampling.allowed_token_ids[1]"},
                 {"banned_token_ids: 4294967295", "sampling.banned_token_ids[0]"}});
}

TEST(SamplingMessageTest, BoundsSetsOfIdsAndLeavesATokenToDraw) {
  const auto biases = [](S& s) {
    for (uint32_t id = 0; id <= 4096; ++id) (*s.mutable_logit_bias())[id] = 1.0f;
  };
  const auto all_allowed_are_banned = [](S& s) {
    AddAll(s.mutable_allowed_token_ids(), 10, 20);
    AddAll(s.mutable_banned_token_ids(), 5, 25);
  };
  ExpectRefused(
      S(), ConvertParams,
      {{biases, "sampling.logit_bias"},
       {[](S& s) { s.mutable_allowed_token_ids()->Resize(65537, 1); },
        "sampling.allowed_token_ids"},
       {[](S& s) { s.mutable_banned_token_ids()->Resize(65537, 1); }, "sampling.banned_token_ids"},
       {[](S& s) { AddAll(s.mutable_banned_token_ids(), 0, 300); }, "sampling.banned_token_ids"},
       {all_allowed_are_banned, "sampling.allowed_token_ids"}});
}

TEST(SamplingMessageTest, MinNewTokensThatKeepsBackAllAllowedIdsIsRefused) {
  // 256 is the end of sequence.
  auto request = Proto<v1::GenerateRequest>(R"(prompt_token_ids { ids: 1 }
      sampling { allowed_token_ids: [256, 40] } stopping { stop_token_ids: 40 })");
  EXPECT_THAT(Convert(request), IsOk());
  ExpectRefused(
      request, Convert,
      {{"stopping { min_new_tokens: 1 }", "sampling.allowed_token_ids", "min_new_tokens"}});
  Merge("stopping { min_new_tokens: 1 ignore_eos: true }", request);
  EXPECT_THAT(Convert(request), IsOk());
}

TEST(SamplingMessageTest, SetsOfIdsAreSortedWithoutRepetition) {
  const absl::StatusOr<GenerateCall> call = ConvertParams(Proto<S>(R"(
      allowed_token_ids: [9, 3, 9, 5] banned_token_ids: [8, 2, 8] num_sequences: 3
      logit_bias { key: 70 value: 70 } logit_bias { key: 7 value: 7 }
      logit_bias { key: 30 value: 30 })"));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->work.sampling.allowed_token_ids, ElementsAre(3, 5, 9));
  EXPECT_THAT(call->work.sampling.banned_token_ids, ElementsAre(2, 8));
  EXPECT_THAT(call->work.sampling.logit_bias,
              ElementsAre(Pair(7, 7.0f), Pair(30, 30.0f), Pair(70, 70.0f)));
  EXPECT_EQ(call->num_sequences, 3);
}

// What FillSampling writes of what was read.
S Read(const S& message, const ServedModel& model) {
  const auto params = ConvertSampling(message, model);
  EXPECT_THAT(params, IsOk());
  S written;
  FillSampling(*params, 1, written);
  return written;
}

TEST(SamplingMessageTest, UnsetFieldsAreTheServersDefaults) {
  ServedModel model = MakeServedModel(nullptr);
  model.default_sampling = {.temperature = 0.6f,
                            .top_k = 20,
                            .top_p = 0.95f,
                            .min_p = 0.1f,
                            .typical_p = 0.9f,
                            .repetition_penalty = 1.05f};
  EXPECT_THAT(Read(S(), model), HasFields("temperature: 0.6 top_k: 20 top_p: 0.95 min_p: 0.1 "
                                          "typical_p: 0.9 repetition_penalty: 1.05"));
  EXPECT_THAT(Read(Proto<S>("temperature: 0 top_k: 0 repetition_penalty: 1"), model),
              HasFields("temperature: 0 top_k: 0 repetition_penalty: 1 top_p: 0.95"));
}

TEST(SamplingMessageTest, WhatIsReadIsWrittenBack) {
  constexpr char kAll[] = R"(
      temperature: 0.7 top_k: 40 top_p: 0.9 min_p: 0.05 typical_p: 0.8 repetition_penalty: 1.2
      presence_penalty: 0.5 frequency_penalty: -0.5 num_sequences: 1
      logit_bias { key: 3 value: 1.5 } logit_bias { key: 200 value: -7 }
      allowed_token_ids: [3, 4, 200] banned_token_ids: 4)";
  EXPECT_THAT(Read(Proto<S>(kAll), MakeServedModel(nullptr)), IsProto(kAll));
  S several;
  FillSampling({}, 2, several);
  EXPECT_EQ(several.num_sequences(), 2u);
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
