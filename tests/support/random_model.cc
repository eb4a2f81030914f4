#include "tests/support/random_model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "model/base/float16.h"
#include "model/weights/name_map.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/small_config.h"

namespace tlm {
namespace {

bool IsGain(TensorRole role) {
  return role == TensorRole::kAttnNorm || role == TensorRole::kFfnNorm ||
         role == TensorRole::kFinalNorm || role == TensorRole::kQNorm || role == TensorRole::kKNorm;
}

bool IsEmbedding(TensorRole role) {
  return role == TensorRole::kTokenEmbedding || role == TensorRole::kPositionEmbedding;
}

float RandomValue(const TensorSpec& spec, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  if (IsGain(spec.role)) return 1.0f + 0.1f * normal(random);
  if (IsEmbedding(spec.role)) return normal(random);
  if (spec.shape.rank() == 1) return 0.5f * normal(random);
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

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

RandomModel::RandomModel(const ModelConfig& config, DType dtype, uint64_t seed)
    : config_(config), dtype_(dtype) {
  std::mt19937_64 random(seed);
  weights_.layers.resize(static_cast<size_t>(config.num_layers));
  weights_.specs = ExpectedTensors(config);
  for (const TensorSpec& spec : weights_.specs) {
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
  WriteFile(directory + "/config.json", ConfigJson(config_));
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
