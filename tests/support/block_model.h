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

// Random bits of every field, each block with scales of its own such that elements are about `rms`
// large.
std::vector<std::byte> RandomBlocks(DType type, size_t blocks, float rms, std::mt19937_64& random);

// SmallConfig, with widths that blocks divide: 256 inputs, of the output projection 192, of the
// network's second matrix 288; [outputs, inputs] throughout.
ModelConfig BlockConfig(std::string_view name);

// Types of GGUF files, this program's own of integers, and those of floats, each once.
std::vector<DType> GgufBlockTypes();
std::vector<DType> OwnBlockTypes();
std::vector<DType> Float8BlockTypes();

// Owns what its views point into. Not copyable.
class BlockModel {
 public:
  // Matrix i has types[i % size], or the next of them whose blocks divide its inputs, or else F32.
  // `reordered`: those of this program's own types of integers have an input_order.
  BlockModel(const ModelConfig& config, const std::vector<DType>& types, uint64_t seed,
             bool reordered = false);
  BlockModel(const BlockModel&) = delete;
  BlockModel& operator=(const BlockModel&) = delete;

  const ModelConfig& config() const { return random_.config(); }
  const ModelWeights& weights() const { return weights_; }
  // The values that weights() mean, as F32.
  const ModelWeights& dequantised() const { return dequantised_; }

 private:
  struct Blocks {
    std::vector<std::byte> bytes;
    std::vector<int32_t> input_order;
    std::vector<float> values;
  };
  // Blocks in place of a matrix of `random_`.
  void Replace(const TensorSpec& spec, DType type, bool reordered, std::mt19937_64& random);

  const RandomModel random_;
  std::vector<std::unique_ptr<Blocks>> blocks_;
  ModelWeights weights_;
  ModelWeights dequantised_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_BLOCK_MODEL_H_
