// Distributions as people write them on a command line.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_MIXTURE_H_
#define TLM_TESTS_BENCHMARKS_LOAD_MIXTURE_H_

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tlm::bench {

using Random = std::mt19937_64;

// One of several ranges, by weight, then uniform within it:
//
//   128                        always 128
//   32..256                    uniform, both ends included
//   32..256*0.9,2048*0.1       in one of ten cases 2048
class Mixture {
 public:
  // Whole numbers.
  static absl::StatusOr<Mixture> ParseCounts(std::string_view text);
  // Durations, kept as seconds: "500ms", "1s..10s", "inf".
  static absl::StatusOr<Mixture> ParseDurations(std::string_view text);

  // A whole number, of a mixture of counts.
  int64_t DrawCount(Random& random) const;
  // Seconds, of a mixture of durations; may be infinite.
  double DrawSeconds(Random& random) const;

  double min() const;
  double max() const;
  // As it was written.
  const std::string& text() const { return text_; }

 private:
  struct Range {
    double low = 0;
    double high = 0;
    double weight = 1;
  };
  using NumberParser = bool (*)(std::string_view text, double* value);

  static absl::StatusOr<Mixture> Parse(std::string_view text, NumberParser number);
  static absl::StatusOr<Range> ParseRange(std::string_view text, NumberParser number);
  const Range& DrawRange(Random& random) const;

  std::string text_;
  std::vector<Range> ranges_;  // at least one
};

// Flags of these types.
struct CountMix {
  Mixture mixture;
};
bool AbslParseFlag(absl::string_view text, CountMix* mix, std::string* error);
std::string AbslUnparseFlag(const CountMix& mix);

struct DurationMix {
  Mixture mixture;
};
bool AbslParseFlag(absl::string_view text, DurationMix* mix, std::string* error);
std::string AbslUnparseFlag(const DurationMix& mix);

// A default for a flag: `text` is correct (CHECKed).
CountMix Counts(std::string_view text);
DurationMix Durations(std::string_view text);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_MIXTURE_H_
