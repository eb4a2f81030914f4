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
  const auto config = ParseModelConfig(
      With(kLlama, R"({"compression_config": {"quant_method": "gptq", "bits": 4}})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->quantisation.size(), 1u);
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

class RefusedQuantisationTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedQuantisationTest, NamesTheKeyAndItsValue) { ExpectRefused(GetParam()); }

const std::string kIn = "quantization_config.";
const std::string kGroup = kIn + "config_groups.g.";

INSTANTIATE_TEST_SUITE_P(
    All, RefusedQuantisationTest,
    ::testing::Values(
        Refusal{"string", kLlama, Text("\"awq\""), kBad, "quantization_config is 'awq'"},
        Refusal{"no_method", kLlama, Text("{}"), kUnsupported, "quant_method is 'absent'"},
        Refusal{"bitsandbytes", kLlama, Text(R"({"quant_method": "bitsandbytes"})"), kUnsupported,
                "quant_method is 'bitsandbytes', supported: awq, gptq, compressed-tensors, fp8"},
        Refusal{"awq_8_bits", kLlama, Awq(R"({"bits": 8})"), kUnsupported,
                kIn + "bits is 8, supported: 4"},
        Refusal{"awq_no_bits", kLlama, Awq(R"({"bits": "absent"})"), kBad, "bits is missing"},
        Refusal{"awq_gemv", kLlama, Awq(R"({"version": "gemv"})"), kUnsupported,
                "version is 'gemv', supported: gemm"},
        Refusal{"awq_marlin", kLlama, Awq(R"({"version": "marlin"})"), kUnsupported,
                "version is 'marlin'"},
        Refusal{"awq_group_of_16", kLlama, Awq(R"({"group_size": 16})"), kUnsupported,
                "group_size is 16, supported: multiples of 32, and -1"},
        Refusal{"awq_group_of_0", kLlama, Awq(R"({"group_size": 0})"), kBad,
                "group_size is 0, it must be -1 or in [1, "},
        Refusal{"awq_huge_group", kLlama, Awq(R"({"group_size": 1048608})"), kBad,
                "group_size is 1048608"},
        Refusal{"gptq_2_bits", kLlama, Gptq(R"({"bits": 2})"), kUnsupported,
                "bits is 2, supported: 4, 8"},
        Refusal{"gptq_3_bits", kLlama, Gptq(R"({"bits": 3})"), kUnsupported, "bits is 3"},
        Refusal{"gptq_bits_string", kLlama, Gptq(R"({"bits": "4"})"), kBad, "bits is '4'"},
        Refusal{"gptq_marlin", kLlama, Gptq(R"({"checkpoint_format": "marlin"})"), kUnsupported,
                "checkpoint_format is 'marlin', supported: gptq, gptq_v2"},
        Refusal{"gptq_is_marlin", kLlama, Gptq(R"({"is_marlin_format": true})"), kUnsupported,
                "is_marlin_format is true"},
        Refusal{"gptq_overrides", kLlama, Gptq(R"({"dynamic": {".*down.*": {"bits": 8}}})"),
                kUnsupported, "dynamic has '.*down.*'"},
        Refusal{"gptq_int64", kLlama, Gptq(R"({"pack_dtype": "int64"})"), kUnsupported,
                "pack_dtype is 'int64'"},
        Refusal{"integers_as_floats", kLlama, Compressed(R"({"format": "float-quantized"})"),
                kUnsupported, kGroup + "weights.type is 'int', quantization_config.format is"},
        Refusal{"float_bits", kLlama, Floats(R"({"num_bits": 4})"), kUnsupported,
                kGroup + "weights.num_bits is 4, supported of floats: 8"},
        Refusal{"float_zeros", kLlama, Floats(R"({"symmetric": false})"), kUnsupported,
                kGroup + "weights.symmetric is false"},
        Refusal{"float_strategy", kLlama, Floats(R"({"strategy": "tensor_group"})"), kUnsupported,
                "strategy is 'tensor_group', supported: tensor, channel, group, block"},
        Refusal{"float_no_blocks", kLlama, Floats(R"({"strategy": "block"})"), kBad,
                kGroup + "weights.block_structure is missing"},
        Refusal{"float_one_number", kLlama,
                Floats(R"({"strategy": "block", "block_structure": [128]})"), kBad,
                "block_structure has 1 number, it must have 2"},
        Refusal{"fp8_e5m2", kLlama, Fp8(R"({"fmt": "e5m2"})"), kUnsupported,
                kIn + "fmt is 'e5m2', supported: e4m3"},
        Refusal{"fp8_block_of_0", kLlama, Fp8(R"({"weight_block_size": [0, 128]})"), kBad,
                kIn + "weight_block_size has 0, its numbers must be in [1, "},
        Refusal{"fp8_block_of_48", kLlama, Fp8(R"({"weight_block_size": [128, 48]})"), kUnsupported,
                kIn + "weight_block_size has 48 inputs, supported: multiples of 32"},
        Refusal{"fp8_block_of_3", kLlama, Fp8(R"({"weight_block_size": [1, 2, 3]})"), kBad,
                kIn + "weight_block_size"},
        Refusal{"fp8_activations", kLlama, Fp8(R"({"activation_scheme": "online"})"), kUnsupported,
                kIn + "activation_scheme is 'online', supported: dynamic, static"},
        Refusal{"fp8_cache", kLlama, Fp8(R"({"kv_cache_scheme": {"num_bits": 8}})"), kUnsupported,
                kIn + "kv_cache_scheme is set"},
        Refusal{"nvfp4", kLlama, Compressed("{}", R"({"format": "nvfp4-pack-quantized"})"),
                kUnsupported, kGroup + "format is 'nvfp4-pack-quantized'"},
        Refusal{"marlin_24", kLlama, Compressed(R"({"format": "marlin-24"})"), kUnsupported,
                "format is 'marlin-24'"},
        Refusal{"frozen", kLlama, Compressed(R"({"quantization_status": "frozen"})"), kUnsupported,
                "quantization_status is 'frozen', supported: compressed"},
        Refusal{"kv_cache", kLlama, Compressed(R"({"kv_cache_scheme": {"num_bits": 8}})"),
                kUnsupported, "kv_cache_scheme is set"},
        Refusal{"transforms", kLlama, Compressed(R"({"transform_config": {"config_groups": {}}})"),
                kUnsupported, "transform_config is set"},
        Refusal{"sparsity", kLlama,
                Compressed(R"({"sparsity_config": {"format": "sparse-24-bitmask"}})"), kUnsupported,
                "sparsity_config.format is 'sparse-24-bitmask'"},
        Refusal{"no_groups", kLlama, Compressed(R"({"config_groups": {}})"), kBad,
                "config_groups has 0 members, allowed are 1 to 16"},
        Refusal{"preset", kLlama, Compressed(R"({"config_groups": {"W4A16": ["Linear"]}})"), kBad,
                "config_groups.W4A16 is an array of 1, it must be an object"},
        Refusal{"no_weights", kLlama, Compressed("{}", R"({"weights": "absent"})"), kBad,
                kGroup + "weights is missing"},
        Refusal{"outputs", kLlama, Compressed("{}", R"({"output_activations": {"num_bits": 8}})"),
                kUnsupported, kGroup + "output_activations is set"},
        Refusal{"static_inputs", kLlama,
                Compressed("{}", R"({"input_activations": {"num_bits": 8, "dynamic": false}})"),
                kUnsupported, kGroup + "input_activations.dynamic is false"},
        Refusal{"inputs_4_bits", kLlama,
                Compressed("{}", R"({"input_activations": {"num_bits": 4, "dynamic": true}})"),
                kUnsupported, kGroup + "input_activations.num_bits is 4"},
        Refusal{"inputs_float", kLlama,
                Compressed("{}", R"({"input_activations": {"type": "float", "dynamic": true}})"),
                kUnsupported, kGroup + "input_activations.type is 'float'"},
        Refusal{"weights_float", kLlama, Compressed("{}", "{}", R"({"type": "float"})"),
                kUnsupported,
                kGroup + "weights.type is 'float', quantization_config.format is 'pack-quantized'"},
        Refusal{"weights_6_bits", kLlama, Compressed("{}", "{}", R"({"num_bits": 6})"),
                kUnsupported, kGroup + "weights.num_bits is 6, supported: 4, 8"},
        Refusal{"per_tensor", kLlama, Compressed("{}", "{}", R"({"strategy": "tensor"})"),
                kUnsupported, kGroup + "weights.strategy is 'tensor', supported: group, channel"},
        Refusal{"no_group_size", kLlama,
                Compressed("{}", "{}", R"({"strategy": "group", "group_size": null})"), kBad,
                kGroup + "weights.group_size is missing"},
        Refusal{"act_order", kLlama, Compressed("{}", "{}", R"({"actorder": "other"})"),
                kUnsupported, kGroup + "weights.actorder is 'other'"},
        Refusal{"local", kLlama, Compressed("{}", "{}", R"({"dynamic": "local"})"), kBad,
                kGroup + "weights.dynamic is 'local'"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
