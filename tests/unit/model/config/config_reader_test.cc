#include "model/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kCs336[] = R"({"vocab_size": 512, "context_length": 128, "d_model": 64,
    "num_layers": 5, "num_heads": 8, "d_ff": 172, "rope_theta": 10000.0})";
constexpr char kLlama[] = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "max_position_embeddings": 128})";

constexpr char kGpt2[] = R"({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64,
    "n_embd": 48, "n_layer": 3, "n_head": 6})";

TEST(ConfigReaderTest, KnowsTheCoursesFilesWithoutModelType) {
  const auto course = ParseModelConfig(kCs336);
  ASSERT_THAT(course, IsOk());
  EXPECT_EQ(course->model_type, "cs336");
  const auto qwen = ParseModelConfig(
      R"({"d_model": 8, "n_head": 2, "d_hidden": 16, "n_layer": 1, "vocab_size": 9})");
  ASSERT_THAT(qwen, IsOk());
  EXPECT_EQ(qwen->model_type, "qwen3_mha");
}

TEST(ConfigReaderTest, NamesTheTypeOfTheWeights) {
  for (const auto& [change, dtype] : std::map<std::string, std::string>{
           {"{}", "float32"},
           {R"({"torch_dtype": "bfloat16"})", "bfloat16"},
           {R"({"torch_dtype": "torch.half"})", "float16"},
           {R"({"dtype": "float16"})", "float16"},
           {R"({"torch_dtype": null, "dtype": "bfloat16"})", "bfloat16"},
           {R"({"torch_dtype": "float64"})", "float32"},
           {R"({"torch_dtype": "auto"})", "float32"}}) {
    const auto config = ParseModelConfig(With(kLlama, change));
    ASSERT_THAT(config, IsOk()) << change;
    EXPECT_EQ(config->weights_dtype, dtype) << change;
  }
  EXPECT_EQ(ParseModelConfig(With(kLlama, R"({"torch_dtype": "int8"})")).status().message(),
            "torch_dtype is 'int8', supported are float32, bfloat16, float16 and float64");
  EXPECT_THAT(ParseModelConfig(With(kLlama, R"({"dtype": 7})")), IsInvalidArgument("dtype"));
}

TEST(ConfigReaderTest, TokenIdsLeftOutAreTheFamilysAndNullIsNone) {
  const auto left_out = ParseModelConfig(kLlama);
  ASSERT_THAT(left_out, IsOk());
  EXPECT_THAT(left_out->bos_token_id, Optional(1));
  EXPECT_THAT(left_out->eos_token_ids, ElementsAre(2));
  const auto none =
      ParseModelConfig(With(kLlama, R"({"bos_token_id": null, "eos_token_id": null})"));
  ASSERT_THAT(none, IsOk());
  EXPECT_FALSE(none->bos_token_id.has_value());
  EXPECT_THAT(none->eos_token_ids, IsEmpty());
}

TEST(ConfigReaderTest, TheFamilysOwnIdsOutsideASmallVocabularyAreNone) {
  for (const char* change : {"{}", R"({"bos_token_id": 50256, "eos_token_id": 50256})",
                             R"({"eos_token_id": [50256]})"}) {
    const auto config = ParseModelConfig(With(kGpt2, change));
    ASSERT_THAT(config, IsOk()) << change;
    EXPECT_FALSE(config->bos_token_id.has_value()) << change;
    EXPECT_THAT(config->eos_token_ids, IsEmpty()) << change;
  }
  EXPECT_THAT(ParseModelConfig(With(kGpt2, R"({"eos_token_id": 50255})")),
              IsInvalidArgument("eos_token_id is 50255"));
  const auto large = ParseModelConfig(With(kGpt2, R"({"vocab_size": 50257})"));
  ASSERT_THAT(large, IsOk());
  EXPECT_THAT(large->bos_token_id, Optional(50256));
  EXPECT_THAT(large->eos_token_ids, ElementsAre(50256));
}

class RefusedConfigTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfigTest, NamesTheFieldAndItsValue) { ExpectRefused(GetParam()); }

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
        Refusal{"uneven_groups", kLlama, R"({"num_key_value_heads": 3})", kBad,
                "num_kv_heads, which is 3"},
        Refusal{"odd_head_dim", kLlama, R"({"head_dim": 9})", kBad, "head_dim is 9"},
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
        Refusal{"family", kLlama, R"({"model_type": "mamba"})", kUnsupported,
                "model_type is 'mamba', supported are cs336, qwen3_mha, transformer_lm, gpt2, "
                "llama, mistral, qwen2, qwen3"},
        Refusal{"quantised", kLlama, R"({"quantization_config": {"quant_method": "bitsandbytes"}})",
                kUnsupported, "quant_method is 'bitsandbytes'"}),
    [](const auto& info) { return info.param.name; });

TEST(ConfigReaderTest, RefusesTextThatIsNotOneJsonObject) {
  EXPECT_THAT(ParseModelConfig(""), IsInvalidArgument("not valid JSON"));
  EXPECT_THAT(ParseModelConfig("[1]"), IsInvalidArgument("is array, not a JSON object"));
  EXPECT_THAT(ParseModelConfig("null"), IsInvalidArgument("not a JSON object"));
  EXPECT_THAT(ParseModelConfig("{} {}"), IsInvalidArgument("line 1, column 4"));
  EXPECT_THAT(ParseModelConfig("{\"rope_theta\": NaN}"), IsInvalidArgument("line 1, column 16"));
  EXPECT_THAT(ParseModelConfig("{\"rope_theta\": 1e999}"),
              IsInvalidArgument("number out of range"));
  EXPECT_THAT(ParseModelConfig("{\"d_model\": 1, \"d_model\": 2}"),
              IsInvalidArgument("key 'd_model' occurs twice"));
  EXPECT_THAT(ParseModelConfig("{\"x\":" + std::string(100'000, '[')),
              IsInvalidArgument("deeper than the limit of 64"));
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
  EXPECT_THAT(ReadModelConfig(dir.path()), IsNotFound("neither config.json nor model_config.json"));
}

TEST(ConfigReaderTest, ErrorsNameTheFile) {
  const TempDir dir;
  dir.Write("config.json", "{");
  EXPECT_THAT(ReadModelConfig(dir.path()), IsInvalidArgument("/config.json: "));
}

TEST(ConfigReaderTest, RefusesAFileOverTheSizeLimit) {
  const TempDir dir;
  dir.Write("config.json", std::string((size_t{16} << 20) + 1, ' '));
  EXPECT_THAT(ReadModelConfig(dir.path()),
              IsInvalidArgument("16777217 bytes", "limit is 16777216"));
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

TEST(ConfigReaderTest, GenerationConfigMayRepeatTheFamilysIdsOutsideTheVocabulary) {
  const TempDir dir;
  dir.Write("config.json", kGpt2);
  dir.Write("generation_config.json", R"({"eos_token_id": 50256})");
  const auto config = ReadModelConfig(dir.path());
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
}

TEST(ConfigReaderTest, BadGenerationConfigIsAnErrorThatNamesIt) {
  const TempDir dir;
  dir.Write("config.json", kLlama);
  for (const char* text : {"{", R"({"eos_token_id": 512})", R"({"eos_token_id": "x"})", "[]"}) {
    dir.Write("generation_config.json", text);
    EXPECT_THAT(ReadModelConfig(dir.path()), IsInvalidArgument("generation_config.json: ")) << text;
  }
}

TEST(ConfigReaderTest, ReadsAPublishedConfig) {
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
  for (const char* name : {"tiny/qwen3-tiny-untied", "tiny/llama-tiny-plain",
                           "tiny/gpt2-tiny-gelu_new", "gpt2-tiny-recorded"}) {
    EXPECT_THAT(ReadModelConfig(*OraclePath(name)), IsOk()) << name;
  }
}

}  // namespace
}  // namespace tlm
