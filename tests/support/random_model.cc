#include "tests/support/random_model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "model/base/float16.h"
#include "model/weights/name_map.h"
#include "tests/support/safetensors_writer.h"

namespace tlm {
namespace {

float RandomValue(const TensorSpec& spec, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  if (spec.shape.rank() == 1) return 1.0f + 0.1f * normal(random);
  if (spec.role == TensorRole::kTokenEmbedding) return normal(random);
  const double variance = 2.0 / static_cast<double>(spec.shape[0] + spec.shape[1]);
  return static_cast<float>(std::sqrt(variance)) * normal(random);
}

void Append(float value, DType dtype, std::vector<char>* bytes) {
  char buffer[4];
  if (dtype == DType::kF32) {
    std::memcpy(buffer, &value, 4);
  } else {
    const uint16_t half = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
    std::memcpy(buffer, &half, 2);
  }
  bytes->insert(bytes->end(), buffer, buffer + DTypeBytes(dtype));
}

nlohmann::json Cs336Json(const ModelConfig& config) {
  nlohmann::json json = {
      {"vocab_size", config.vocab_size}, {"context_length", config.context_length},
      {"d_model", config.d_model},       {"num_layers", config.num_layers},
      {"num_heads", config.num_heads},   {"d_ff", config.d_ff}};
  if (config.rope_theta.has_value()) json["rope_theta"] = *config.rope_theta;
  return json;
}

nlohmann::json HuggingFaceJson(const ModelConfig& config) {
  return {{"vocab_size", config.vocab_size},
          {"max_position_embeddings", config.context_length},
          {"hidden_size", config.d_model},
          {"num_hidden_layers", config.num_layers},
          {"num_attention_heads", config.num_heads},
          {"num_key_value_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate_size", config.d_ff},
          {"rms_norm_eps", config.norm_eps},
          {"rope_theta", *config.rope_theta},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", config.tie_word_embeddings}};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

ModelConfig SmallConfig(const std::string& family) {
  ModelConfig config;
  config.model_type = family;
  config.architecture = family;
  config.vocab_size = 131;
  config.context_length = 256;
  config.d_model = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 4;
  config.head_dim = 12;
  config.d_ff = 100;
  config.rope_theta = 10000.0;
  if (family == "cs336") {
    config.naming = TensorNaming::kCs336;
    config.rope_layout = RopeLayout::kInterleaved;
    return config;
  }
  config.naming = TensorNaming::kHuggingFace;
  config.rope_layout = RopeLayout::kHalf;
  config.num_kv_heads = 2;
  config.norm_eps = 1e-6;
  if (family == "qwen3") {
    config.qk_norm = true;
    config.head_dim = 20;
    config.tie_word_embeddings = true;
  }
  return config;
}

RandomModel::RandomModel(const ModelConfig& config, DType dtype, uint64_t seed)
    : config_(config), dtype_(dtype) {
  std::mt19937_64 random(seed);
  weights_.layers.resize(static_cast<size_t>(config.num_layers));
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    auto tensor = std::make_unique<Tensor>(Tensor{spec, {}});
    for (int64_t i = 0; i < spec.shape.elements(); ++i) {
      Append(RandomValue(spec, random), dtype, &tensor->bytes);
    }
    *PlaceOf(spec, &weights_) = {dtype, spec.shape, tensor->bytes.data()};
    tensors_.push_back(std::move(tensor));
  }
  if (config.tie_word_embeddings) weights_.lm_head = weights_.token_embedding;
}

void RandomModel::Save(const std::string& directory, int shards) const {
  nlohmann::json json =
      config_.naming == TensorNaming::kCs336 ? Cs336Json(config_) : HuggingFaceJson(config_);
  json["model_type"] = config_.model_type;
  WriteFile(directory + "/config.json", json.dump(2));
  std::vector<SafetensorsWriter> writers(static_cast<size_t>(shards));
  nlohmann::json index;
  const auto shard_name = [shards](size_t shard) {
    return shards == 1 ? std::string("model.safetensors")
                       : "model-" + std::to_string(shard) + ".safetensors";
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = *tensors_[i];
    const size_t shard = i % writers.size();
    writers[shard].Add(tensor.spec.name, dtype_, tensor.spec.shape,
                       {tensor.bytes.data(), tensor.bytes.size()});
    index["weight_map"][tensor.spec.name] = shard_name(shard);
  }
  for (size_t shard = 0; shard < writers.size(); ++shard) {
    WriteFile(directory + "/" + shard_name(shard), writers[shard].Bytes());
  }
  if (shards > 1) WriteFile(directory + "/model.safetensors.index.json", index.dump());
}

}  // namespace tlm
