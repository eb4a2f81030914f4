// Philox4x32-10, the counter-based random generator of Salmon et al. 2011 ("Parallel random
// numbers: as easy as 1, 2, 3"): a keyed bijection of a 128-bit counter, so any draw can be had at
// any time.
#ifndef TLM_MODEL_SAMPLING_PHILOX_H_
#define TLM_MODEL_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace tlm {

using PhiloxCounter = std::array<uint32_t, 4>;

// Four independent uniform 32-bit words for (counter, key).
inline std::array<uint32_t, 4> Philox4x32(PhiloxCounter counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;  // the golden ratio's fraction
    key1 += 0xBB67AE85;  // that of sqrt(3)
  }
  return counter;
}

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_PHILOX_H_
