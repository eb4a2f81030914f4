#include "model/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kCs336[] = R"({"vocab_size": 512, "context_length": 128, "d_model": 64,
    "num_layers": 5, "num_heads": 8, "d_ff": 172, "rope_theta": 10000.0})";
constexpr char kLlama[] = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "max_position_embeddings": 128})";
constexpr char kQwen3[] = R"({"model_type": "qwen3", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 128})";

// `base` with the members of `changes` put in; a member "absent" is taken out instead.
std::string With(const char* base, const char* changes) {
  nlohmann::json config = nlohmann::json::parse(base);
  const nlohmann::json changed = nlohmann::json::parse(changes);
  for (const auto& [key, value] : changed.items()) {
    if (value == "absent") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump();
}

TEST(ConfigReaderTest, ReadsCs336) {
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

TEST(ConfigReaderTest, Cs336WithoutThetaHasNoPositions) {
  for (const char* change : {R"({"rope_theta": null})", R"({"rope_theta": "absent"})"}) {
    const auto config = ParseModelConfig(With(kCs336, change));
    ASSERT_THAT(config, IsOk());
    EXPECT_FALSE(config->rope_theta.has_value()) << change;
  }
}

TEST(ConfigReaderTest, Cs336TakesItsOwnEpsAndIntegerTheta) {
  const auto config =
      ParseModelConfig(With(kCs336, R"({"model_type": "cs336", "eps": 1e-6, "rope_theta": 500})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_THAT(config->rope_theta, Optional(500.0));
}

TEST(ConfigReaderTest, LlamaFillsInWhatHuggingFaceDoes) {
  const auto config = ParseModelConfig(kLlama);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->naming, TensorNaming::kHuggingFace);
  EXPECT_EQ(config->num_kv_heads, 8);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_THAT(config->rope_theta, Optional(10000.0));
  EXPECT_EQ(config->rope_layout, RopeLayout::kHalf);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->bos_token_id, Optional(1));
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(ConfigReaderTest, Qwen3FillsInWhatHuggingFaceDoes) {
  const auto config = ParseModelConfig(kQwen3);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "qwen3");
  EXPECT_EQ(config->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_FALSE(config->bos_token_id.has_value());
}

TEST(ConfigReaderTest, ExplicitValuesReplaceDefaults) {
  const auto config = ParseModelConfig(
      With(kLlama, R"({"num_key_value_heads": 4, "head_dim": 16, "rms_norm_eps": 1e-5,
                       "rope_theta": 500000.0, "tie_word_embeddings": true, "bos_token_id": 7,
                       "eos_token_id": [9, 8], "architectures": ["Mine"]})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_THAT(config->rope_theta, Optional(500000.0));
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->bos_token_id, Optional(7));
  EXPECT_THAT(config->eos_token_ids, ElementsAre(9, 8));
  EXPECT_EQ(config->architecture, "Mine");
}

TEST(ConfigReaderTest, NullMeansNoneForTokenIdsAndDefaultForTheRest) {
  const auto config = ParseModelConfig(
      With(kLlama, R"({"bos_token_id": null, "eos_token_id": null, "head_dim": null,
                       "num_key_value_heads": null, "rope_scaling": null})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_FALSE(config->bos_token_id.has_value());
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->num_kv_heads, 8);
}

TEST(ConfigReaderTest, ReadsThetaFromRopeParameters) {
  const auto config = ParseModelConfig(With(
      kQwen3,
      R"({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->rope_theta, Optional(5e6));
}

TEST(ConfigReaderTest, AcceptsVariantsThatChangeNothing) {
  for (const char* change :
       {R"({"rope_scaling": {"type": "default"}})", R"({"partial_rotary_factor": 1.0})",
        R"({"use_sliding_window": true, "sliding_window": 128})",
        R"({"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 5})",
        R"({"use_sliding_window": false, "sliding_window": 4})",
        R"({"layer_types": ["full_attention", "full_attention"]})",
        R"({"attention_bias": false, "mlp_bias": false, "hidden_act": "silu"})",
        R"({"quantization_config": null})", R"({"something_else": {"entirely": [1, 2]}})"}) {
    EXPECT_THAT(ParseModelConfig(With(kQwen3, change)), IsOk()) << change;
  }
}

struct Refusal {
  const char* name;
  const char* base;
  const char* change;
  absl::StatusCode code;
  std::string message;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class RefusedConfigTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfigTest, NamesTheFieldAndItsValue) {
  const Refusal& refusal = GetParam();
  EXPECT_THAT(ParseModelConfig(With(refusal.base, refusal.change)),
              StatusIs(refusal.code, HasSubstr(refusal.message)));
}

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

INSTANTIATE_TEST_SUITE_P(
    Wrong, RefusedConfigTest,
    ::testing::Values(
        Refusal{"missing_vocab", kLlama, R"({"vocab_size": "absent"})", kBad,
                "vocab_size is missing"},
        Refusal{"missing_hidden", kLlama, R"({"hidden_size": "absent"})", kBad,
                "hidden_size is missing"},
        Refusal{"missing_intermediate", kLlama, R"({"intermediate_size": "absent"})", kBad,
                "intermediate_size is missing"},
        Refusal{"missing_layers", kLlama, R"({"num_hidden_layers": "absent"})", kBad,
                "num_hidden_layers is missing"},
        Refusal{"missing_heads", kLlama, R"({"num_attention_heads": "absent"})", kBad,
                "num_attention_heads is missing"},
        Refusal{"missing_context", kLlama, R"({"max_position_embeddings": "absent"})", kBad,
                "max_position_embeddings is missing"},
        Refusal{"missing_d_ff", kCs336, R"({"d_ff": "absent"})", kBad, "d_ff is missing"},
        Refusal{"missing_d_model", kCs336, R"({"d_model": "absent"})", kBad, "d_model is missing"},
        Refusal{"missing_model_type", kLlama, R"({"model_type": "absent"})", kBad,
                "model_type is missing"},
        Refusal{"string_size", kLlama, R"({"hidden_size": "64"})", kBad,
                "hidden_size is '64', it must be an integer"},
        Refusal{"boolean_size", kLlama, R"({"hidden_size": true})", kBad, "hidden_size is true"},
        Refusal{"array_size", kLlama, R"({"hidden_size": [64]})", kBad,
                "hidden_size is an array of 1"},
        Refusal{"object_size", kLlama, R"({"hidden_size": {"a": 1}})", kBad,
                "hidden_size is an object"},
        Refusal{"fraction", kLlama, R"({"hidden_size": 64.5})", kBad, "hidden_size is 64.5"},
        Refusal{"float_whole", kLlama, R"({"hidden_size": 64.0})", kBad, "hidden_size is 64.0"},
        Refusal{"huge_float", kLlama, R"({"hidden_size": 1e30})", kBad, "hidden_size is 1e+30"},
        Refusal{"huge_unsigned", kLlama, R"({"hidden_size": 18446744073709551615})", kBad,
                "hidden_size is 18446744073709551615"},
        Refusal{"above_limit", kLlama, R"({"hidden_size": 131073})", kBad,
                "hidden_size is 131073, it must be between 1 and 131072"},
        Refusal{"zero", kLlama, R"({"num_hidden_layers": 0})", kBad, "num_hidden_layers is 0"},
        Refusal{"negative", kCs336, R"({"num_layers": -3})", kBad,
                "num_layers is -3, it must be between 1 and 4096"},
        Refusal{"zero_heads", kCs336, R"({"num_heads": 0})", kBad, "num_heads is 0"},
        Refusal{"uneven_heads", kLlama, R"({"num_attention_heads": 7})", kBad,
                "hidden_size is 64, it must be a multiple of num_attention_heads, which is 7"},
        Refusal{"uneven_cs336", kCs336, R"({"num_heads": 7})", kBad,
                "d_model is 64, it must be a multiple of num_heads, which is 7"},
        Refusal{"uneven_groups", kQwen3, R"({"num_key_value_heads": 3})", kBad,
                "num_kv_heads, which is 3"},
        Refusal{"odd_head_dim", kQwen3, R"({"head_dim": 9})", kBad, "head_dim is 9"},
        Refusal{"theta_string", kCs336, R"({"rope_theta": "big"})", kBad, "rope_theta is 'big'"},
        Refusal{"theta_negative", kCs336, R"({"rope_theta": -1})", kBad, "rope_theta is -1"},
        Refusal{"eps_zero", kLlama, R"({"rms_norm_eps": 0})", kBad, "norm_eps is 0"},
        Refusal{"eps_object", kCs336, R"({"eps": {}})", kBad, "eps is an object"},
        Refusal{"eos_outside", kLlama, R"({"eos_token_id": 512})", kBad,
                "eos_token_id is 512, it must be between 0 and 511"},
        Refusal{"eos_fraction", kLlama, R"({"eos_token_id": [1, 2.5]})", kBad,
                "eos_token_id[] is 2.5"},
        Refusal{"eos_string", kLlama, R"({"eos_token_id": "</s>"})", kBad,
                "eos_token_id is '</s>'"},
        Refusal{"bos_negative", kLlama, R"({"bos_token_id": -1})", kBad, "bos_token_id is -1"},
        Refusal{"tie_number", kLlama, R"({"tie_word_embeddings": 1})", kBad,
                "tie_word_embeddings is 1, it must be true or false"},
        Refusal{"model_type_number", kLlama, R"({"model_type": 5})", kBad, "model_type is 5"},
        Refusal{"architectures_number", kLlama, R"({"architectures": [5]})", kBad,
                "architectures[] is 5"},
        Refusal{"rope_scaling_string", kLlama, R"({"rope_scaling": "linear"})", kBad,
                "rope_scaling is 'linear'"},
        Refusal{"rope_scaling_untyped", kLlama, R"({"rope_scaling": {"factor": 2}})", kBad,
                "rope_scaling.rope_type is missing"},
        Refusal{"rope_per_layer_type", kLlama,
                R"({"rope_parameters": {"full_attention": {"rope_theta": 5}}})", kBad,
                "rope_parameters.rope_type is missing"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Unsupported, RefusedConfigTest,
    ::testing::Values(
        Refusal{"family", kLlama, R"({"model_type": "mamba"})", kUnsupported,
                "model_type is 'mamba', supported are cs336, llama, qwen3"},
        Refusal{"llama3_rope", kLlama, R"({"rope_scaling": {"rope_type": "llama3"}})", kUnsupported,
                "rope_scaling.rope_type is 'llama3'"},
        Refusal{"linear_rope", kLlama, R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
                kUnsupported, "'linear'"},
        Refusal{"yarn_rope", kQwen3,
                R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}})", kUnsupported,
                "rope_parameters.rope_type is 'yarn'"},
        Refusal{"partial_rope", kLlama, R"({"partial_rotary_factor": 0.5})", kUnsupported,
                "partial_rotary_factor is 0.5"},
        Refusal{"attention_bias", kLlama, R"({"attention_bias": true})", kUnsupported,
                "attention_bias is true"},
        Refusal{"mlp_bias", kLlama, R"({"mlp_bias": true})", kUnsupported, "mlp_bias is true"},
        Refusal{"activation", kQwen3, R"({"hidden_act": "gelu"})", kUnsupported,
                "hidden_act is 'gelu', only 'silu'"},
        Refusal{"sliding_window", kQwen3,
                R"({"use_sliding_window": true, "sliding_window": 127, "max_window_layers": 4})",
                kUnsupported, "use_sliding_window is true"},
        Refusal{"layer_types", kQwen3,
                R"({"layer_types": ["full_attention", "sliding_attention"]})", kUnsupported,
                "layer_types names 'sliding_attention'"},
        Refusal{"quantised", kLlama, R"({"quantization_config": {"quant_method": "awq"}})",
                kUnsupported, "quant_method is 'awq'"},
        Refusal{"ffn_type", kCs336, R"({"ffn_type": "relu"})", kUnsupported, "ffn_type is 'relu'"}),
    [](const auto& info) { return info.param.name; });

