// Generates the random weights of an untrained model.
#ifndef TLM_MODEL_WEIGHTS_RANDOM_WEIGHTS_H_
#define TLM_MODEL_WEIGHTS_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Random numbers computed from their index, in any order, by any thread. The stream of a tensor has
// independent samples of the standard normal distribution, cut off at three deviations. Each is a
// function of (seed, name, index) alone, the same on every machine. Their deviation is sqrt(1 - 6
// phi(3) / (2 Phi(3) - 1)) = 0.98658. A value type.
class TruncatedNormal {
 public:
  static constexpr double kDeviation = 0.9865784;

  TruncatedNormal(uint64_t seed, std::string_view name);

  // out[i] = scale * sample(first + i), so |out[i]| <= 3 * scale; `first` is even.
  void Fill(int64_t first, float scale, std::span<float> out) const;

 private:
  uint64_t key_;
};

// Every tensor of ExpectedTensors() in host memory, initialised as in the CS336 course from the
// TruncatedNormal of the tensor's name: matrices of linear maps with variance 2 / (d_in + d_out),
// where the query, key and value parts of a fused projection each have their own d_out; token and
// position embeddings with variance 1; all cut off at three deviations. Gains are 1, biases 0.
// Move-only; its views stay valid after a move. Immutable: any thread may read.
class RandomWeights {
 public:
  // `config` has passed Validate(); `dtype` is F32, BF16 or F16, to which the float32 values are
  // rounded. The same (config, dtype, seed) give the same bits on every machine, whatever the
  // number of threads (0: all processors); a tensor's bits do not depend on the model's other
  // tensors. RESOURCE_EXHAUSTED names the bytes needed and available, before any are allocated.
  static absl::StatusOr<RandomWeights> Create(const ModelConfig& config, DType dtype, uint64_t seed,
                                              int threads = 0);

  // Like Create, but weights() has a pager: a tensor is generated when it is acquired and its
  // memory is freed when it is released. Returns RESOURCE_EXHAUSTED if the address space is too
  // small.
  static absl::StatusOr<RandomWeights> Reserve(const ModelConfig& config, DType dtype,
                                               uint64_t seed, int threads = 0);

  ~RandomWeights();
  RandomWeights(RandomWeights&&) noexcept;
  RandomWeights& operator=(RandomWeights&&) noexcept;

  // Host memory that Create allocates, in bytes.
  static uint64_t BytesFor(const ModelConfig& config, DType dtype);
  // Peak host memory of the weights of Reserve, in bytes, if only the tensors of one layer, or one
  // tensor outside the layers, are acquired at a time.
  uint64_t ResidentBytes() const;

  // Valid during the lifetime of this object.
  const ModelWeights& weights() const { return weights_; }

 private:
  class Pager;

  RandomWeights();

  std::unique_ptr<Pager> pager_;  // owns the memory
  ModelWeights weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_RANDOM_WEIGHTS_H_
