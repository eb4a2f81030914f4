#include "model/config/rope_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "model/config/config_reader.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::Optional;

constexpr char kLlama[] = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "max_position_embeddings": 128, "rope_theta": 1000.0})";

ModelConfig Read(const char* change) {
  const auto config = ParseModelConfig(With(kLlama, change));
  EXPECT_THAT(config, IsOk()) << change;
  return config.ok() ? *config : ModelConfig();
}

RopeScaling ReadScaling(const char* change) {
  const ModelConfig config = Read(change);
  EXPECT_TRUE(config.rope_scaling.has_value()) << change;
  return config.rope_scaling.value_or(RopeScaling());
}

TEST(RopeFieldsTest, ThetaInsideTheObjectCountsBeforeTheOneOutside) {
  EXPECT_THAT(Read("{}").rope_theta, Optional(1000.0));
  EXPECT_THAT(Read(R"({"rope_theta": "absent"})").rope_theta, Optional(10000.0));
  EXPECT_THAT(
      Read(R"({"rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}})").rope_theta,
      Optional(5e6));
  EXPECT_THAT(Read(R"({"rope_parameters": {"rope_theta": 5e6}})").rope_theta, Optional(5e6));
  EXPECT_THAT(Read(R"({"rope_parameters": {"rope_type": "default"}})").rope_theta,
              Optional(1000.0));
  EXPECT_THAT(Read(R"({"rope_parameters": {"rope_theta": null}})").rope_theta, Optional(1000.0));
}

TEST(RopeFieldsTest, DefaultAndEmptyScaleNothing) {
  for (const char* change : {R"({"rope_scaling": null})", R"({"rope_scaling": {}})",
                             R"({"rope_scaling": {"type": "default"}})",
                             R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5}})"}) {
    EXPECT_FALSE(Read(change).rope_scaling.has_value()) << change;
  }
}

TEST(RopeFieldsTest, ReadsLinearInBothSpellings) {
  for (const char* change : {R"({"rope_scaling": {"type": "linear", "factor": 2}})",
                             R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})",
                             R"({"rope_parameters": {"rope_type": "linear", "factor": 2.0}})"}) {
    const RopeScaling scaling = ReadScaling(change);
    EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(scaling.factor, 2.0);
  }
}

TEST(RopeFieldsTest, ReadsLlama3) {
  const RopeScaling scaling = ReadScaling(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                      "low_freq_factor": 1.5, "high_freq_factor": 4.5,
                      "original_max_position_embeddings": 64}})");
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(scaling.factor, 8.0);
  EXPECT_EQ(scaling.low_freq_factor, 1.5);
  EXPECT_EQ(scaling.high_freq_factor, 4.5);
  EXPECT_EQ(scaling.original_context_length, 64);
}

TEST(RopeFieldsTest, OriginalContextOutsideTheObjectCountsMost) {
  EXPECT_EQ(
      ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": 2}})").original_context_length,
      128);
  EXPECT_EQ(ReadScaling(R"({"original_max_position_embeddings": 16,
                            "rope_scaling": {"type": "yarn", "factor": 2,
                                             "original_max_position_embeddings": 32}})")
                .original_context_length,
            16);
}

TEST(RopeFieldsTest, YarnFillsInWhatHuggingFaceDoes) {
  const RopeScaling scaling = ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": 4.0,
                      "original_max_position_embeddings": 32}})");
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(scaling.factor, 4.0);
  EXPECT_EQ(scaling.beta_fast, 32.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
  EXPECT_TRUE(scaling.truncate);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 0.1 * std::log(4.0) + 1.0);
}

TEST(RopeFieldsTest, YarnFactorLeftOutIsTheRatioOfTheContexts) {
  EXPECT_EQ(ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": null,
                            "original_max_position_embeddings": 32}})")
                .factor,
            4.0);
}

TEST(RopeFieldsTest, YarnTakesItsOwnNumbers) {
  const RopeScaling scaling =
      ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16,
                      "beta_slow": 2, "truncate": false, "attention_factor": 0.75,
                      "mscale": 3, "mscale_all_dim": 4}})");
  EXPECT_EQ(scaling.beta_fast, 16.0);
  EXPECT_EQ(scaling.beta_slow, 2.0);
  EXPECT_FALSE(scaling.truncate);
  EXPECT_EQ(scaling.attention_factor, 0.75);
}

TEST(RopeFieldsTest, YarnMagnitudesGiveTheAttentionFactorOnlyTogether) {
  EXPECT_DOUBLE_EQ(ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 2,
                                   "mscale_all_dim": 0.5}})")
                       .attention_factor,
                   (0.2 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0));
  for (const char* change :
       {R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 2}})",
        R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 2, "mscale_all_dim": 0}})"}) {
    EXPECT_DOUBLE_EQ(ReadScaling(change).attention_factor, 0.1 * std::log(4.0) + 1.0) << change;
  }
  EXPECT_EQ(ReadScaling(R"({"rope_scaling": {"type": "yarn", "factor": 1}})").attention_factor,
            1.0);
}

TEST(RopeFieldsTest, ObjectsByTypeOfLayerMustBeAlike) {
  const ModelConfig config = Read(
      R"({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 7.0}}})");
  EXPECT_THAT(config.rope_theta, Optional(7.0));
  EXPECT_THAT(
      ParseModelConfig(With(kLlama, R"({"rope_parameters": {"full_attention": {"rope_theta": 7.0},
                                                  "sliding_attention": {"rope_theta": 8.0}}})")),
      IsUnimplemented("rope_parameters.full_attention and"));
}

