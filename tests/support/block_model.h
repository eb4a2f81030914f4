// Small transformers whose matrices are in blocks (model/tensor/blocks.h).
#ifndef TLM_TESTS_SUPPORT_BLOCK_MODEL_H_
#define TLM_TESTS_SUPPORT_BLOCK_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/weights/model_weights.h"
#include "tests/support/random_model.h"

namespace tlm {

// Makes blocks with random bits in every field. Each block has its own scales, such that elements
// have a magnitude of about `rms`.
std::vector<std::byte> RandomBlocks(DType type, size_t blocks, float rms, std::mt19937_64& random);

// Returns SmallConfig with widths that blocks divide: 256 inputs, 192 for the output projection,
// 288 for the network's second matrix; [outputs, inputs] throughout.
ModelConfig BlockConfig(std::string_view name);

// Return, each once, the types of GGUF files, this program's own integer types, and the float
// types.
std::vector<DType> GgufBlockTypes();
std::vector<DType> OwnBlockTypes();
std::vector<DType> Float8BlockTypes();
// Returns GgufBlockTypes and then OwnBlockTypes.
std::vector<DType> IntegerBlockTypes();

// Owns the memory of its views. Not copyable.
class BlockModel {
 public:
  // Matrix i has type types[i % size], or the next type whose blocks divide its inputs, or else
  // F32. With `reordered`, matrices of this program's own integer types have an input_order.
  BlockModel(const ModelConfig& config, const std::vector<DType>& types, uint64_t seed,
             bool reordered = false);
  BlockModel(const BlockModel&) = delete;
  BlockModel& operator=(const BlockModel&) = delete;

  const ModelConfig& config() const { return random_.config(); }
  const ModelWeights& weights() const { return weights_; }
  // Returns the values of weights() as F32.
  const ModelWeights& dequantised() const { return dequantised_; }

 private:
  struct Blocks {
    std::vector<std::byte> bytes;
    std::vector<int32_t> input_order;
    std::vector<float> values;
  };
  // Puts blocks in the place of a matrix of `random_`.
  void Replace(const TensorSpec& spec, DType type, bool reordered, std::mt19937_64& random);

  const RandomModel random_;
  std::vector<std::unique_ptr<Blocks>> blocks_;
  ModelWeights weights_;
  ModelWeights dequantised_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_BLOCK_MODEL_H_
