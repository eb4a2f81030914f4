// A histogram of tokens by their distance to the best one: finds the fewest tokens that reach a
// probability, without sorting.
#ifndef TLM_MODEL_SAMPLING_GAP_BINS_H_
#define TLM_MODEL_SAMPLING_GAP_BINS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace tlm {

inline constexpr size_t kGapBins = 2048;
inline constexpr double kBinsPerGap = 64.0;

// `gap`, at least 0 or infinite, never falls along the order; the last bin is open.
inline size_t GapBin(double gap) {
  return static_cast<size_t>(std::min(gap * kBinsPerGap, double{kGapBins - 1}));
}

struct BinSearch {
  size_t bin = 0;       // in which there is enough
  uint64_t before = 0;  // the weight of those before it
  double wanted = 0.0;  // weight
};

// `weights` of kGapBins bins; 0 < probability < 1.
inline BinSearch FindBin(std::span<const uint64_t> weights, double probability) {
  const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  BinSearch found{.wanted = probability * static_cast<double>(total)};
  while (found.bin < kGapBins - 1 &&
         static_cast<double>(found.before + weights[found.bin]) < found.wanted) {
    found.before += weights[found.bin++];
  }
  return found;
}

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_GAP_BINS_H_
