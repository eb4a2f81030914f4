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

ModelConfig Read(const char* change) { return Parsed(With(kLlama, change)); }

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
  const ModelConfig without_theta =
      Parsed(With(With(kLlama, R"({"rope_theta": "absent"})"), kBoth));
  EXPECT_THAT(without_theta.rope_theta, Optional(5.0));
}

std::string Scaling(const std::string& members) { return R"({"rope_scaling": {)" + members + "}}"; }

constexpr char kYarn[] = R"("rope_type": "yarn", "factor": 4.0, )";
constexpr char kLlama3[] = R"("rope_type": "llama3", "factor": 4.0, )";

TEST(RefusedRopeTest, NamesTheFieldAndItsValue) {
  ExpectRefused(
      kLlama,
      {{R"({"rope_scaling": "linear"})", "rope_scaling is 'linear'"},
       {Scaling(R"("factor": 2)"), "rope_scaling.rope_type is missing"},
       {Scaling(R"("rope_type": "dynamic", "factor": 2.0)"),
        "rope_scaling.rope_type is 'dynamic', supported are", kUnsupported},
       {R"({"rope_parameters": {"rope_type": "longrope"}})",
        "rope_parameters.rope_type is 'longrope'", kUnsupported},
       {Scaling(R"("type": 5)"), "rope_scaling.type is 5"},
       {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is 0.5", kUnsupported},
       {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
        "rope_parameters.partial_rotary_factor is 0.5", kUnsupported},
       {Scaling(R"("type": "linear")"), "rope_scaling.factor is missing"},
       {Scaling(R"("type": "linear", "factor": 0.5)"),
        "rope_scaling.factor is 0.5, it must be between 1 and"},
       {Scaling(R"("type": "linear", "factor": -2)"), "rope_scaling.factor is -2"},
       {Scaling(R"("type": "linear", "factor": "2")"), "rope_scaling.factor is '2'"},
       {Scaling(R"("type": "llama3")"), "rope_scaling.factor is missing"},
       {Scaling(R"("type": "llama3", "factor": 2)"), "rope_scaling.low_freq_factor is missing"},
       {Scaling(std::string(kLlama3) + R"("low_freq_factor": 1)"),
        "rope_scaling.high_freq_factor is missing"},
       {Scaling(std::string(kLlama3) + R"("low_freq_factor": 4, "high_freq_factor": 4)"),
        "rope_scaling.high_freq_factor is 4, it must be above"},
       {Scaling(std::string(kLlama3) + R"("low_freq_factor": 0, "high_freq_factor": 4)"),
        "rope_scaling.low_freq_factor is 0"},
       {Scaling(std::string(kYarn) + R"("original_max_position_embeddings": 0)"),
        "rope_scaling.original_max_position_embeddings is 0"},
       {Scaling(std::string(kYarn) + R"("original_max_position_embeddings": 32.0)"),
        "rope_scaling.original_max_position_embeddings is 32.0"},
       {Scaling(std::string(kYarn) + R"("beta_fast": 1, "beta_slow": 32)"),
        "rope_scaling.beta_fast is 1, it must be above rope_scaling.beta_slow"},
       {Scaling(std::string(kYarn) + R"("beta_slow": 0)"), "rope_scaling.beta_slow is 0"},
       {Scaling(std::string(kYarn) + R"("attention_factor": 0)"),
        "rope_scaling.attention_factor is 0"},
       {Scaling(std::string(kYarn) + R"("truncate": 1)"), "rope_scaling.truncate is 1"},
       {R"({"rope_theta": 1, "rope_scaling": {"type": "yarn",
                "factor": 2}})",
        "rope_theta is 1, YaRN needs one above 1"}});
}

}  // namespace
}  // namespace tlm
