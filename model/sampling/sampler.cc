#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/base/errors.h"
#include "model/sampling/sampling_errors.h"
#include "model/sampling/sampling_math.h"

namespace tlm {
namespace {

ScoredToken ScoreOf(std::span<const float> logits, int32_t id, double normaliser) {
  const float own = logits[static_cast<size_t>(id)];
  uint32_t rank = 1;
  for (size_t other = 0; other < logits.size(); ++other) {
    const bool before =
        logits[other] > own || (logits[other] == own && static_cast<int32_t>(other) < id);
    rank += before ? 1 : 0;
  }
  return {id, LogProbability(own, normaliser), rank};
}

}  // namespace

// Returns the most likely token; an error if the logits have none.
absl::StatusOr<int32_t> Sampler::MostLikelyOf(std::span<const float> logits) const {
  TLM_ASSIGN_OR_RETURN(const int32_t best, scan_.MostLikely(logits));
  if (best < 0) return AllExcluded(static_cast<int64_t>(logits.size()));
  return best;
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params,
                                             const TokenHistory& history, const SampleKey& key,
                                             const LogprobOptions& score,
                                             const Removals& removals) {
  return Sample(logits, {.params = &params, .history = &history, .key = key, .score = score},
                removals);
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits, const SamplingJob& job,
                                             const Removals& removals) {
  const SamplingParams& params = *job.params;
  const LogprobOptions& score = job.score;
  TLM_CHECK(!logits.empty());
  TLM_ASSIGN_OR_RETURN(int32_t most_likely, MostLikelyOf(logits));
  std::span<const float> sampled_from = logits;
  if (NeedsAdjusting(params, removals)) {
    AdjustLogits(logits, params, *job.history, job.draft, removals, &adjusted_);
    sampled_from = adjusted_;
    TLM_ASSIGN_OR_RETURN(most_likely, scan_.MostLikely(sampled_from));
    if (most_likely < 0) {
      return NoneLeft({.allowed = params.allowed_token_ids.size(),
                       .banned = params.banned_token_ids.size(),
                       .ending = removals.banned.size(),
                       .masked = removals.allowed.has_value()});
    }
  }
  const bool greedy = params.temperature == 0.0f;
  SampledToken result;
  result.id = most_likely;
  if (!greedy) {
    best_ = {sampled_from[static_cast<size_t>(most_likely)], most_likely};
    result.id = IsPlain(params) ? SampleRow(sampled_from, params, job.key)
                                : TruncateAndSample(sampled_from, params, job.key);
  }
  if (!score.logprob && score.top == 0) return result;
  if (score.processed && !greedy) {
    SetProcessed(sampled_from, params);
    sampled_from = adjusted_;
  }
  Score(score.processed ? sampled_from : logits, score, &result);
  return result;
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingJob& job) {
  Removals removals = {.banned = job.banned};
  if (job.mask != nullptr) {
    removals.allowed = job.mask->Await();
    if (!removals.allowed.has_value()) return MaskIsLate();
  }
  return Sample(logits, job, removals);
}

absl::StatusOr<SampledToken> Sampler::ScoreGiven(std::span<const float> logits, int32_t id,
                                                 uint32_t top) {
  TLM_ASSIGN_OR_RETURN(std::vector<SampledToken> tokens, ScoreGiven(logits, {&id, 1}, top));
  return std::move(tokens.front());
}

absl::StatusOr<std::vector<SampledToken>> Sampler::ScoreGiven(std::span<const float> logits,
                                                              std::span<const int32_t> ids,
                                                              uint32_t top) {
  TLM_RETURN_IF_ERROR(MostLikelyOf(logits).status());
  const double normaliser = scan_.NormaliserOf(logits);
  const std::vector<ScoredToken> most_likely = MostLikely(logits, top, normaliser);
  std::vector<SampledToken> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    TLM_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
    tokens.push_back({id, ScoreOf(logits, id, normaliser), most_likely});
  }
  return tokens;
}

bool Sampler::IsPlain(const SamplingParams& params) {
  return params.top_k == 0 && params.typical_p >= 1.0f;
}

int32_t Sampler::SampleRow(std::span<const float> logits, const SamplingParams& params,
                           const SampleKey& key) {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  kept_ = Kept();
  if (params.top_p < 1.0f) {
    kept_.last = scan_.LastWithin(logits, best_, params.top_p, inverse_temperature);
  }
  if (params.min_p > 0.0f) kept_.least_scaled = Log(static_cast<double>(params.min_p));
  return scan_.ArgmaxWithNoise(logits, best_, inverse_temperature, kept_,
                               {params.seed, key.position, key.output_index});
}

int32_t Sampler::TruncateAndSample(std::span<const float> logits, const SamplingParams& params,
                                   const SampleKey& key) {
  const bool few = params.top_k > 0 && scan_.FindTop(logits, params.top_k, &candidates_);
  if (!few) SetCandidates(logits);
  Truncate(params);
  return ArgmaxWithNoise(params, key);
}

void Sampler::SetCandidates(std::span<const float> logits) {
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isinf(logits[id])) candidates_.push_back({logits[id], static_cast<int32_t>(id)});
  }
}

void Sampler::Truncate(const SamplingParams& params) {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  KeepTopK(params.top_k);
  KeepTypical(params.typical_p, inverse_temperature);
  KeepTopP(params.top_p, inverse_temperature);
  KeepMinP(params.min_p, inverse_temperature);
}

