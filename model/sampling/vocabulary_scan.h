// Vectorised passes over a whole row of logits, for sampling.
#ifndef TLM_MODEL_SAMPLING_VOCABULARY_SCAN_H_
#define TLM_MODEL_SAMPLING_VOCABULARY_SCAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sampling/candidate.h"
#include "model/sampling/sampling_math.h"
#include "model/sampling/scan_kernels.h"

namespace tlm {

// Rows are not empty and, but for MostLikely, below +infinity and not all -infinity. `best` is the
// row's most likely token. Results do not depend on the kernels. Thread-compatible: keeps scratch
// memory of about the vocabulary.
class VocabularyScan {
 public:
  // `kernels` outlive this.
  explicit VocabularyScan(const ScanKernels& kernels) : kernels_(kernels) {}

  // The most likely token, the lowest id among equals; -1 when all logits are -infinity. DATA_LOSS
  // where one is NaN or +infinity.
  absl::StatusOr<int32_t> MostLikely(std::span<const float> logits) const;

  // The normaliser that LogProbability subtracts.
  double NormaliserOf(std::span<const float> logits);

  // Fills `candidates` with the `count` most likely tokens, and perhaps others. False, with nothing
  // done, where that is no faster than a scan of all.
  bool FindTop(std::span<const float> logits, uint32_t count, std::vector<Candidate>* candidates);

  // The last, in the order of MoreLikely, of the fewest tokens that together have at least
  // `probability`, in (0, 1).
  Candidate LastWithin(std::span<const float> logits, const Candidate& best, double probability,
                       double inverse_temperature);

  // The token of `kept` with the largest ScaledLogit + GumbelNoise, the lowest id among equals.
  // `best` is kept.
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
