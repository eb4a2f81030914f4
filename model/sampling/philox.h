// Philox4x32-10, the counter-based random generator of Salmon et al. 2011 ("Parallel random
// numbers: as easy as 1, 2, 3"): a keyed bijection of a 128-bit counter, so any number can be
// computed at any time.
#ifndef TLM_MODEL_SAMPLING_PHILOX_H_
#define TLM_MODEL_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

#include "model/sampling/sampling_math.h"

namespace tlm {

using PhiloxCounter = std::array<uint32_t, 4>;

// Four independent uniform 32-bit words for (counter, key).
inline std::array<uint32_t, 4> Philox4x32(PhiloxCounter counter, uint64_t key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  PhiloxWords(words, key);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_PHILOX_H_