int32_t Sampler::ArgmaxWithNoise(const SamplingParams& params, const SampleKey& key) const {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  const NoiseKey noise = {params.seed, key.position, key.output_index};
  // Starting from the most likely token: most others are too unlikely to win with any noise, or
  // with any noise that their random word allows.
  int32_t winner = best_.id;
  double best = GumbelNoise(NoiseWord(noise, best_.id));
  for (const Candidate& candidate : candidates_) {
    const double scaled = ScaledLogit(candidate.logit, best_.logit, inverse_temperature);
    if (scaled + kMaxGumbel < best) continue;
    const uint32_t word = NoiseWord(noise, candidate.id);
    if (scaled + GumbelBound(word) < best) continue;
    const double value = scaled + GumbelNoise(word);
    if (value > best || (value == best && candidate.id < winner)) {
      best = value;
      winner = candidate.id;
    }
  }
  return winner;
}

void Sampler::KeepTopK(uint32_t top_k) {
  if (top_k == 0 || top_k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + top_k, candidates_.end(), MoreLikely);
  candidates_.resize(top_k);
}

template <typename Measure, typename Before>
void Sampler::KeepFirst(double probability, double inverse_temperature, Measure measure,
                        Before before) {
  const auto weight = [&](const Candidate& candidate) {
    return ProbabilityWeight(ScaledLogit(candidate.logit, best_.logit, inverse_temperature));
  };
  const auto bin = [&](const Candidate& candidate) { return GapBin(measure(candidate)); };
  // Instead of sorting the vocabulary: a histogram first, then only the bin in which the
  // probability is reached.
  bin_weights_.assign(kGapBins, 0);
  for (const Candidate& candidate : candidates_) bin_weights_[bin(candidate)] += weight(candidate);
  const auto [last, before_last, wanted] = FindBin(bin_weights_, probability);
  const size_t last_bin = last;
  uint64_t sum = before_last;
  std::erase_if(candidates_, [&](const Candidate& candidate) { return bin(candidate) > last_bin; });
  const auto rest =
      std::partition(candidates_.begin(), candidates_.end(),
                     [&](const Candidate& candidate) { return bin(candidate) < last_bin; });
  std::sort(rest, candidates_.end(), before);
  auto kept = rest;
  while (kept != candidates_.end() && static_cast<double>(sum) < wanted) sum += weight(*kept++);
  candidates_.erase(kept, candidates_.end());
}

void Sampler::KeepTypical(float typical_p, double inverse_temperature) {
  if (typical_p >= 1.0f) return;
  // With g = (best logit - logit) / temperature, a token's information is g + log(sum of e^-g), and
  // the entropy is the mean of g + that same logarithm: it cancels out of their difference.
  const auto gap = [&](const Candidate& candidate) {
    return -ScaledLogit(candidate.logit, best_.logit, inverse_temperature);
  };
  uint64_t total = 0;
  uint64_t weighted = 0;
  for (const Candidate& candidate : candidates_) {
    total += ProbabilityWeight(-gap(candidate));
    weighted += InformationWeight(-gap(candidate));
  }
  const double mean = static_cast<double>(weighted) / static_cast<double>(total);
  const auto distance = [&](const Candidate& candidate) { return std::abs(gap(candidate) - mean); };
  KeepFirst(typical_p, inverse_temperature, distance, [&](const Candidate& a, const Candidate& b) {
    const double distance_a = distance(a);
    const double distance_b = distance(b);
    return distance_a < distance_b || (distance_a == distance_b && a.id < b.id);
  });
  // The most likely token need not be a typical one.
  best_ = *std::min_element(candidates_.begin(), candidates_.end(), MoreLikely);
}

void Sampler::KeepTopP(float top_p, double inverse_temperature) {
  if (top_p >= 1.0f) return;
  const auto gap = [&](const Candidate& candidate) {
    return -ScaledLogit(candidate.logit, best_.logit, inverse_temperature);
  };
  KeepFirst(top_p, inverse_temperature, gap, MoreLikely);
}

void Sampler::KeepMinP(float min_p, double inverse_temperature) {
  if (min_p <= 0.0f) return;
  const double floor = Log(static_cast<double>(min_p));
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return ScaledLogit(candidate.logit, best_.logit, inverse_temperature) < floor;
  });
}

void Sampler::SetProcessed(std::span<const float> logits, const SamplingParams& params) {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  if (IsPlain(params)) {
    SetCandidates(logits);
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return !kept_.Has(candidate, ScaledLogit(candidate.logit, best_.logit, inverse_temperature));
    });
  }
  adjusted_.assign(logits.size(), -std::numeric_limits<float>::infinity());
  for (const Candidate& candidate : candidates_) {
    adjusted_[static_cast<size_t>(candidate.id)] =
        static_cast<float>(ScaledLogit(candidate.logit, best_.logit, inverse_temperature));
  }
}

void Sampler::Score(std::span<const float> logits, const LogprobOptions& request,
                    SampledToken* token) {
  const double normaliser = scan_.NormaliserOf(logits);
  if (request.logprob) token->score = ScoreOf(logits, token->id, normaliser);
  token->top = MostLikely(logits, request.top, normaliser);
}

std::vector<ScoredToken> Sampler::MostLikely(std::span<const float> logits, uint32_t count,
                                             double normaliser) {
  if (count == 0) return {};
  if (!scan_.FindTop(logits, count, &candidates_)) {
    candidates_.clear();
    for (size_t id = 0; id < logits.size(); ++id) {
      candidates_.push_back({logits[id], static_cast<int32_t>(id)});
    }
  }
  const size_t top = std::min<size_t>(count, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + top, candidates_.end(), MoreLikely);
  std::vector<ScoredToken> tokens;
  for (size_t i = 0; i < top; ++i) {
    const Candidate& candidate = candidates_[i];
    tokens.push_back(
        {candidate.id, LogProbability(candidate.logit, normaliser), static_cast<uint32_t>(i + 1)});
  }
  return tokens;
}

}  // namespace tlm
