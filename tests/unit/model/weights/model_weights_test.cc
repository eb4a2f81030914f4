#include "model/weights/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "model/config/config_reader.h"
#include "model/weights/check_finite.h"
#include "tests/support/oracles.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

// A small model's checkpoint, each tensor filled with a number of its own; a test spoils it before
// binding.
class BindWeightsTest : public ::testing::Test {
 protected:
  BindWeightsTest() {
    config_.vocab_size = 11;
    config_.context_length = 16;
    config_.d_model = 10;
    config_.num_layers = 2;
    config_.num_heads = 6;
    config_.num_kv_heads = 2;
    config_.head_dim = 4;
    config_.d_ff = 7;
    config_.qk_norm = true;
  }

  // The checkpoint the configuration asks for, changed by `shapes` (a new shape, or a new tensor)
  // and without `removed`.
  absl::StatusOr<ModelWeights> Bind(const std::map<std::string, Shape>& shapes = {},
                                    const std::string& removed = "") {
    SafetensorsWriter writer;
    std::map<std::string, Shape> left = shapes;
    float value = 0;
    for (const TensorSpec& spec : ExpectedTensors(config_)) {
      value_of_[spec.name] = ++value;
      const auto changed = left.find(spec.name);
      if (spec.name != removed) {
        writer.Fill(spec.name, changed == left.end() ? spec.shape : changed->second, value);
      }
      if (changed != left.end()) left.erase(changed);
    }
    for (const auto& [name, shape] : left) writer.Fill(name, shape, 1);
    return Bind(writer);
  }

  absl::StatusOr<ModelWeights> Bind(const SafetensorsWriter& writer) {
    dir_.Write("model.safetensors", writer.Bytes());
    auto opened = Checkpoint::Open(dir_.path());
    if (!opened.ok()) return opened.status();
    checkpoints_.push_back(*std::move(opened));
    return BindWeights(config_, checkpoints_.back());
  }

  // That `view` is the tensor of this name.
  void ExpectIs(const TensorView& view, const std::string& name) {
    ASSERT_NE(view.data, nullptr) << name;
    EXPECT_EQ(view.as<float>()[0], value_of_.at(name)) << name;
  }

  ModelConfig config_;
  std::map<std::string, float> value_of_;
  const TempDir dir_;
  std::vector<Checkpoint> checkpoints_;
};

TEST_F(BindWeightsTest, PutsEveryHuggingFaceTensorInItsPlace) {
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  ExpectIs(weights->token_embedding, "model.embed_tokens.weight");
  ExpectIs(weights->final_norm, "model.norm.weight");
  ExpectIs(weights->lm_head, "lm_head.weight");
  ASSERT_EQ(weights->layers.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const LayerWeights& layer = weights->layers[i];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    ExpectIs(layer.attn_norm, prefix + "input_layernorm.weight");
    ExpectIs(layer.q, prefix + "self_attn.q_proj.weight");
    ExpectIs(layer.k, prefix + "self_attn.k_proj.weight");
    ExpectIs(layer.v, prefix + "self_attn.v_proj.weight");
    ExpectIs(layer.o, prefix + "self_attn.o_proj.weight");
    ExpectIs(layer.q_norm, prefix + "self_attn.q_norm.weight");
    ExpectIs(layer.k_norm, prefix + "self_attn.k_norm.weight");
    ExpectIs(layer.ffn_norm, prefix + "post_attention_layernorm.weight");
    ExpectIs(layer.gate, prefix + "mlp.gate_proj.weight");
    ExpectIs(layer.up, prefix + "mlp.up_proj.weight");
    ExpectIs(layer.down, prefix + "mlp.down_proj.weight");
  }
}

