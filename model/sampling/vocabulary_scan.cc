#include "model/sampling/vocabulary_scan.h"

#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "model/base/errors.h"
#include "model/sampling/sampling_errors.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tokens processed together; intermediate values fit the L1 cache.
constexpr size_t kBlock = 256;

template <typename Body>
void ForEachBlock(std::span<const float> logits, size_t size, Body body) {
  for (size_t begin = 0; begin < logits.size(); begin += size) {
    body(begin, logits.subspan(begin, std::min(size, logits.size() - begin)));
  }
}

int64_t SizeOf(std::span<const float> logits) { return static_cast<int64_t>(logits.size()); }

absl::Status FirstInvalid(std::span<const float> logits) {
  const auto invalid =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return !(logit < kInfinity); });
  TLM_CHECK(invalid != logits.end());
  return NotADistribution(invalid - logits.begin(), *invalid);
}

// Returns the least word whose noise can reach `wanted`; nullopt if no word's can. GumbelBound is
// -e ln 2 + 1e-9 with e the exponent of (~word + 1/2) 2^-32, from -33 to -1.
std::optional<uint32_t> LeastWord(double wanted) {
  // Rounded so that a word too many is kept rather than one too few.
  const double exponent = std::floor((1e-9 - wanted) * 0x1.71547652b82fep0 + 1e-6);
  if (exponent >= -1.0) return 0;
  if (exponent < -33.0) return std::nullopt;
  return ~((uint32_t{1} << (33 + static_cast<int>(exponent))) - 1);
}

}  // namespace

absl::StatusOr<int32_t> VocabularyScan::MostLikely(std::span<const float> logits) const {
  float best = -kInfinity;
  std::span<const float> where;
  bool all_valid = true;
  ForEachBlock(logits, 1024, [&](size_t, std::span<const float> block) {
    bool valid = true;
    const float max = kernels_.max(block.data(), SizeOf(block), &valid);
    all_valid = all_valid && valid;
    if (max <= best) return;
    best = max;
    where = block;
  });
  if (!all_valid) return FirstInvalid(logits);
  if (best == -kInfinity) return -1;
  const float* const token = std::find(where.data(), where.data() + where.size(), best);
  return static_cast<int32_t>(token - logits.data());
}

double VocabularyScan::NormaliserOf(std::span<const float> logits) {
  bool valid = true;
  const float max = kernels_.max(logits.data(), SizeOf(logits), &valid);
  const double scale = NormaliserScale(SizeOf(logits));
  uint64_t sum = 0;
  ForEachBlock(logits, kBlock, [&](size_t, std::span<const float> block) {
    std::array<double, kBlock> gaps;
    std::array<uint64_t, kBlock> weights;
    kernels_.weigh(block.data(), SizeOf(block), max, 1.0, scale, gaps.data(), weights.data());
    sum = std::accumulate(weights.begin(), weights.begin() + block.size(), sum);
  });
  return Normaliser(max, sum, scale);
}

bool VocabularyScan::FindTop(std::span<const float> logits, uint32_t count,
                             std::vector<Candidate>* candidates) {
  // Each of the `count` blocks with the largest maxima has a token that is at least the smallest of
  // these maxima.
  constexpr size_t kSmallBlock = 64;
  if (count == 0 || count > logits.size() / kSmallBlock) return false;
  block_maxima_.clear();
  ForEachBlock(logits, kSmallBlock, [&](size_t, std::span<const float> block) {
    bool valid = true;
    block_maxima_.push_back(kernels_.max(block.data(), SizeOf(block), &valid));
  });
  ordered_maxima_ = block_maxima_;
  const auto last = ordered_maxima_.begin() + (count - 1);
  std::nth_element(ordered_maxima_.begin(), last, ordered_maxima_.end(), std::greater<>());
  const float least = *last;
  if (least == -kInfinity) return false;
  candidates->clear();
  ForEachBlock(logits, kSmallBlock, [&](size_t begin, std::span<const float> block) {
    if (block_maxima_[begin / kSmallBlock] < least) return;
    std::array<int32_t, kSmallBlock> found;
    const int64_t number =
        kernels_.find(block.data(), SizeOf(block), least, kInfinity, found.data());
    for (int64_t i = 0; i < number; ++i) {
      const size_t id = begin + static_cast<size_t>(found[static_cast<size_t>(i)]);
      candidates->push_back({logits[id], static_cast<int32_t>(id)});
    }
  });
  return true;
}

