// A transformer written for reading, in double precision: no cache, no batch, no blocks. Tests
// compare the real one with it.
#ifndef TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_
#define TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/config/model_config.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Returns the logits after every token of `ids`, [ids, vocab_size].
std::vector<double> ReferenceLogits(const ModelConfig& config, const ModelWeights& weights,
                                    std::span<const int32_t> ids);

// The root of the squared errors' sum over that of the squares.
inline double RelativeError(std::span<const float> actual, std::span<const double> expected) {
  double error = 0.0, square = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  return std::sqrt(error / square);
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_