TEST_F(BindWeightsTest, PutsCs336GateUpAndDownWhereTheFormulaHasThem) {
  config_.naming = TensorNaming::kCs336;
  config_.qk_norm = false;
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  const LayerWeights& layer = weights->layers[1];
  ExpectIs(layer.gate, "layers.1.ffn.w1.weight");
  ExpectIs(layer.up, "layers.1.ffn.w3.weight");
  ExpectIs(layer.down, "layers.1.ffn.w2.weight");
  ExpectIs(layer.o, "layers.1.attn.output_proj.weight");
  EXPECT_EQ(layer.q_norm.data, nullptr);
  EXPECT_EQ(layer.k_norm.data, nullptr);
}

// Every optional tensor there is.
ModelConfig Everything(ModelConfig config) {
  config.norm_kind = NormKind::kLayer;
  config.learned_positions = true;
  config.biases = {.qkv = true, .attention_output = true, .ffn = true};
  return config;
}

TEST_F(BindWeightsTest, PutsBiasesAndPositionsInTheirPlaces) {
  config_ = Everything(config_);
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  ExpectIs(weights->position_embedding, "model.embed_positions.weight");
  ExpectIs(weights->final_norm_bias, "model.norm.bias");
  const LayerWeights& layer = weights->layers[1];
  const std::string prefix = "model.layers.1.";
  ExpectIs(layer.attn_norm_bias, prefix + "input_layernorm.bias");
  ExpectIs(layer.q_bias, prefix + "self_attn.q_proj.bias");
  ExpectIs(layer.k_bias, prefix + "self_attn.k_proj.bias");
  ExpectIs(layer.v_bias, prefix + "self_attn.v_proj.bias");
  ExpectIs(layer.o_bias, prefix + "self_attn.o_proj.bias");
  ExpectIs(layer.ffn_norm_bias, prefix + "post_attention_layernorm.bias");
  ExpectIs(layer.gate_bias, prefix + "mlp.gate_proj.bias");
  ExpectIs(layer.up_bias, prefix + "mlp.up_proj.bias");
  ExpectIs(layer.down_bias, prefix + "mlp.down_proj.bias");
  EXPECT_EQ(layer.qkv.data, nullptr);
  EXPECT_EQ(layer.qkv_bias.data, nullptr);
}

TEST_F(BindWeightsTest, PutsGpt2InItsPlaces) {
  config_ = Everything(config_);
  config_.naming = TensorNaming::kGpt2;
  config_.ffn_kind = FfnKind::kGeluTanh;
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  ExpectIs(weights->token_embedding, "wte.weight");
  ExpectIs(weights->position_embedding, "wpe.weight");
  ExpectIs(weights->final_norm_bias, "ln_f.bias");
  const LayerWeights& layer = weights->layers[1];
  ExpectIs(layer.qkv, "h.1.attn.c_attn.weight");
  ExpectIs(layer.qkv_bias, "h.1.attn.c_attn.bias");
  ExpectIs(layer.o, "h.1.attn.c_proj.weight");
  ExpectIs(layer.o_bias, "h.1.attn.c_proj.bias");
  ExpectIs(layer.up, "h.1.mlp.c_fc.weight");
  ExpectIs(layer.down, "h.1.mlp.c_proj.weight");
  ExpectIs(layer.down_bias, "h.1.mlp.c_proj.bias");
  EXPECT_EQ(layer.q.data, nullptr);
  EXPECT_EQ(layer.gate.data, nullptr);
}

TEST_F(BindWeightsTest, PutsTheSecondCourseVariantWhereItsFormulaHasIt) {
  config_.naming = TensorNaming::kCs336;
  config_.ffn_names = {.gate = 1, .up = 2, .down = 3};  // w3(silu(w1 x) * w2 x)
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  ExpectIs(weights->layers[0].gate, "layers.0.ffn.w1.weight");
  ExpectIs(weights->layers[0].up, "layers.0.ffn.w2.weight");
  ExpectIs(weights->layers[0].down, "layers.0.ffn.w3.weight");
}

TEST_F(BindWeightsTest, PlacesAllDiffer) {
  for (const TensorNaming naming : {TensorNaming::kQwen3Mha, TensorNaming::kGpt2}) {
    ModelConfig config = Everything(config_);
    config.naming = naming;
    if (naming == TensorNaming::kGpt2) config.ffn_kind = FfnKind::kGelu;
    ModelWeights weights;
    weights.layers.resize(config.num_layers);
    std::set<TensorView*> places;
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      EXPECT_TRUE(places.insert(PlaceOf(spec, &weights)).second) << spec.name;
    }
  }
}

