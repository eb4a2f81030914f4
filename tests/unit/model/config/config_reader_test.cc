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
  const ModelConfig course = Parsed(kCs336);
  EXPECT_EQ(course.model_type, "cs336");
  const ModelConfig qwen =
      Parsed(R"({"d_model": 8, "n_head": 2, "d_hidden": 16, "n_layer": 1, "vocab_size": 9})");
  EXPECT_EQ(qwen.model_type, "qwen3_mha");
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
    const ModelConfig config = Parsed(With(kLlama, change));
    EXPECT_EQ(config.weights_dtype, dtype) << change;
  }
  EXPECT_EQ(ParseModelConfig(With(kLlama, R"({"torch_dtype": "int8"})")).status().message(),
            "torch_dtype is 'int8', supported are float32, bfloat16, float16 and float64");
  EXPECT_THAT(ParseModelConfig(With(kLlama, R"({"dtype": 7})")), IsInvalidArgument("dtype"));
}

TEST(ConfigReaderTest, TokenIdsLeftOutAreTheFamilysAndNullIsNone) {
  const ModelConfig left_out = Parsed(kLlama);
  EXPECT_THAT(left_out.bos_token_id, Optional(1));
  EXPECT_THAT(left_out.eos_token_ids, ElementsAre(2));
  const ModelConfig none = Parsed(With(kLlama, R"({"bos_token_id": null, "eos_token_id": null})"));
  EXPECT_FALSE(none.bos_token_id.has_value());
  EXPECT_THAT(none.eos_token_ids, IsEmpty());
}

TEST(ConfigReaderTest, TheFamilysOwnIdsOutsideASmallVocabularyAreNone) {
  for (const char* change : {"{}", R"({"bos_token_id": 50256, "eos_token_id": 50256})",
                             R"({"eos_token_id": [50256]})"}) {
    const ModelConfig config = Parsed(With(kGpt2, change));
    EXPECT_FALSE(config.bos_token_id.has_value()) << change;
    EXPECT_THAT(config.eos_token_ids, IsEmpty()) << change;
  }
  EXPECT_THAT(ParseModelConfig(With(kGpt2, R"({"eos_token_id": 50255})")),
              IsInvalidArgument("eos_token_id is 50255"));
  const ModelConfig large = Parsed(With(kGpt2, R"({"vocab_size": 50257})"));
  EXPECT_THAT(large.bos_token_id, Optional(50256));
  EXPECT_THAT(large.eos_token_ids, ElementsAre(50256));
}

TEST(RefusedConfigTest, NamesTheFieldAndItsValue) {
  ExpectRefused(
      kLlama,
      {{R"({"vocab_size": "absent"})", "vocab_size is missing"},
       {R"({"hidden_size": "absent"})", "hidden_size is missing"},
       {R"({"intermediate_size": "absent"})", "intermediate_size is missing"},
       {R"({"num_hidden_layers": "absent"})", "num_hidden_layers is missing"},
       {R"({"num_attention_heads": "absent"})", "num_attention_heads is missing"},
       {R"({"max_position_embeddings": "absent"})", "max_position_embeddings is missing"},
       {R"({"model_type": "absent"})", "model_type is missing"},
       {R"({"hidden_size": "64"})", "hidden_size is '64', it must be an integer"},
       {R"({"hidden_size": true})", "hidden_size is true"},
       {R"({"hidden_size": [64]})", "hidden_size is an array of 1"},
       {R"({"hidden_size": {"a": 1}})", "hidden_size is an object"},
       {R"({"hidden_size": 64.5})", "hidden_size is 64.5"},
       {R"({"hidden_size": 64.0})", "hidden_size is 64.0"},
       {R"({"hidden_size": 1e30})", "hidden_size is 1e+30"},
       {R"({"hidden_size": 18446744073709551615})", "hidden_size is 18446744073709551615"},
       {R"({"hidden_size": 131073})", "hidden_size is 131073, it must be between 1 and 131072"},
       {R"({"num_hidden_layers": 0})", "num_hidden_layers is 0"},
       {R"({"num_attention_heads": 7})",
        "hidden_size is 64, it must be a multiple of num_attention_heads, which is 7"},
       {R"({"num_key_value_heads": 3})", "num_kv_heads, which is 3"},
       {R"({"head_dim": 9})", "head_dim is 9"},
       {R"({"rms_norm_eps": 0})", "norm_eps is 0"},
       {R"({"eos_token_id": 512})", "eos_token_id is 512, it must be between 0 and 511"},
       {R"({"eos_token_id": [1, 2.5]})", "eos_token_id[] is 2.5"},
       {R"({"eos_token_id": "</s>"})", "eos_token_id is '</s>'"},
       {R"({"bos_token_id": -1})", "bos_token_id is -1"},
       {R"({"tie_word_embeddings": 1})", "tie_word_embeddings is 1, it must be true or false"},
       {R"({"model_type": 5})", "model_type is 5"},
       {R"({"architectures": [5]})", "architectures[] is 5"},
       {R"({"rope_scaling": "linear"})", "rope_scaling is 'linear'"},
       {R"({"model_type": "mamba"})",
        "model_type is 'mamba', supported are cs336, qwen3_mha, transformer_lm, gpt2, "
        "llama, mistral, qwen2, qwen3",
        kUnsupported},
       {R"({"quantization_config": {"quant_method": "bitsandbytes"}})",
        "quant_method is 'bitsandbytes'", kUnsupported}});
  ExpectRefused(
      kCs336,
      {{R"({"d_ff": "absent"})", "d_ff is missing"},
       {R"({"d_model": "absent"})", "d_model is missing"},
       {R"({"num_layers": -3})", "num_layers is -3, it must be between 1 and 4096"},
       {R"({"num_heads": 0})", "num_heads is 0"},
       {R"({"num_heads": 7})", "d_model is 64, it must be a multiple of num_heads, which is 7"},
       {R"({"rope_theta": "big"})", "rope_theta is 'big'"},
       {R"({"rope_theta": -1})", "rope_theta is -1"},
       {R"({"eps": {}})", "eps is an object"}});
}

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