TEST(ConfigReaderTest, RefusesTextThatIsNotOneJsonObject) {
  EXPECT_THAT(ParseModelConfig(""), StatusIs(kBad, HasSubstr("not valid JSON")));
  EXPECT_THAT(ParseModelConfig("[1]"), StatusIs(kBad, HasSubstr("is array, not a JSON object")));
  EXPECT_THAT(ParseModelConfig("null"), StatusIs(kBad, HasSubstr("not a JSON object")));
  EXPECT_THAT(ParseModelConfig("{} {}"), StatusIs(kBad, HasSubstr("line 1, column 4")));
  EXPECT_THAT(ParseModelConfig("{\"rope_theta\": NaN}"),
              StatusIs(kBad, HasSubstr("line 1, column 16")));
  EXPECT_THAT(ParseModelConfig("{\"rope_theta\": 1e999}"),
              StatusIs(kBad, HasSubstr("number out of range")));
  EXPECT_THAT(ParseModelConfig("{\"d_model\": 1, \"d_model\": 2}"),
              StatusIs(kBad, HasSubstr("key 'd_model' occurs twice")));
  EXPECT_THAT(ParseModelConfig("{\"x\":" + std::string(100'000, '[')),
              StatusIs(kBad, HasSubstr("deeper than the limit of 64")));
}

TEST(ConfigReaderTest, DirectoryPrefersConfigJson) {
  const TempDir dir;
  dir.Write("config.json", kLlama);
  dir.Write("model_config.json", kCs336);
  const auto config = ReadModelConfig(dir.path());
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "llama");
}

TEST(ConfigReaderTest, DirectoryFallsBackToTheCoursesFile) {
  const TempDir dir;
  dir.Write("model_config.json", kCs336);
  const auto config = ReadModelConfig(dir.path() + "/");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "cs336");
}

TEST(ConfigReaderTest, DirectoryWithoutConfigIsNotFound) {
  const TempDir dir;
  EXPECT_THAT(ReadModelConfig(dir.path()),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("neither config.json nor model_config.json")));
}