TEST_F(BindWeightsTest, FindsTensorsUnderTheirOtherNames) {
  const auto bind_other = [this] {
    SafetensorsWriter writer;
    for (const TensorSpec& spec : ExpectedTensors(config_)) {
      const std::string other = OtherTensorName(config_.naming, spec.name);
      writer.Fill(other.empty() ? spec.name : other, spec.shape, 1);
    }
    return Bind(writer);
  };
  const auto inner = bind_other();
  ASSERT_THAT(inner, IsOk());
  EXPECT_NE(inner->layers[1].down.data, nullptr);
  config_.naming = TensorNaming::kGpt2;
  config_.ffn_kind = FfnKind::kRelu;
  EXPECT_THAT(bind_other(), IsOk());
}

TEST_F(BindWeightsTest, NamesATensorThatIsThereUnderBothNames) {
  EXPECT_THAT(Bind({{"norm.weight", {10}}}), IsInvalidArgument("'norm.weight' is none that"));
}

TEST_F(BindWeightsTest, SaysWhenTheNamesAreThoseOfAnotherNaming) {
  SafetensorsWriter writer;
  for (const TensorSpec& spec : ExpectedTensors(config_)) writer.Fill(spec.name, spec.shape, 1);
  config_.naming = TensorNaming::kCs336;
  EXPECT_THAT(Bind(writer), IsInvalidArgument("'token_embeddings.weight' is missing (24 of 25",
                                              "those of tensor_naming 'hugging_face'"));
}

TEST_F(BindWeightsTest, TiedHeadIsTheEmbedding) {
  config_.tie_word_embeddings = true;
  const auto weights = Bind();
  ASSERT_THAT(weights, IsOk());
  EXPECT_EQ(weights->lm_head.data, weights->token_embedding.data);
  EXPECT_EQ(weights->lm_head.shape, weights->token_embedding.shape);
}

TEST_F(BindWeightsTest, StoredTiedHeadMustEqualTheEmbedding) {
  config_.tie_word_embeddings = true;
  // The embedding is the first tensor and so filled with 1, as what is added is.
  EXPECT_THAT(Bind({{"lm_head.weight", {11, 10}}}), IsOk());
  EXPECT_THAT(Bind({{"lm_head.weight", {10, 11}}}),
              IsInvalidArgument("'lm_head.weight' has shape [10, 11]", "asks for [11, 10]"));
  SafetensorsWriter writer;
  for (const TensorSpec& spec : ExpectedTensors(config_)) writer.Fill(spec.name, spec.shape, 1);
  std::vector<float> values(110, 1.0f);
  values.back() = 1.0000001f;
  writer.AddF32("lm_head.weight", {11, 10}, values);
  EXPECT_THAT(Bind(writer), IsInvalidArgument("'lm_head.weight' differs"));
}

TEST_F(BindWeightsTest, StoredTiedHeadOfAnotherTypeDiffers) {
  config_.tie_word_embeddings = true;
  SafetensorsWriter writer;
  for (const TensorSpec& spec : ExpectedTensors(config_)) writer.Fill(spec.name, spec.shape, 0);
  writer.Add("lm_head.weight", DType::kBF16, {11, 10}, std::string(220, '\0'));
  EXPECT_THAT(Bind(writer), IsInvalidArgument("'lm_head.weight' differs"));
}

TEST_F(BindWeightsTest, NamesAnyMissingTensor) {
  for (const TensorSpec& spec : ExpectedTensors(config_)) {
    EXPECT_THAT(Bind({}, spec.name),
                IsInvalidArgument(dir_.path(), "'" + spec.name + "' is missing (1 of 25"));
  }
}

