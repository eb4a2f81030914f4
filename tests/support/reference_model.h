// A transformer written for reading, in double precision: no cache, no batch, no blocks. Tests
// compare the real one with it.
#ifndef TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_
#define TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/config/model_config.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Returns the logits after every token of `ids`, [ids, vocab_size].
std::vector<double> ReferenceLogits(const ModelConfig& config, const ModelWeights& weights,
                                    std::span<const int32_t> ids);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_REFERENCE_MODEL_H_