TEST(ConfigReaderTest, ErrorsNameTheFile) {
  const TempDir dir;
  dir.Write("config.json", "{");
  EXPECT_THAT(ReadModelConfig(dir.path()), StatusIs(kBad, HasSubstr("/config.json: ")));
}

TEST(ConfigReaderTest, RefusesAFileOverTheSizeLimit) {
  const TempDir dir;
  dir.Write("config.json", std::string((size_t{16} << 20) + 1, ' '));
  EXPECT_THAT(ReadModelConfig(dir.path()),
              StatusIs(kBad, AllOf(HasSubstr("16777217 bytes"), HasSubstr("limit is 16777216"))));
}

TEST(ConfigReaderTest, GenerationConfigReplacesTheEndOfSequenceIds) {
  const TempDir dir;
  dir.Write("config.json", With(kLlama, R"({"eos_token_id": 3})"));
  dir.Write("generation_config.json", R"({"eos_token_id": [4, 5], "temperature": 0.6})");
  const auto config = ReadModelConfig(dir.path());
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(4, 5));
}

TEST(ConfigReaderTest, GenerationConfigWithoutEndOfSequenceIdsChangesNothing) {
  const TempDir dir;
  dir.Write("config.json", With(kLlama, R"({"eos_token_id": 3})"));
  dir.Write("generation_config.json", R"({"eos_token_id": null})");
  const auto config = ReadModelConfig(dir.path());
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3));
}