TEST_F(BindWeightsTest, NamesAnyTensorOfAnotherShape) {
  for (const TensorSpec& spec : ExpectedTensors(config_)) {
    EXPECT_THAT(Bind({{spec.name, {5}}}), IsInvalidArgument("'" + spec.name + "' has shape [5]",
                                                            "asks for " + spec.shape.ToString()));
  }
}

TEST_F(BindWeightsTest, NamesASurplusTensor) {
  EXPECT_THAT(Bind({{"model.layers.0.self_attn.q_proj.bias", {24}}}),
              IsInvalidArgument("'model.layers.0.self_attn.q_proj.bias' is none that"));
  EXPECT_THAT(Bind({{"model.layers.2.mlp.up_proj.weight", {7, 10}}}),
              IsInvalidArgument("'model.layers.2.mlp.up_proj.weight' is none that"));
}

TEST_F(BindWeightsTest, NamesNormsThatNothingAsksFor) {
  config_.qk_norm = false;
  EXPECT_THAT(Bind({{"model.layers.0.self_attn.q_norm.weight", {4}}}),
              IsInvalidArgument("'model.layers.0.self_attn.q_norm.weight' is none that"));
}

TEST_F(BindWeightsTest, AllowsKnownBuffers) {
  EXPECT_THAT(Bind({{"model.layers.0.self_attn.rotary_emb.inv_freq", {2}},
                    {"model.layers.0.attn.bias", {1, 1, 4, 4}},
                    {"layers.0.attn.rope.cos", {16, 2}}}),
              IsOk());
}

TEST_F(BindWeightsTest, AcceptsMixedFloatsAndRefusesIntegers) {
  const auto with_norm_of = [this](DType dtype) {
    SafetensorsWriter writer;
    for (const TensorSpec& spec : ExpectedTensors(config_)) {
      if (spec.role == TensorRole::kFinalNorm) {
        writer.Add(spec.name, dtype, spec.shape, std::string(10 * DTypeBytes(dtype), '\0'));
      } else {
        writer.Fill(spec.name, spec.shape, 1);
      }
    }
    return Bind(writer);
  };
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const auto weights = with_norm_of(dtype);
    ASSERT_THAT(weights, IsOk()) << DTypeName(dtype);
    EXPECT_EQ(weights->final_norm.dtype, dtype);
  }
  for (const DType dtype : {DType::kI32, DType::kU8, DType::kBool, DType::kF8E4M3}) {
    EXPECT_THAT(with_norm_of(dtype),
                IsInvalidArgument("'model.norm.weight' is ", DTypeName(dtype)));
  }
}

TEST_F(BindWeightsTest, ReadsTheCheckpointsOfOthers) {
  if (!OraclePath("tiny")) GTEST_SKIP() << "no oracle files beside the checkout";
  for (const char* name : {"stories260K/stories260K-cs336", "stories260K/stories260K-hf-llama",
                           "tiny/llama-tiny-plain", "tiny/qwen3-tiny-untied",
                           "tiny/gpt2-tiny-gelu_new", "gpt2-tiny-recorded"}) {
    const std::string dir = *OraclePath(name);
    const auto config = ReadModelConfig(dir);
    ASSERT_THAT(config, IsOk()) << name;
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_THAT(checkpoint, IsOk()) << name;
    EXPECT_THAT(BindWeights(*config, *checkpoint), IsOk()) << name;
    for (const auto& [tensor, view] : checkpoint->tensors()) {
      EXPECT_THAT(CheckFinite(view, tensor), IsOk());
    }
  }
}

TEST(WeightsDTypeTest, KnowsThreeNames) {
  EXPECT_EQ(*WeightsDTypeFromName("float32"), DType::kF32);
  EXPECT_EQ(*WeightsDTypeFromName("bfloat16"), DType::kBF16);
  EXPECT_EQ(*WeightsDTypeFromName("float16"), DType::kF16);
  EXPECT_EQ(WeightsDTypeFromName("bf16").status().message(),
            "is 'bf16', it may be float32, bfloat16 or float16");
}

}  // namespace
}  // namespace tlm
