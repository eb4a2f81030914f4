// Vectorised passes over a whole row of logits, for sampling.
#ifndef TLM_MODEL_SAMPLING_VOCABULARY_SCAN_H_
#define TLM_MODEL_SAMPLING_VOCABULARY_SCAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sampling/sampling_math.h"
#include "model/sampling/scan_kernels.h"

namespace tlm {

struct Candidate {
  float logit;
  int32_t id;
};

// Orders by falling logit, ties by id.
inline bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The tokens of a row that truncation keeps: the first in the order of MoreLikely, up to `last`.
// Tokens at -infinity are never kept.
struct Kept {
  Candidate last = {std::numeric_limits<float>::lowest(), std::numeric_limits<int32_t>::max()};
  // In addition, the ScaledLogit of kept tokens is at least this.
  double least_scaled = -std::numeric_limits<double>::infinity();

  bool Has(const Candidate& candidate, double scaled) const {
    return !MoreLikely(last, candidate) && scaled >= least_scaled;
  }
};

// A histogram of tokens by their distance to the best one finds the fewest tokens that reach a
// probability, without sorting.
inline constexpr size_t kGapBins = 2048;
inline constexpr double kBinsPerGap = 64.0;

// `gap`, at least 0 or infinite, never falls along the order; the last bin has no upper end.
inline size_t GapBin(double gap) {
  return static_cast<size_t>(std::min(gap * kBinsPerGap, double{kGapBins - 1}));
}

struct BinSearch {
  size_t bin = 0;       // the bin in which the wanted weight is reached
  uint64_t before = 0;  // the weight of the bins before it
  double wanted = 0.0;  // weight
};

// `weights` has kGapBins bins; 0 < probability < 1.
inline BinSearch FindBin(std::span<const uint64_t> weights, double probability) {
  const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  BinSearch found{.wanted = probability * static_cast<double>(total)};
  while (found.bin < kGapBins - 1 &&
         static_cast<double>(found.before + weights[found.bin]) < found.wanted) {
    found.before += weights[found.bin++];
  }
  return found;
}

// Rows must not be empty; except in MostLikely, logits must be below +infinity and not all
// -infinity. `best` is the row's most likely token. Results do not depend on the kernels.
// Thread-compatible: keeps scratch memory of about the vocabulary.
class VocabularyScan {
 public:
  // `kernels` must outlive the scan.
  explicit VocabularyScan(const ScanKernels& kernels) : kernels_(kernels) {}

  // Returns the most likely token, the lowest id among equals; -1 when all logits are -infinity.
  // DATA_LOSS when a logit is NaN or +infinity.
  absl::StatusOr<int32_t> MostLikely(std::span<const float> logits) const;

  // Returns the normaliser that LogProbability subtracts.
  double NormaliserOf(std::span<const float> logits);

  // Fills `candidates` with the `count` most likely tokens, and perhaps others. Returns false and
  // does nothing where this is no faster than a scan of all.
  bool FindTop(std::span<const float> logits, uint32_t count, std::vector<Candidate>* candidates);

  // Returns the last, in the order of MoreLikely, of the fewest tokens that together have at least
  // `probability`, in (0, 1).
  Candidate LastWithin(std::span<const float> logits, const Candidate& best, double probability,
                       double inverse_temperature);

  // Returns the token of `kept` with the largest ScaledLogit + GumbelNoise, the lowest id among
  // equals. `best` must be in `kept`.
  int32_t ArgmaxWithNoise(std::span<const float> logits, const Candidate& best,
                          double inverse_temperature, const Kept& kept, const NoiseKey& noise);

 private:
  // Adds up the weights of tokens by bins of their gaps to `best`.
  void FillBins(std::span<const float> logits, float best, double inverse_temperature);

  const ScanKernels& kernels_;
  std::vector<float> block_maxima_;
  std::vector<float> ordered_maxima_;
  std::vector<int32_t> found_;
  std::vector<Candidate> candidates_;
  std::vector<uint64_t> bin_weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_VOCABULARY_SCAN_H_
