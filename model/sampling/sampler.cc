#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/base/errors.h"
#include "model/sampling/adjust_logits.h"
#include "model/sampling/philox.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sums of fixed-point numbers are the same in any order. 2^39 times at most 2^24 tokens fits 64
// bits; `value` is in [0, 1].
uint64_t FixedPoint(double value) { return static_cast<uint64_t>(std::llround(value * 0x1p39)); }

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

// The most likely token, the lowest id among equals; -1 when all logits are -infinity. DATA_LOSS
// where they are no distribution.
absl::StatusOr<int32_t> FindMostLikely(std::span<const float> logits) {
  int32_t best = -1;
  float best_logit = -kInfinity;
  for (size_t id = 0; id < logits.size(); ++id) {
    // Written so that NaN gets through.
    if (logits[id] <= best_logit) continue;
    if (!(logits[id] < kInfinity)) return DataLoss("the logit of token {} is {}", id, logits[id]);
    best = static_cast<int32_t>(id);
    best_logit = logits[id];
  }
  return best;
}

// The most likely token of logits that must have one.
absl::StatusOr<int32_t> MostLikelyOf(std::span<const float> logits) {
  TLM_ASSIGN_OR_RETURN(const int32_t best, FindMostLikely(logits));
  if (best < 0) return DataLoss("all {} logits are -infinity", logits.size());
  return best;
}

// log of the sum of e^logit: what is taken off a logit to make a log-probability of it.
double Normaliser(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

float LogProbability(float logit, double normaliser) {
  return static_cast<float>(static_cast<double>(logit) - normaliser);
}

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

double Sampler::RelativeTo(const Candidate& best, const Candidate& candidate) {
  return static_cast<double>(candidate.logit) - static_cast<double>(best.logit);
}

bool Sampler::MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params,
                                             const TokenHistory& history, const DrawKey& key,
                                             const ScoreRequest& score,
                                             std::span<const int32_t> banned) {
  TLM_CHECK(!logits.empty());
  TLM_ASSIGN_OR_RETURN(int32_t most_likely, MostLikelyOf(logits));
  std::span<const float> drawn_from = logits;
  if (NeedsAdjusting(params, banned)) {
    AdjustLogits(logits, params, history, banned, &adjusted_);
    drawn_from = adjusted_;
    TLM_ASSIGN_OR_RETURN(most_likely, FindMostLikely(drawn_from));
    if (most_likely < 0) {
      return InvalidArgument(
          "no token can be drawn: the model excludes all that {} allowed, {} banned and {} ending "
          "ids (kept back by min_new_tokens) leave",
          params.allowed_token_ids.size(), params.banned_token_ids.size(), banned.size());
    }
  }
  const bool greedy = params.temperature == 0.0f;
  SampledToken result;
  result.id = most_likely;
  if (!greedy) {
    SetCandidates(drawn_from, most_likely);
    Truncate(params);
    result.id = Draw(params, key);
  }
  if (!score.logprob && score.top == 0) return result;
  if (score.processed && !greedy) {
    SetProcessed(logits.size(), params.temperature);
    drawn_from = adjusted_;
  }
  Score(score.processed ? drawn_from : logits, score, &result);
  return result;
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
  const double normaliser = Normaliser(logits);
  const std::vector<ScoredToken> most_likely = MostLikely(logits, top, normaliser);
  std::vector<SampledToken> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    TLM_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
    tokens.push_back({id, ScoreOf(logits, id, normaliser), most_likely});
  }
  return tokens;
}

