// Samples a token from logits.
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

// Samples a token. Steps are applied in the order of SamplingParams; the token is the argmax
// over the kept tokens of logit / temperature + Gumbel noise, the noise a Philox4x32-10 function of
// (seed, output_index, position, token id). Ties go to the lowest id. Thread-compatible: keeps
// scratch memory of a few times the vocabulary.
class Sampler {
 public:
  Sampler() : Sampler(FastestScanKernels()) {}
  // The same with given kernels, which outlive this.
  explicit Sampler(const ScanKernels& kernels) : scan_(kernels) {}

  // `history` is for the penalties. Tokens in `removals` are not sampled, as if they were among
  // banned_token_ids. DATA_LOSS when a logit is NaN or +infinity, or when all logits are
  // -infinity; INVALID_ARGUMENT when bias, allowed and banned ids and `removals` leave no token
  // with a finite logit.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const TokenHistory& history, const SampleKey& key,
                                      const LogprobOptions& score, const Removals& removals = {});
  // The same for a job whose row these logits are; or MaskIsLate().
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingJob& job);
  // The same with these removals instead of the job's banned tokens and mask.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingJob& job,
                                      const Removals& removals);

  // Log-probability and rank of a given token by the unmodified logits, and the `top` most likely
  // ones. DATA_LOSS as Sample.
  absl::StatusOr<SampledToken> ScoreGiven(std::span<const float> logits, int32_t id, uint32_t top);
  // The same for several given tokens.
  absl::StatusOr<std::vector<SampledToken>> ScoreGiven(std::span<const float> logits,
                                                       std::span<const int32_t> ids, uint32_t top);

 private:
  absl::StatusOr<int32_t> MostLikelyOf(std::span<const float> logits) const;
  // Whether what truncation leaves is a Kept of the whole row.
  static bool IsPlain(const SamplingParams& params);
  // Both sample by temperature, from what truncation leaves: kept_, or candidates_.
  int32_t SampleRow(std::span<const float> logits, const SamplingParams& params,
                    const SampleKey& key);
  int32_t TruncateAndSample(std::span<const float> logits, const SamplingParams& params,
                            const SampleKey& key);
  // All tokens above -infinity.
  void SetCandidates(std::span<const float> logits);
  int32_t ArgmaxWithNoise(const SamplingParams& params, const SampleKey& key) const;
  // Each shortens candidates_ to those it keeps, at least one.
  void Truncate(const SamplingParams& params);
  void KeepTopK(uint32_t top_k);
  void KeepTypical(float typical_p, double inverse_temperature);
  void KeepTopP(float top_p, double inverse_temperature);
  void KeepMinP(float min_p, double inverse_temperature);
  // The shortest beginning, in the order of `before`, that has at least `probability`. `measure` is
  // at least 0 and never falls along that order.
  template <typename Measure, typename Before>
  void KeepFirst(double probability, double inverse_temperature, Measure measure, Before before);
  // Makes adjusted_ what was sampled from: logits relative to the best, by temperature.
  void SetProcessed(std::span<const float> logits, const SamplingParams& params);
  // `logits` have a token above -infinity. Overwrites candidates_.
  void Score(std::span<const float> logits, const LogprobOptions& request, SampledToken* token);
  std::vector<ScoredToken> MostLikely(std::span<const float> logits, uint32_t count,
                                      double normaliser);

  VocabularyScan scan_;
  std::vector<Candidate> candidates_;
  Candidate best_{};  // the most likely of what is sampled from
  Kept kept_;
  std::vector<float> adjusted_;
  std::vector<uint64_t> bin_weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLER_H_
