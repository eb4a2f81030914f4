#include "server/speculation/speculation_policy.h"

#include <bit>
#include <cmath>

namespace tlm {
namespace {

// After this many steps a sample counts half.
constexpr double kHalfLife = 128;
// A mean moves by at least a quarter of a sample.
constexpr double kMaxWeight = 4;
// A sample counts as at most this many times the mean: two long steps in three are not a new level.
constexpr double kMaxRise = 1.5;
// A guess weighs little; the first step of a size, which is often slow, not much more.
constexpr double kGuessWeight = 0.1;
constexpr double kFirstWeight = 0.25;
// Points that weigh less are forgotten.
constexpr double kMinWeight = 1.0 / 16;

// The guessed cost of a draft model's round, in prompt tokens.
constexpr int64_t kTokensOfRound = 16;

// The guessed cost of twice the tokens.
constexpr double kTwice = 1.25;

// Token counts that differ by less than 1/16 share a point.
int64_t RoundDown(int64_t tokens) {
  const int bits = std::bit_width(static_cast<uint64_t>(tokens));
  const int dropped = std::max(bits - 5, 0);
  return (tokens >> dropped) << dropped;
}

// Returns the guessed cost of `ratio` >= 1 times the tokens.
double Growth(double ratio) {
  return ratio <= 2 ? 1 + (kTwice - 1) * (ratio - 1) : kTwice * ratio / 2;
}

}  // namespace

double StepCosts::Weight(const Point& point) const {
  return point.weight * std::exp2(-static_cast<double>(steps_ - point.step) / kHalfLife);
}

// When steps of one size are measured in a row, a change is due to time: contexts grow, or the
// machine has other work. It is applied to all sizes, so that earlier measurements stay comparable.
void StepCosts::Scale(const Point& known, double factor) {
  for (Point& point : points_) {
    if (&point == &known) continue;
    point.mean *= factor;
    for (double& seconds : point.last) seconds *= factor;
  }
}

void StepCosts::AddSample(Point& point, double seconds) {
  const int64_t pause = point.samples == 0 ? 0 : steps_ - point.step;
  point.fresh_steps = std::clamp(2 * pause, kMinFreshSteps, kFreshSteps);
  if (++point.samples == 1) {
    point.mean = seconds;
    point.weight = kFirstWeight;
    point.last = {seconds, seconds};
  } else {
    point.weight = std::min(Weight(point) + 1, kMaxWeight);
    const double before = point.mean;
    if (pause > 1 || point.samples == 2) {
      // The samples are from other times: chance may lengthen a step, but not shorten it.
      const double sample = std::min(seconds, point.last[0]);
      point.mean = std::min(before + (sample - before) / point.weight, sample);
    } else {
      const auto [least, most] = std::minmax({point.last[0], point.last[1]});
      const double median = std::clamp(seconds, least, most);
      point.mean += (std::min(median, kMaxRise * before) - before) / point.weight;
      if (point.weight == kMaxWeight) Scale(point, point.mean / before);
    }
  }
  point.last = {seconds, point.last[0]};
  point.step = steps_;
}

void StepCosts::Record(int64_t tokens, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (!(seconds > 0) || std::isinf(seconds)) return;  // too short for the clock
  ++steps_;
  const int64_t rounded = RoundDown(tokens);
  auto point = std::lower_bound(points_.begin(), points_.end(), rounded,
                                [](const Point& p, int64_t t) { return p.tokens < t; });
  if (point == points_.end() || point->tokens != rounded) {
    point = points_.insert(point, Point{.tokens = rounded});
  }
  AddSample(*point, seconds);
  std::erase_if(points_, [&](const Point& p) { return Weight(p) < kMinWeight; });
  Fit();
}

double StepCosts::Beyond(std::span<const Point> known, int64_t tokens) {
  const Point& last = known.back();
  const double more = static_cast<double>(tokens - last.tokens);
  double slope = 0;
  if (known.size() >= 2) {
    const Point& before = known[known.size() - 2];
    slope = (last.estimate - before.estimate) / static_cast<double>(last.tokens - before.tokens);
  }
  return std::max(
      last.estimate * Growth(static_cast<double>(tokens) / static_cast<double>(last.tokens)),
      last.estimate + slope * more);
}

// Makes the means rise by pooling adjacent violators, weighted so that recent measurements prevail;
// then combines each with the guess from the points below it.
void StepCosts::Fit() {
  struct Pool {
    double mean;
    double weight;
    size_t points;
  };
  std::vector<Pool> pools;
  for (const Point& point : points_) {
    Pool pool = {point.mean, Weight(point), 1};
    while (!pools.empty() && pools.back().mean > pool.mean) {
      const Pool& before = pools.back();
      const double weight = before.weight + pool.weight;
      pool = {(before.mean * before.weight + pool.mean * pool.weight) / weight, weight,
              before.points + pool.points};
      pools.pop_back();
    }
    pools.push_back(pool);
  }
  size_t i = 0;
  for (const Pool& pool : pools) {
    for (const size_t end = i + pool.points; i < end; ++i) {
      Point& point = points_[i];
      point.estimate = pool.mean;
      if (i == 0) continue;
      const std::span known = std::span(points_).first(i);
      const double weight = Weight(point);
      const double guess = Beyond(known, point.tokens);
      // Only a lower guess counts: a size that was cheaper than guessed stays attractive.
      if (guess < pool.mean) {
        point.estimate = (pool.mean * weight + guess * kGuessWeight) / (weight + kGuessWeight);
      }
      point.estimate = std::max(point.estimate, known.back().estimate);
    }
  }
}

absl::Duration StepCosts::Estimate(int64_t tokens) const {
  if (points_.empty()) return absl::ZeroDuration();
  const auto behind = std::upper_bound(points_.begin(), points_.end(), tokens,
                                       [](int64_t t, const Point& p) { return t < p.tokens; });
  if (behind == points_.end()) return absl::Seconds(Beyond(points_, tokens));
  if (behind == points_.begin()) {
    const double ratio = static_cast<double>(behind->tokens) / static_cast<double>(tokens);
    return absl::Seconds(behind->estimate / Growth(ratio));
  }
  const Point& before = *(behind - 1);
  const double part = static_cast<double>(tokens - before.tokens) /
                      static_cast<double>(behind->tokens - before.tokens);
  return absl::Seconds(before.estimate + part * (behind->estimate - before.estimate));
}

bool StepCosts::IsFresh(int64_t tokens) const {
  return std::any_of(points_.begin(), points_.end(), [&](const Point& point) {
    return point.tokens <= tokens && 5 * point.tokens >= 4 * RoundDown(tokens) &&
           steps_ - point.step < point.fresh_steps;
  });
}

std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates,
                                        int64_t sequences, const StepCosts& costs,
                                        absl::Duration round_time, int64_t max_tokens) {
  std::vector<int64_t> lengths(candidates.size(), 0);
  if (candidates.empty() || max_tokens <= 0 || !costs.IsFresh(sequences)) return lengths;

  struct Token {
    double reached;  // chance that it is reached and right
    int64_t depth;   // 1 for the first token of a draft
    size_t candidate;
    int64_t round;  // the draft model's round; 0: not by the model
  };
  std::vector<Token> tokens;
  int64_t most_rounds = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    double reached = 1;
    int64_t depth = 0;
    for (const double chance : candidates[i].chances) {
      reached *= chance;
      if (reached < kMinReach) break;
      ++depth;
      tokens.push_back({reached, depth, i, candidates[i].by_model ? depth : 0});
      most_rounds = std::max(most_rounds, tokens.back().round);
    }
  }
  // The most likely tokens first: any number of tokens is best spent on them. No token comes before
  // its predecessors in the draft.
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
    if (a.reached != b.reached) return a.reached > b.reached;
    return a.depth != b.depth ? a.depth < b.depth : a.candidate < b.candidate;
  });

  const size_t most = std::min(tokens.size(), static_cast<size_t>(max_tokens));
  std::vector<double> seconds(most + 1);
  for (size_t n = 0; n <= most; ++n) {
    seconds[n] = absl::ToDoubleSeconds(costs.Estimate(sequences + static_cast<int64_t>(n)));
  }
  const double round_seconds = absl::ToDoubleSeconds(round_time);
  double best = kMinGain * static_cast<double>(sequences) / seconds[0];
  size_t best_tokens = 0;
  int64_t best_rounds = 0;
  // Tries every number of rounds with every number of tokens, because the costs may have jumps.
  for (int64_t rounds = 0; rounds <= most_rounds; ++rounds) {
    double expected = static_cast<double>(sequences);
    const double overhead = static_cast<double>(rounds) * round_seconds;
    size_t n = 0;
    for (const Token& token : tokens) {
      if (n == most) break;
      if (token.round > rounds) continue;
      expected += token.reached;
      ++n;
      if (expected <= best * (seconds[n] + overhead)) continue;
      best = expected / (seconds[n] + overhead);
      best_tokens = n;
      best_rounds = rounds;
    }
  }
  for (const Token& token : tokens) {
    if (best_tokens == 0) break;
    if (token.round > best_rounds) continue;
    ++lengths[token.candidate];
    --best_tokens;
  }
  return lengths;
}

void DraftCosts::Record(int64_t behind, int64_t rounds, absl::Duration elapsed) {
  const auto follow = [](absl::Duration& estimate, absl::Duration measured) {
    estimate = estimate == absl::ZeroDuration() ? measured : estimate + (measured - estimate) * 0.2;
  };
  if (behind > 0 && round_ == absl::ZeroDuration()) {
    // A round reads all weights for a few tokens; many missing tokens share one such read.
    token_ = elapsed / (behind + kTokensOfRound * rounds);
    round_ = kTokensOfRound * token_;
  } else if (behind > 0) {
    const absl::Duration rest = elapsed - rounds * round_;
    follow(token_, std::max(rest, elapsed / 4) / behind);
  } else {
    follow(round_, elapsed / rounds);
  }
}

bool DraftCosts::TakeTrial(int64_t behind, int64_t rounds) {
  const absl::Duration cost = CatchUp(behind) + rounds * round_;
  if (cost > credit_) return false;
  credit_ -= cost;
  return true;
}

}  // namespace tlm
