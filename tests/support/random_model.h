// Small transformers with random weights, in memory or as a checkpoint directory.
#ifndef TLM_TESTS_SUPPORT_RANDOM_MODEL_H_
#define TLM_TESTS_SUPPORT_RANDOM_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Owns the random weights of its views. Not copyable.
class RandomModel {
 public:
  // Linear weights N(0, 2 / (in + out)), embeddings N(0, 1), gains near 1, biases N(0, 1/4);
  // rounded to `dtype` (F32, BF16 or F16).
  RandomModel(const ModelConfig& config, DType dtype, uint64_t seed);
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }

  // Writes config.json and model.safetensors (or `shards` files and an index) to an existing
  // directory.
  void Save(const std::string& directory, int shards = 1) const;

 private:
  struct Tensor {
    TensorSpec spec;
    std::vector<char> bytes;
  };
  const ModelConfig config_;
  const DType dtype_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  ModelWeights weights_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_RANDOM_MODEL_H_
