#include "model/config/quantisation_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/config/config_reader.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Format = QuantisationScheme::Format;

constexpr char kLlama[] = R"({
  "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128})";

std::string Text(const std::string& quantisation) {
  return R"({"quantization_config": )" + quantisation + "}";
}

std::vector<QuantisationScheme> Read(const std::string& quantisation) {
  const auto config = ParseModelConfig(With(kLlama, Text(quantisation)));
  EXPECT_THAT(config, IsOk());
  return config.ok() ? config->quantisation : std::vector<QuantisationScheme>();
}

TEST(QuantisationFieldsTest, NoneWithoutTheKeyOrWithNull) {
  EXPECT_THAT(Read("null"), IsEmpty());
  EXPECT_THAT(ParseModelConfig(kLlama)->quantisation, IsEmpty());
}

// As AutoAWQ writes it.
TEST(QuantisationFieldsTest, Awq) {
  const std::string text = R"({
    "backend": "autoawq", "bits": 4, "do_fuse": false, "exllama_config": null,
    "fuse_max_seq_len": null, "group_size": 128, "modules_to_fuse": null,
    "modules_to_not_convert": null, "quant_method": "awq", "version": "gemm",
    "zero_point": true})";
  const QuantisationScheme scheme{
      .format = Format::kAwq, .bits = 4, .group_size = 128, .symmetric = false};
  EXPECT_THAT(Read(text), ElementsAre(scheme));
}

TEST(QuantisationFieldsTest, AwqByItsOtherNamesWithoutZeros) {
  const QuantisationScheme scheme{
      .format = Format::kAwq, .bits = 4, .group_size = 0, .symmetric = true};
  EXPECT_THAT(Read(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": -1, "version": "GEMM",
                       "zero_point": false})"),
              ElementsAre(scheme));
}

// As GPTQModel writes it.
TEST(QuantisationFieldsTest, Gptq) {
  const std::string text = R"({
    "bits": 4, "checkpoint_format": "gptq", "desc_act": true, "dynamic": {"-:.*lm_head.*": {}},
    "group_size": 128, "hyb_act": false, "lm_head": false,
    "meta": {"damp_percent": 0.01, "mse": 0.0, "quantizer": ["gptqmodel:2.0.0"]},
    "pack_dtype": "int32", "quant_method": "gptq", "sym": true})";
  const QuantisationScheme scheme{.format = Format::kGptq,
                                  .bits = 4,
                                  .group_size = 128,
                                  .symmetric = true,
                                  .zeros_less_one = true,
                                  .act_order = true};
  EXPECT_THAT(Read(text), ElementsAre(scheme));
}

TEST(QuantisationFieldsTest, GptqInItsSecondVersion) {
  const QuantisationScheme scheme{
      .format = Format::kGptq, .bits = 8, .group_size = 32, .symmetric = false};
  EXPECT_THAT(Read(R"({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": false,
                       "desc_act": false, "checkpoint_format": "gptq_v2"})"),
              ElementsAre(scheme));
}

TEST(QuantisationFieldsTest, GptqOfStaticGroupsOrOneGroupNeedsNoOrder) {
  EXPECT_FALSE(Read(R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true,
                        "static_groups": true})")
                   .front()
                   .act_order);
  EXPECT_FALSE(Read(R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true})")
                   .front()
                   .act_order);
}

// As llm-compressor writes it.
TEST(QuantisationFieldsTest, CompressedTensorsOfTwoSchemes) {
  const std::string text = R"({
    "config_groups": {
      "group_0": {"format": "pack-quantized", "input_activations": null,
        "output_activations": null, "targets": ["Linear"],
        "weights": {"actorder": null, "block_structure": null, "dynamic": false,
          "group_size": 128, "num_bits": 4, "observer": "minmax", "observer_kwargs": {},
          "strategy": "group", "symmetric": false, "type": "int"}},
      "group_1": {"format": "int-quantized",
        "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token",
          "symmetric": true, "type": "int"},
        "output_activations": null, "targets": ["re:.*down_proj"],
        "weights": {"dynamic": false, "group_size": null, "num_bits": 8, "strategy": "channel",
          "symmetric": true, "type": "int"}}},
    "format": "mixed-precision", "global_compression_ratio": null, "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}})";
  const QuantisationScheme first{
      .format = Format::kPackQuantised, .bits = 4, .group_size = 128, .symmetric = false};
  const QuantisationScheme second{
      .format = Format::kIntQuantised, .bits = 8, .group_size = 0, .symmetric = true};
  EXPECT_THAT(Read(text), ElementsAre(first, second));
}

TEST(QuantisationFieldsTest, ActOrderOfCompressedTensors) {
  const auto reads = [](const std::string& order) {
    return Read(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights":
                      {"num_bits": 4, "group_size": 64, "actorder": )" +
                order + "}}}}")
        .front()
        .act_order;
  };
  EXPECT_TRUE(reads("\"group\""));
  EXPECT_FALSE(reads("\"weight\""));
  EXPECT_FALSE(reads("\"static\""));
  EXPECT_FALSE(reads("null"));
}