TEST(RopeFieldsTest, RopeScalingCountsBeforeRopeParameters) {
  const char kBoth[] = R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0},
                           "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})";
  const ModelConfig config = Read(kBoth);
  EXPECT_THAT(config.rope_theta, Optional(1000.0));
  ASSERT_TRUE(config.rope_scaling.has_value());
  EXPECT_EQ(config.rope_scaling->factor, 2.0);
  const auto without_theta =
      ParseModelConfig(With(With(kLlama, R"({"rope_theta": "absent"})"), kBoth));
  ASSERT_THAT(without_theta, IsOk());
  EXPECT_THAT(without_theta->rope_theta, Optional(5.0));
}

std::string Scaling(const std::string& members) { return R"({"rope_scaling": {)" + members + "}}"; }

class RefusedRopeTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedRopeTest, NamesTheFieldAndItsValue) { ExpectRefused(GetParam()); }

constexpr char kYarn[] = R"("rope_type": "yarn", "factor": 4.0, )";
constexpr char kLlama3[] = R"("rope_type": "llama3", "factor": 4.0, )";

INSTANTIATE_TEST_SUITE_P(
    All, RefusedRopeTest,
    ::testing::Values(
        Refusal{"string", kLlama, R"({"rope_scaling": "linear"})", kBad,
                "rope_scaling is 'linear'"},
        Refusal{"untyped", kLlama, Scaling(R"("factor": 2)"), kBad,
                "rope_scaling.rope_type is missing"},
        Refusal{"dynamic", kLlama, Scaling(R"("rope_type": "dynamic", "factor": 2.0)"),
                kUnsupported, "rope_scaling.rope_type is 'dynamic', supported are"},
        Refusal{"longrope", kLlama, R"({"rope_parameters": {"rope_type": "longrope"}})",
                kUnsupported, "rope_parameters.rope_type is 'longrope'"},
        Refusal{"type_number", kLlama, Scaling(R"("type": 5)"), kBad, "rope_scaling.type is 5"},
        Refusal{"partial", kLlama, R"({"partial_rotary_factor": 0.5})", kUnsupported,
                "partial_rotary_factor is 0.5"},
        Refusal{"partial_inside", kLlama, R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
                kUnsupported, "rope_parameters.partial_rotary_factor is 0.5"},
        Refusal{"linear_without_factor", kLlama, Scaling(R"("type": "linear")"), kBad,
                "rope_scaling.factor is missing"},
        Refusal{"factor_below_one", kLlama, Scaling(R"("type": "linear", "factor": 0.5)"), kBad,
                "rope_scaling.factor is 0.5, it must be between 1 and"},
        Refusal{"factor_negative", kLlama, Scaling(R"("type": "linear", "factor": -2)"), kBad,
                "rope_scaling.factor is -2"},
        Refusal{"factor_string", kLlama, Scaling(R"("type": "linear", "factor": "2")"), kBad,
                "rope_scaling.factor is '2'"},
        Refusal{"llama3_without_factor", kLlama, Scaling(R"("type": "llama3")"), kBad,
                "rope_scaling.factor is missing"},
        Refusal{"llama3_without_low", kLlama, Scaling(R"("type": "llama3", "factor": 2)"), kBad,
                "rope_scaling.low_freq_factor is missing"},
        Refusal{"llama3_without_high", kLlama,
                Scaling(std::string(kLlama3) + R"("low_freq_factor": 1)"), kBad,
                "rope_scaling.high_freq_factor is missing"},
        Refusal{"llama3_low_above_high", kLlama,
                Scaling(std::string(kLlama3) + R"("low_freq_factor": 4, "high_freq_factor": 4)"),
                kBad, "rope_scaling.high_freq_factor is 4, it must be above"},
        Refusal{"llama3_low_zero", kLlama,
                Scaling(std::string(kLlama3) + R"("low_freq_factor": 0, "high_freq_factor": 4)"),
                kBad, "rope_scaling.low_freq_factor is 0"},
        Refusal{"original_zero", kLlama,
                Scaling(std::string(kYarn) + R"("original_max_position_embeddings": 0)"), kBad,
                "rope_scaling.original_max_position_embeddings is 0"},
        Refusal{"original_float", kLlama,
                Scaling(std::string(kYarn) + R"("original_max_position_embeddings": 32.0)"), kBad,
                "rope_scaling.original_max_position_embeddings is 32.0"},
        Refusal{"beta_order", kLlama,
                Scaling(std::string(kYarn) + R"("beta_fast": 1, "beta_slow": 32)"), kBad,
                "rope_scaling.beta_fast is 1, it must be above rope_scaling.beta_slow"},
        Refusal{"beta_slow_zero", kLlama, Scaling(std::string(kYarn) + R"("beta_slow": 0)"), kBad,
                "rope_scaling.beta_slow is 0"},
        Refusal{"attention_factor_zero", kLlama,
                Scaling(std::string(kYarn) + R"("attention_factor": 0)"), kBad,
                "rope_scaling.attention_factor is 0"},
        Refusal{"truncate_number", kLlama, Scaling(std::string(kYarn) + R"("truncate": 1)"), kBad,
                "rope_scaling.truncate is 1"},
        Refusal{"yarn_theta_one", kLlama, R"({"rope_theta": 1, "rope_scaling": {"type": "yarn",
                "factor": 2}})",
                kBad, "rope_theta is 1, YaRN needs one above 1"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
