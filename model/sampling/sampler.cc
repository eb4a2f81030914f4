#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/base/errors.h"
#include "model/sampling/philox.h"

namespace tlm {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Probabilities relative to the most likely token, as integers: sums are then the same in any
// order. 2^39 times at most 2^24 tokens fits 64 bits.
uint64_t FixedPoint(double relative_probability) {
  return static_cast<uint64_t>(std::llround(relative_probability * 0x1p39));
}

// Gumbel noise of one token, from one uniform word.
double GumbelNoise(uint32_t word) {
  const double uniform = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -std::log(-std::log(uniform));
}

// No word gives more: the largest uniform is 1 - 2^-33.
const double kMaxGumbel = GumbelNoise(0xffffffffu);

uint32_t NoiseWord(uint64_t seed, const DrawKey& key, int32_t id) {
  const PhiloxCounter counter = {static_cast<uint32_t>(key.position),
                                 static_cast<uint32_t>(key.position >> 32), key.output_index,
                                 static_cast<uint32_t>(id) / 4};
  return Philox4x32(counter, seed)[static_cast<uint32_t>(id) % 4];
}

bool Contains(std::span<const int32_t> sorted, int32_t id) {
  return !sorted.empty() && std::binary_search(sorted.begin(), sorted.end(), id);
}

// The most likely token that is not banned, the lowest id among equals; DATA_LOSS where the logits
// are no distribution over such tokens.
absl::StatusOr<int32_t> FindMostLikely(std::span<const float> logits,
                                       std::span<const int32_t> banned) {
  int32_t best = -1;
  float best_logit = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      return DataLoss("the logit of token {} is {}", id, logit);
    }
    if (logit > best_logit && !Contains(banned, static_cast<int32_t>(id))) {
      best = static_cast<int32_t>(id);
      best_logit = logit;
    }
  }
  if (best < 0) {
    return DataLoss("all {} logits are -infinity ({} tokens are banned)", logits.size(),
                    banned.size());
  }
  return best;
}

// log of the sum of e^logit.
double LogSumExp(std::span<const float> logits, float max) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

uint32_t RankOf(std::span<const float> logits, int32_t id) {
  uint32_t rank = 1;
  for (size_t other = 0; other < logits.size(); ++other) {
    const bool before = logits[other] > logits[id] ||
                        (logits[other] == logits[id] && static_cast<int32_t>(other) < id);
    rank += before ? 1 : 0;
  }
  return rank;
}

}  // namespace

bool Sampler::MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params, const DrawKey& key,
                                             const ScoreRequest& score,
                                             std::span<const int32_t> banned) {
  TLM_CHECK(!logits.empty());
  TLM_ASSIGN_OR_RETURN(const int32_t most_likely, FindMostLikely(logits, banned));
  SampledToken result;
  result.id =
      params.temperature == 0.0f ? most_likely : Draw(logits, most_likely, params, key, banned);
  if (score.logprob || score.top > 0) {
    Score(logits, *std::max_element(logits.begin(), logits.end()), score, &result);
  }
  return result;
}

int32_t Sampler::Draw(std::span<const float> logits, int32_t most_likely,
                      const SamplingParams& params, const DrawKey& key,
                      std::span<const int32_t> banned) {
  const float max = logits[most_likely];
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    const Candidate candidate{logits[id], static_cast<int32_t>(id)};
    if (!std::isinf(candidate.logit) && !Contains(banned, candidate.id)) {
      candidates_.push_back(candidate);
    }
  }
  KeepTopK(params.top_k);
  KeepTopP(params.top_p, max, inverse_temperature);
  const double floor =
      params.min_p > 0.0f ? std::log(static_cast<double>(params.min_p)) : -kInfinity;

  // The most likely token is always kept; starting from it, most others are too far behind for any
  // noise to bring them to the front.
  int32_t winner = most_likely;
  double best = GumbelNoise(NoiseWord(params.seed, key, most_likely));
  for (const Candidate& candidate : candidates_) {
    const double relative = (static_cast<double>(candidate.logit) - max) * inverse_temperature;
    if (relative < floor || relative + kMaxGumbel < best) continue;
    const double value = relative + GumbelNoise(NoiseWord(params.seed, key, candidate.id));
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

void Sampler::KeepTopP(float top_p, float max, double inverse_temperature) {
  if (top_p >= 1.0f) return;
  const auto weight = [&](const Candidate& candidate) {
    return FixedPoint(std::exp((static_cast<double>(candidate.logit) - max) * inverse_temperature));
  };
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  const double wanted = static_cast<double>(top_p) * static_cast<double>(total);
  // Sort a growing prefix instead of the vocabulary: it is nearly always short.
  uint64_t sum = 0;
  size_t kept = 0;
  size_t sorted = 0;
  for (size_t prefix = 64; kept < candidates_.size(); prefix *= 8) {
    const size_t end = std::min(prefix, candidates_.size());
    std::partial_sort(candidates_.begin() + sorted, candidates_.begin() + end, candidates_.end(),
                      MoreLikely);
    for (sorted = end; kept < end; ++kept) {
      if (kept > 0 && static_cast<double>(sum) >= wanted) {
        candidates_.resize(kept);
        return;
      }
      sum += weight(candidates_[kept]);
    }
  }
}

void Sampler::Score(std::span<const float> logits, float max, const ScoreRequest& request,
                    SampledToken* token) {
  const double normaliser = LogSumExp(logits, max);
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - normaliser);
  };
  if (request.logprob) {
    token->score = ScoredToken{token->id, logprob(token->id), RankOf(logits, token->id)};
  }
  if (request.top == 0) return;
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    candidates_.push_back({logits[id], static_cast<int32_t>(id)});
  }
  const size_t top = std::min<size_t>(request.top, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + top, candidates_.end(), MoreLikely);
  for (size_t i = 0; i < top; ++i) {
    const int32_t id = candidates_[i].id;
    token->top.push_back({id, logprob(id), static_cast<uint32_t>(i + 1)});
  }
}

}  // namespace tlm
