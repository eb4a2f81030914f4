#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "model/config/config_reader.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kCs336[] = R"({"vocab_size": 512, "context_length": 128, "d_model": 64,
    "num_layers": 5, "num_heads": 8, "d_ff": 172, "rope_theta": 10000.0})";
constexpr char kQwen3Mha[] = R"({"model_type": "qwen3_mha", "d_model": 24, "n_head": 3,
    "d_hidden": 41, "n_layer": 2, "vocab_size": 61})";

TEST(CourseFamiliesTest, ReadsCs336) {
  const auto config = ParseModelConfig(kCs336);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "cs336");
  EXPECT_EQ(config->architecture, "TransformerLM");
  EXPECT_EQ(config->naming, TensorNaming::kCs336);
  EXPECT_EQ(config->vocab_size, 512);
  EXPECT_EQ(config->context_length, 128);
  EXPECT_EQ(config->d_model, 64);
  EXPECT_EQ(config->num_layers, 5);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 8);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->d_ff, 172);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_THAT(config->rope_theta, Optional(10000.0));
  EXPECT_EQ(config->rope_layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_FALSE(config->bos_token_id.has_value());
}

TEST(CourseFamiliesTest, Cs336WithoutThetaHasNoPositions) {
  for (const char* change : {R"({"rope_theta": null})", R"({"rope_theta": "absent"})"}) {
    const auto config = ParseModelConfig(With(kCs336, change));
    ASSERT_THAT(config, IsOk());
    EXPECT_FALSE(config->rope_theta.has_value()) << change;
  }
}

TEST(CourseFamiliesTest, Cs336TakesItsOwnEpsAndIntegerTheta) {
  const auto config =
      ParseModelConfig(With(kCs336, R"({"model_type": "cs336", "eps": 1e-6, "rope_theta": 500})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_THAT(config->rope_theta, Optional(500.0));
}

TEST(CourseFamiliesTest, Cs336TakesTheUngatedAblations) {
  const std::pair<const char*, FfnKind> kCases[] = {{"swiglu", FfnKind::kSwiGlu},
                                                    {"silu", FfnKind::kSilu},
                                                    {"relu", FfnKind::kRelu},
                                                    {"gelu", FfnKind::kGelu}};
  for (const auto& [name, kind] : kCases) {
    const auto config =
        ParseModelConfig(With(kCs336, R"({"ffn_type": ")" + std::string(name) + R"("})"));
    ASSERT_THAT(config, IsOk()) << name;
    EXPECT_EQ(config->ffn_kind, kind) << name;
    EXPECT_EQ(config->ffn_names.up, config->gated_ffn() ? 3 : 1) << name;
    EXPECT_EQ(config->ffn_names.down, 2) << name;
  }
}

TEST(CourseFamiliesTest, Cs336PassesOverWhatTheNotebookKeepsBeside) {
  EXPECT_THAT(ParseModelConfig(With(kCs336, R"({"device": "cuda", "weight_decay": 0.1,
                                                "optimizer": {"betas": [0.9, 0.95]}})")),
              IsOk());
}

TEST(CourseFamiliesTest, ReadsQwen3Mha) {
  const auto config = ParseModelConfig(kQwen3Mha);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "qwen3_mha");
  EXPECT_EQ(config->naming, TensorNaming::kQwen3Mha);
  EXPECT_EQ(config->vocab_size, 61);
  EXPECT_EQ(config->context_length, 8192);
  EXPECT_EQ(config->d_model, 24);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 3);
  EXPECT_EQ(config->num_kv_heads, 3);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->d_ff, 41);
  EXPECT_EQ(config->norm_kind, NormKind::kRms);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_THAT(config->rope_theta, Optional(10000.0));
  EXPECT_EQ(config->rope_layout, RopeLayout::kHalf);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_EQ(config->ffn_kind, FfnKind::kSwiGlu);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(CourseFamiliesTest, Qwen3MhaTakesItsOwnValuesAndOtherSpellings) {
  const auto own = ParseModelConfig(
      With(kQwen3Mha, R"({"max_seq_len": 96, "rope_theta": 5000, "rms_norm_eps": 1e-5})"));
  ASSERT_THAT(own, IsOk());
  EXPECT_EQ(own->context_length, 96);
  EXPECT_THAT(own->rope_theta, Optional(5000.0));
  EXPECT_EQ(own->norm_eps, 1e-5);
  const auto other = ParseModelConfig(
      R"({"model_type": "qwen3_mha", "d_model": 24, "num_heads": 3, "d_ff": 41, "num_layers": 2,
          "vocab_size": 61, "context_length": 77})");
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->context_length, 77);
  EXPECT_EQ(other->d_ff, 41);
}

class RefusedCourseTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedCourseTest, NamesTheFieldAndItsValue) { ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    All, RefusedCourseTest,
    ::testing::Values(
        Refusal{"cs336_ffn_type", kCs336, R"({"ffn_type": "geglu"})", kBad,
                "ffn_type is 'geglu', it must be one of swiglu, silu, relu, gelu"},
        Refusal{"cs336_heads", kCs336, R"({"num_heads": "absent"})", kBad, "num_heads is missing"},
        Refusal{"cs336_context", kCs336, R"({"context_length": "absent"})", kBad,
                "context_length is missing"},
        Refusal{"qwen3_mha_width", kQwen3Mha, R"({"d_hidden": "absent"})", kBad, "d_ff is missing"},
        Refusal{"qwen3_mha_heads", kQwen3Mha, R"({"n_head": 5})", kBad,
                "d_model is 24, it must be a multiple of n_head, which is 5"},
        Refusal{"qwen3_mha_context", kQwen3Mha, R"({"max_seq_len": -1})", kBad,
                "max_seq_len is -1"},
        Refusal{"qwen3_mha_odd", kQwen3Mha, R"({"n_head": 8})", kBad, "head_dim is 3"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