TEST(ConfigReaderTest, BadGenerationConfigIsAnErrorThatNamesIt) {
  const TempDir dir;
  dir.Write("config.json", kLlama);
  for (const char* text : {"{", R"({"eos_token_id": 512})", R"({"eos_token_id": "x"})", "[]"}) {
    dir.Write("generation_config.json", text);
    EXPECT_THAT(ReadModelConfig(dir.path()), StatusIs(kBad, HasSubstr("generation_config.json: ")))
        << text;
  }
}

TEST(ConfigReaderTest, ReadsPublishedConfigs) {
  const auto path = OraclePath("configs/config-Qwen3-0.6B.json");
  if (!path.has_value()) GTEST_SKIP() << "no oracle files beside the checkout";
  const TempDir dir;
  std::filesystem::copy_file(*path, dir.File("config.json"));
  const auto config = ReadModelConfig(dir.path());
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->vocab_size, 151936);
  EXPECT_EQ(config->context_length, 40960);
  EXPECT_EQ(config->d_model, 1024);
  EXPECT_EQ(config->num_layers, 28);
  EXPECT_EQ(config->q_size(), 2048);
  EXPECT_EQ(config->kv_size(), 1024);
  EXPECT_THAT(config->rope_theta, Optional(1e6));
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(151645));
}

TEST(ConfigReaderTest, ReadsPublishedDirectories) {
  if (!OraclePath("stories260K")) GTEST_SKIP() << "no oracle files beside the checkout";
  const auto course = ReadModelConfig(*OraclePath("stories260K/stories260K-cs336"));
  ASSERT_THAT(course, IsOk());
  EXPECT_EQ(course->model_type, "cs336");
  const auto llama = ReadModelConfig(*OraclePath("stories260K/stories260K-hf-llama"));
  ASSERT_THAT(llama, IsOk());
  EXPECT_EQ(llama->num_kv_heads, 4);
  EXPECT_TRUE(llama->tie_word_embeddings);
  EXPECT_THAT(ReadModelConfig(*OraclePath("tiny/qwen3-tiny-untied")), IsOk());
  EXPECT_THAT(ReadModelConfig(*OraclePath("tiny/llama-tiny-plain")), IsOk());
}

}  // namespace
}  // namespace tlm