// Of a directory with these files.
absl::StatusOr<ModelConfig> ReadFiles(const std::map<std::string, std::string>& files) {
  const TempDir dir;
  for (const auto& [name, text] : files) dir.Write(name, text);
  return ReadModelConfig(dir.path() + "/");
}

TEST(ConfigReaderTest, DirectoryPrefersConfigJsonToTheCoursesFile) {
  EXPECT_EQ(ReadFiles({{"config.json", kLlama}, {"model_config.json", kCs336}})->model_type,
            "llama");
  EXPECT_EQ(ReadFiles({{"model_config.json", kCs336}})->model_type, "cs336");
  EXPECT_THAT(ReadFiles({}), IsNotFound("neither config.json nor model_config.json"));
}

TEST(ConfigReaderTest, ErrorsNameTheFileAndItsSizeLimit) {
  const TempDir dir;
  dir.Write("config.json", "{");
  EXPECT_THAT(ReadModelConfig(dir.path()), IsInvalidArgument("/config.json: "));
  EXPECT_THAT(ReadFiles({{"config.json", std::string((size_t{16} << 20) + 1, ' ')}}),
              IsInvalidArgument("16777217 bytes", "limit is 16777216"));
}

TEST(ConfigReaderTest, GenerationConfigReplacesTheEndOfSequenceIds) {
  const auto ids = [](const std::string& config, const char* generation) {
    const auto read = ReadFiles({{"config.json", config}, {"generation_config.json", generation}});
    EXPECT_THAT(read, IsOk());
    return read.value_or(ModelConfig()).eos_token_ids;
  };
  const std::string three = With(kLlama, R"({"eos_token_id": 3})");
  EXPECT_THAT(ids(three, R"({"eos_token_id": [4, 5], "temperature": 0.6})"), ElementsAre(4, 5));
  EXPECT_THAT(ids(three, R"({"eos_token_id": null})"), ElementsAre(3)) << "none there";
  EXPECT_THAT(ids(kGpt2, R"({"eos_token_id": 50256})"), IsEmpty())
      << "the family's, outside the vocabulary";
}

TEST(ConfigReaderTest, BadGenerationConfigIsAnErrorThatNamesIt) {
  for (const char* text : {"{", R"({"eos_token_id": 512})", R"({"eos_token_id": "x"})", "[]"}) {
    EXPECT_THAT(ReadFiles({{"config.json", kLlama}, {"generation_config.json", text}}),
                IsInvalidArgument("generation_config.json: "))
        << text;
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
