// Samples tokens from logits, and scores given tokens.
#ifndef TLM_MODEL_SAMPLING_SAMPLER_H_
#define TLM_MODEL_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sampling/adjust_logits.h"
#include "model/sampling/sampling_job.h"
#include "model/sampling/scan_kernels.h"
#include "model/sampling/vocabulary_scan.h"

namespace tlm {

// Samples a token. Steps are applied in the order of SamplingParams; the token is the argmax over
// the kept tokens of logit / temperature + Gumbel noise, and the noise is a Philox4x32-10 function
// of (seed, output_index, position, token id). Ties go to the lowest id. Thread-compatible: keeps
// scratch memory of a few times the vocabulary.
class Sampler {
 public:
  Sampler() : Sampler(FastestScanKernels()) {}
  // Uses the given kernels, which must outlive the sampler.
  explicit Sampler(const ScanKernels& kernels) : scan_(kernels) {}

  // `history` is for the penalties. Tokens in `removals` are not sampled, like those in
  // banned_token_ids. DATA_LOSS when a logit is NaN or +infinity, or when all logits are -infinity;
  // INVALID_ARGUMENT when bias, allowed and banned ids and `removals` leave no token with a finite
  // logit.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const TokenHistory& history, const SampleKey& key,
                                      const LogprobOptions& score, const Removals& removals = {});
  // Samples for a job; `logits` are its row. MaskIsLate() if the job's mask is not known in time.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingJob& job);
  // Samples for a job, with these removals instead of the job's banned tokens and mask.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingJob& job,
                                      const Removals& removals);

  // Returns log-probability and rank of a given token by the unmodified logits, and the `top` most
  // likely tokens. DATA_LOSS as in Sample.
  absl::StatusOr<SampledToken> ScoreGiven(std::span<const float> logits, int32_t id, uint32_t top);
  // Scores several given tokens.
  absl::StatusOr<std::vector<SampledToken>> ScoreGiven(std::span<const float> logits,
                                                       std::span<const int32_t> ids, uint32_t top);

 private:
  absl::StatusOr<int32_t> MostLikelyOf(std::span<const float> logits) const;
  // True if a Kept of the whole row describes the result of truncation.
  static bool IsPlain(const SamplingParams& params);
  // Both sample by temperature from the tokens that truncation keeps: kept_, or candidates_.
  int32_t SampleRow(std::span<const float> logits, const SamplingParams& params,
                    const SampleKey& key);
  int32_t TruncateAndSample(std::span<const float> logits, const SamplingParams& params,
                            const SampleKey& key);
  // Fills candidates_ with all tokens above -infinity.
  void SetCandidates(std::span<const float> logits);
  int32_t ArgmaxWithNoise(const SamplingParams& params, const SampleKey& key) const;
  // Each shortens candidates_ to the tokens that it keeps, at least one.
  void Truncate(const SamplingParams& params);
  void KeepTopK(uint32_t top_k);
  void KeepTypical(float typical_p, double inverse_temperature);
  void KeepTopP(float top_p, double inverse_temperature);
  void KeepMinP(float min_p, double inverse_temperature);
  // Keeps the shortest beginning, in the order of `before`, that has at least `probability`.
  // `measure` is at least 0 and never falls along that order.
  template <typename Measure, typename Before>
  void KeepFirst(double probability, double inverse_temperature, Measure measure, Before before);
  // Fills adjusted_ with the distribution that was sampled from: logits relative to the best, by
  // temperature.
  void SetProcessed(std::span<const float> logits, const SamplingParams& params);
  // `logits` must have a token above -infinity. Overwrites candidates_.
  void Score(std::span<const float> logits, const LogprobOptions& request, SampledToken* token);
  std::vector<ScoredToken> MostLikely(std::span<const float> logits, uint32_t count,
                                      double normaliser);

  VocabularyScan scan_;
  std::vector<Candidate> candidates_;
  Candidate best_{};  // the most likely token that may be sampled
  Kept kept_;
  std::vector<float> adjusted_;
  std::vector<uint64_t> bin_weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLER_H_
