// How long things took, in memory that does not grow.
#ifndef TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_
#define TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tlm::cli {

// Counts values, in seconds, in buckets each 0.5 % wider than the one before, from a microsecond to
// a day: some 40 KiB, however many values there are. Mean, smallest and largest are exact.
class LatencyHistogram {
 public:
  // `times`: of a value that stands for so many. Values below 0 count as 0.
  void Add(double seconds, uint64_t times = 1);

  uint64_t count() const { return count_; }
  // Each of these 0 without values.
  double mean() const;
  double min() const { return min_; }
  double max() const { return max_; }
  // By nearest rank: the smallest value that at least `percent` per cent of the values do not
  // exceed, within 0.25 % of it.
  double Percentile(double percent) const;

 private:
  // 1.005^kBuckets microseconds are a day and a little.
  static constexpr size_t kBuckets = 5060;

  static size_t BucketOf(double seconds);

  std::array<uint64_t, kBuckets> buckets_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
  double min_ = 0;
  double max_ = 0;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_
