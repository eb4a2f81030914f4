#include "client/load/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace tlm::load {
namespace {

constexpr double kSmallest = 1e-6;
constexpr double kGrowth = 1.005;

}  // namespace

void LatencyHistogram::Add(double seconds, uint64_t times) {
  if (times == 0) return;
  seconds = std::max(seconds, 0.0);
  buckets_[BucketOf(seconds)] += times;
  min_ = count_ == 0 ? seconds : std::min(min_, seconds);
  max_ = std::max(max_, seconds);
  count_ += times;
  sum_ += seconds * static_cast<double>(times);
}

double LatencyHistogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

double LatencyHistogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(static_cast<double>(count_) * percent / 100);
  const uint64_t rank = std::clamp(static_cast<uint64_t>(wanted), uint64_t{1}, count_);
  uint64_t seen = 0;
  size_t bucket = 0;
  while ((seen += buckets_[bucket]) < rank) ++bucket;
  // The middle of the bucket, unless the smallest or largest value is closer.
  const double middle = kSmallest * std::pow(kGrowth, static_cast<double>(bucket) + 0.5);
  return std::clamp(middle, min_, max_);
}

size_t LatencyHistogram::BucketOf(double seconds) {
  if (seconds <= kSmallest) return 0;
  const double index = std::floor(std::log(seconds / kSmallest) / std::log(kGrowth));
  return static_cast<size_t>(std::min(index, static_cast<double>(kBuckets - 1)));
}

}  // namespace tlm::load
