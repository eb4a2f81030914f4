// The sampling parameters.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_
#define TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace tlm {

// All values set; ranges are checked where requests are read. Applied in the
// order: logit_bias, allowed and banned ids, penalties (repetition, frequency, presence),
// temperature, top_k, typical_p, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0, finite; 0 = greedy
  uint32_t top_k = 0;               // keep the k most likely tokens; 0 = all
  float top_p = 1.0f;               // (0, 1]: keep the smallest set with at least this probability
  float min_p = 0.0f;               // [0, 1]: keep tokens with p >= min_p * p(most likely)
  float typical_p = 1.0f;           // (0, 1]: locally typical sampling (Meister et al. 2023)
  float repetition_penalty = 1.0f;  // > 0, finite (Keskar et al. 2019, section 4.1); 1 = none
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  uint64_t seed = 0;
  // By id, ascending, without repetition; finite.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<int32_t> allowed_token_ids = {};  // ascending, without repetition; empty = all
  std::vector<int32_t> banned_token_ids = {};   // ascending, without repetition

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_PARAMS_H_