void VocabularyScan::FillBins(std::span<const float> logits, float best,
                              double inverse_temperature) {
  bin_weights_.assign(kGapBins, 0);
  ForEachBlock(logits, kBlock, [&](size_t, std::span<const float> block) {
    std::array<double, kBlock> gaps;
    std::array<uint64_t, kBlock> weights;
    kernels_.weigh(block.data(), SizeOf(block), best, inverse_temperature, kWeightScale,
                   gaps.data(), weights.data());
    for (size_t i = 0; i < block.size(); ++i) bin_weights_[GapBin(gaps[i])] += weights[i];
  });
}

Candidate VocabularyScan::LastWithin(std::span<const float> logits, const Candidate& best,
                                     double probability, double inverse_temperature) {
  FillBins(logits, best.logit, inverse_temperature);
  const BinSearch bins = FindBin(bin_weights_, probability);
  // The bin in which the probability is reached, and neighbours because of rounding.
  const double logits_per_bin = 1.0 / (kBinsPerGap * inverse_temperature);
  const double slack = 1e-5 * (std::abs(best.logit) + logits_per_bin * kGapBins) + 1e-30;
  const auto bin = static_cast<double>(bins.bin);
  const auto most = static_cast<float>(best.logit - bin * logits_per_bin + slack);
  const auto least = bins.bin + 1 == kGapBins
                         ? std::numeric_limits<float>::lowest()
                         : static_cast<float>(best.logit - (bin + 1) * logits_per_bin - slack);
  found_.resize(logits.size());
  const int64_t number = kernels_.find(logits.data(), SizeOf(logits), least, most, found_.data());
  candidates_.clear();
  for (int64_t i = 0; i < number; ++i) {
    const int32_t id = found_[static_cast<size_t>(i)];
    const float logit = logits[static_cast<size_t>(id)];
    const double gap = -ScaledLogit(logit, best.logit, inverse_temperature);
    if (GapBin(gap) == bins.bin) candidates_.push_back({logit, id});
  }
  std::sort(candidates_.begin(), candidates_.end(), tlm::MoreLikely);
  Candidate last = best;
  uint64_t sum = bins.before;
  for (const Candidate& candidate : candidates_) {
    if (static_cast<double>(sum) >= bins.wanted) break;
    sum += ProbabilityWeight(ScaledLogit(candidate.logit, best.logit, inverse_temperature));
    last = candidate;
  }
  return last;
}

int32_t VocabularyScan::ArgmaxWithNoise(std::span<const float> logits, const Candidate& best,
                                        double inverse_temperature, const Kept& kept,
                                        const NoiseKey& noise) {
  int32_t winner = best.id;
  double largest = GumbelNoise(NoiseWord(noise, best.id));
  ForEachBlock(logits, kBlock, [&](size_t begin, std::span<const float> block) {
    // Most blocks have logits too small to win with the noise of most words.
    bool valid = true;
    const float max = kernels_.max(block.data(), SizeOf(block), &valid);
    if (max < kept.last.logit) return;
    const double block_scaled = ScaledLogit(max, best.logit, inverse_temperature);
    if (block_scaled < kept.least_scaled) return;
    const std::optional<uint32_t> least = LeastWord(largest - block_scaled);
    if (!least.has_value()) return;
    std::array<NoiseHit, kBlock + kMoreHits> hits;
    const int64_t number =
        kernels_.find_noise({.seed = noise.seed,
                             .position = noise.position,
                             .output_index = noise.output_index,
                             .first_group = static_cast<uint32_t>(begin / 4),
                             .groups = static_cast<int64_t>((block.size() + 3) / 4)},
                            *least, hits.data());
    for (int64_t i = 0; i < number; ++i) {
      const auto [id, word] = hits[static_cast<size_t>(i)];
      const auto place = static_cast<size_t>(id);
      if (place >= begin + block.size()) continue;
      const double scaled = ScaledLogit(logits[place], best.logit, inverse_temperature);
      if (scaled + GumbelBound(word) < largest || !kept.Has({logits[place], id}, scaled)) continue;
      const double value = scaled + GumbelNoise(word);
      if (value > largest || (value == largest && id < winner)) {
        largest = value;
        winner = id;
      }
    }
  });
  return winner;
}

}  // namespace tlm
