// A histogram of latencies, in constant memory.
#ifndef TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_
#define TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tlm::load {

// Counts values, in seconds, in buckets that are each 0.5 % wider than the one before, from a
// microsecond to a day: 40 KiB. Mean, smallest and largest value are exact.
class LatencyHistogram {
 public:
  // Adds a value `times` times. Values below 0 count as 0.
  void Add(double seconds, uint64_t times = 1);

  uint64_t count() const { return count_; }
  // These are 0 without values.
  double mean() const;
  double min() const { return min_; }
  double max() const { return max_; }
  // Returns the smallest value that at least `percent` % of the values do not exceed (nearest
  // rank), within 0.25 %.
  double Percentile(double percent) const;

 private:
  // 1.005^kBuckets microseconds are a little more than a day.
  static constexpr size_t kBuckets = 5060;

  static size_t BucketOf(double seconds);

  std::array<uint64_t, kBuckets> buckets_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
  double min_ = 0;
  double max_ = 0;
};

}  // namespace tlm::load

#endif  // TLM_CLIENT_LOAD_LATENCY_HISTOGRAM_H_