void Sampler::SetCandidates(std::span<const float> logits, int32_t most_likely) {
  best_ = {logits[static_cast<size_t>(most_likely)], most_likely};
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

int32_t Sampler::Draw(const SamplingParams& params, const DrawKey& key) const {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  // Starting from the most likely token, most others are too far behind for any noise to bring them
  // to the front.
  int32_t winner = best_.id;
  double best = GumbelNoise(NoiseWord(params.seed, key, best_.id));
  for (const Candidate& candidate : candidates_) {
    const double relative = RelativeTo(best_, candidate) * inverse_temperature;
    if (relative + kMaxGumbel < best) continue;
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

template <typename Before>
void Sampler::KeepFirst(double probability, double inverse_temperature, Before before) {
  const auto weight = [&](const Candidate& candidate) {
    return FixedPoint(std::exp(RelativeTo(best_, candidate) * inverse_temperature));
  };
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  const double wanted = probability * static_cast<double>(total);
  // Sort a growing prefix instead of the vocabulary: it is nearly always short.
  uint64_t sum = 0;
  size_t kept = 0;
  size_t sorted = 0;
  for (size_t prefix = 64; kept < candidates_.size(); prefix *= 8) {
    const size_t end = std::min(prefix, candidates_.size());
    std::partial_sort(candidates_.begin() + sorted, candidates_.begin() + end, candidates_.end(),
                      before);
    for (sorted = end; kept < end; ++kept) {
      if (kept > 0 && static_cast<double>(sum) >= wanted) {
        candidates_.resize(kept);
        return;
      }
      sum += weight(candidates_[kept]);
    }
  }
}

void Sampler::KeepTypical(float typical_p, double inverse_temperature) {
  if (typical_p >= 1.0f) return;
  // With g = (best logit - logit) / temperature, a token's information is g + log(sum of e^-g), and
  // the entropy is the mean of g + that same logarithm: it cancels out of their difference.
  const auto gap = [&](const Candidate& candidate) {
    return -RelativeTo(best_, candidate) * inverse_temperature;
  };
  uint64_t total = 0;
  uint64_t weighted = 0;
  for (const Candidate& candidate : candidates_) {
    const double probability = std::exp(-gap(candidate));
    total += FixedPoint(probability);
    weighted += FixedPoint(probability * gap(candidate));
  }
  const double mean = static_cast<double>(weighted) / static_cast<double>(total);
  KeepFirst(typical_p, inverse_temperature, [&](const Candidate& a, const Candidate& b) {
    const double distance_a = std::abs(gap(a) - mean);
    const double distance_b = std::abs(gap(b) - mean);
    return distance_a < distance_b || (distance_a == distance_b && a.id < b.id);
  });
  // The most likely token need not be a typical one.
  best_ = *std::min_element(candidates_.begin(), candidates_.end(), MoreLikely);
}

void Sampler::KeepTopP(float top_p, double inverse_temperature) {
  if (top_p >= 1.0f) return;
  KeepFirst(top_p, inverse_temperature, MoreLikely);
}

void Sampler::KeepMinP(float min_p, double inverse_temperature) {
  if (min_p <= 0.0f) return;
  const double floor = std::log(static_cast<double>(min_p));
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return RelativeTo(best_, candidate) * inverse_temperature < floor;
  });
}

void Sampler::SetProcessed(size_t vocab_size, float temperature) {
  const double inverse_temperature = 1.0 / static_cast<double>(temperature);
  adjusted_.assign(vocab_size, -kInfinity);
  for (const Candidate& candidate : candidates_) {
    adjusted_[static_cast<size_t>(candidate.id)] =
        static_cast<float>(RelativeTo(best_, candidate) * inverse_temperature);
  }
}

void Sampler::Score(std::span<const float> logits, const ScoreRequest& request,
                    SampledToken* token) {
  const double normaliser = Normaliser(logits);
  if (request.logprob) token->score = ScoreOf(logits, token->id, normaliser);
  token->top = MostLikely(logits, request.top, normaliser);
}

std::vector<ScoredToken> Sampler::MostLikely(std::span<const float> logits, uint32_t count,
                                             double normaliser) {
  if (count == 0) return {};
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    candidates_.push_back({logits[id], static_cast<int32_t>(id)});
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
