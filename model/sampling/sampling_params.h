// How the next token is chosen from the logits.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_
#define TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_

#include <cstdint>

namespace tlm {

// Every value filled in; ranges are checked by whoever reads them from outside.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0, finite; 0 = greedy
  uint32_t top_k = 0;        // keep the k most likely tokens; 0 = all
  float top_p = 1.0f;        // (0, 1]: keep the smallest set with at least this probability
  float min_p = 0.0f;        // [0, 1]: keep tokens with p >= min_p * p(most likely)
  uint64_t seed = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_