// As Qwen's checkpoints have it.
TEST(QuantisationFieldsTest, Fp8InBlocks) {
  const QuantisationScheme scheme{.format = Format::kFloat8Blocks,
                                  .bits = 8,
                                  .group_size = 128,
                                  .symmetric = true,
                                  .group_outputs = 64};
  EXPECT_THAT(Read(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                       "modules_to_not_convert": ["lm_head"], "weight_block_size": [64, 128]})"),
              ElementsAre(scheme));
}

TEST(QuantisationFieldsTest, Fp8WithOneScale) {
  const QuantisationScheme scheme{
      .format = Format::kFloat8, .bits = 8, .symmetric = true, .group_outputs = 0};
  EXPECT_THAT(Read(R"({"quant_method": "fp8", "activation_scheme": "static",
                       "ignored_layers": ["lm_head"]})"),
              ElementsAre(scheme));
}

// As llm-compressor writes its presets FP8_DYNAMIC, FP8 and FP8_BLOCK.
TEST(QuantisationFieldsTest, FloatsOfCompressedTensors) {
  const auto read = [](const std::string& inputs, const std::string& weights) {
    return Read(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
                    "config_groups": {"group_0": {"targets": ["Linear"],
                      "input_activations": {"dynamic": )" +
                inputs + R"(, "num_bits": 8, "strategy": "token", "type": "float"},
                      "weights": {"dynamic": false, "num_bits": 8, "type": "float",
                        "symmetric": true, )" +
                weights + "}}}}");
  };
  QuantisationScheme scheme{.format = Format::kFloat8, .bits = 8, .symmetric = true};
  EXPECT_THAT(read("true", R"("strategy": "channel")"), ElementsAre(scheme));
  scheme.group_outputs = 0;
  EXPECT_THAT(read("false", R"("strategy": "tensor")"), ElementsAre(scheme));
  scheme.group_outputs = 128;
  scheme.group_size = 64;
  EXPECT_THAT(read("true", R"("strategy": "block", "block_structure": [128, 64])"),
              ElementsAre(scheme));
  scheme.group_outputs = 1;
  EXPECT_THAT(read("true", R"("strategy": "group", "group_size": 64)"), ElementsAre(scheme));
}

TEST(QuantisationFieldsTest, OlderNameOfTheKey) {
  const ModelConfig config =
      Parsed(With(kLlama, R"({"compression_config": {"quant_method": "gptq", "bits": 4}})"));
  EXPECT_EQ(config.quantisation.size(), 1u);
}

std::string Awq(const std::string& change) {
  return Text(With(R"({"quant_method": "awq", "bits": 4})", change));
}
std::string Gptq(const std::string& change) {
  return Text(With(R"({"quant_method": "gptq", "bits": 4})", change));
}
// Changes of the whole, of the group and of its weights.
std::string Compressed(const std::string& whole, const std::string& group = "{}",
                       const std::string& weights = "{}") {
  const std::string changed = With(R"({"num_bits": 4, "group_size": 128})", weights);
  const std::string in_group =
      With(R"({"targets": ["Linear"], "weights": )" + changed + "}", group);
  return Text(With(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                       "config_groups": {"g": )" +
                       in_group + "}}",
                   whole));
}

std::string Floats(const std::string& weights) {
  return Compressed(R"({"format": "float-quantized"})", "{}",
                    With(R"({"type": "float", "num_bits": 8})", weights));
}
std::string Fp8(const std::string& change) {
  return Text(With(R"({"quant_method": "fp8"})", change));
}

const std::string kIn = "quantization_config.";
const std::string kGroup = kIn + "config_groups.g.";

TEST(RefusedQuantisationTest, NamesTheKeyAndItsValue) {
  ExpectRefused(
      kLlama,
      {{Text("\"awq\""), "quantization_config is 'awq'"},
       {Text("{}"), "quant_method is 'absent'", kUnsupported},
       {Text(R"({"quant_method": "bitsandbytes"})"),
        "quant_method is 'bitsandbytes', supported: awq, gptq, compressed-tensors, fp8",
        kUnsupported},
       {Awq(R"({"bits": 8})"), kIn + "bits is 8, supported: 4", kUnsupported},
       {Awq(R"({"bits": "absent"})"), "bits is missing"},
       {Awq(R"({"version": "gemv"})"), "version is 'gemv', supported: gemm", kUnsupported},
       {Awq(R"({"version": "marlin"})"), "version is 'marlin'", kUnsupported},
       {Awq(R"({"group_size": 16})"), "group_size is 16, supported: multiples of 32, and -1",
        kUnsupported},
       {Awq(R"({"group_size": 0})"), "group_size is 0, it must be -1 or in [1, "},
       {Awq(R"({"group_size": 1048608})"), "group_size is 1048608"},
       {Gptq(R"({"bits": 2})"), "bits is 2, supported: 4, 8", kUnsupported},
       {Gptq(R"({"bits": 3})"), "bits is 3", kUnsupported},
       {Gptq(R"({"bits": "4"})"), "bits is '4'"},
       {Gptq(R"({"checkpoint_format": "marlin"})"),
        "checkpoint_format is 'marlin', supported: gptq, gptq_v2", kUnsupported},
       {Gptq(R"({"is_marlin_format": true})"), "is_marlin_format is true", kUnsupported},
       {Gptq(R"({"dynamic": {".*down.*": {"bits": 8}}})"), "dynamic has '.*down.*'", kUnsupported},
       {Gptq(R"({"pack_dtype": "int64"})"), "pack_dtype is 'int64'", kUnsupported},
       {Compressed(R"({"format": "float-quantized"})"),
        kGroup + "weights.type is 'int', quantization_config.format is", kUnsupported},
       {Floats(R"({"num_bits": 4})"), kGroup + "weights.num_bits is 4, supported of floats: 8",
        kUnsupported},
       {Floats(R"({"symmetric": false})"), kGroup + "weights.symmetric is false", kUnsupported},
       {Floats(R"({"strategy": "tensor_group"})"),
        "strategy is 'tensor_group', supported: tensor, channel, group, block", kUnsupported},
       {Floats(R"({"strategy": "block"})"), kGroup + "weights.block_structure is missing"},
       {Floats(R"({"strategy": "block", "block_structure": [128]})"),
        "block_structure has 1 number, it must have 2"},
       {Fp8(R"({"fmt": "e5m2"})"), kIn + "fmt is 'e5m2', supported: e4m3", kUnsupported},
       {Fp8(R"({"weight_block_size": [0, 128]})"),
        kIn + "weight_block_size has 0, its numbers must be in [1, "},
       {Fp8(R"({"weight_block_size": [128, 48]})"),
        kIn + "weight_block_size has 48 inputs, supported: multiples of 32", kUnsupported},
       {Fp8(R"({"weight_block_size": [1, 2, 3]})"), kIn + "weight_block_size"},
       {Fp8(R"({"activation_scheme": "online"})"),
        kIn + "activation_scheme is 'online', supported: dynamic, static", kUnsupported},
       {Fp8(R"({"kv_cache_scheme": {"num_bits": 8}})"), kIn + "kv_cache_scheme is set",
        kUnsupported},
       {Compressed("{}", R"({"format": "nvfp4-pack-quantized"})"),
        kGroup + "format is 'nvfp4-pack-quantized'", kUnsupported},
       {Compressed(R"({"format": "marlin-24"})"), "format is 'marlin-24'", kUnsupported},
       {Compressed(R"({"quantization_status": "frozen"})"),
        "quantization_status is 'frozen', supported: compressed", kUnsupported},
       {Compressed(R"({"kv_cache_scheme": {"num_bits": 8}})"), "kv_cache_scheme is set",
        kUnsupported},
       {Compressed(R"({"transform_config": {"config_groups": {}}})"), "transform_config is set",
        kUnsupported},
       {Compressed(R"({"sparsity_config": {"format": "sparse-24-bitmask"}})"),
        "sparsity_config.format is 'sparse-24-bitmask'", kUnsupported},
       {Compressed(R"({"config_groups": {}})"), "config_groups has 0 members, allowed are 1 to 16"},
       {Compressed(R"({"config_groups": {"W4A16": ["Linear"]}})"),
        "config_groups.W4A16 is an array of 1, it must be an object"},
       {Compressed("{}", R"({"weights": "absent"})"), kGroup + "weights is missing"},
       {Compressed("{}", R"({"output_activations": {"num_bits": 8}})"),
        kGroup + "output_activations is set", kUnsupported},
       {Compressed("{}", R"({"input_activations": {"num_bits": 8, "dynamic": false}})"),
        kGroup + "input_activations.dynamic is false", kUnsupported},
       {Compressed("{}", R"({"input_activations": {"num_bits": 4, "dynamic": true}})"),
        kGroup + "input_activations.num_bits is 4", kUnsupported},
       {Compressed("{}", R"({"input_activations": {"type": "float", "dynamic": true}})"),
        kGroup + "input_activations.type is 'float'", kUnsupported},
       {Compressed("{}", "{}", R"({"type": "float"})"),
        kGroup + "weights.type is 'float', quantization_config.format is 'pack-quantized'",
        kUnsupported},
       {Compressed("{}", "{}", R"({"num_bits": 6})"),
        kGroup + "weights.num_bits is 6, supported: 4, 8", kUnsupported},
       {Compressed("{}", "{}", R"({"strategy": "tensor"})"),
        kGroup + "weights.strategy is 'tensor', supported: group, channel", kUnsupported},
       {Compressed("{}", "{}", R"({"strategy": "group", "group_size": null})"),
        kGroup + "weights.group_size is missing"},
       {Compressed("{}", "{}", R"({"actorder": "other"})"), kGroup + "weights.actorder is 'other'",
        kUnsupported},
       {Compressed("{}", "{}", R"({"dynamic": "local"})"), kGroup + "weights.dynamic is 'local'"}});
}

}  // namespace
}  // namespace tlm
