// Distributions as command line flags.
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

// Selects a range by weight, then a value uniformly from it:
//
//   128                        always 128
//   32..256                    uniform, both ends included
//   32..256*0.9,2048*0.1       2048 with probability 0.1
class Mixture {
 public:
  // Whole numbers.
  static absl::StatusOr<Mixture> ParseCounts(std::string_view text);
  // Durations, kept as seconds: "500ms", "1s..10s", "inf".
  static absl::StatusOr<Mixture> ParseDurations(std::string_view text);

  // A whole number, of a mixture of counts.
  int64_t SampleCount(Random& random) const;
  // Seconds, of a mixture of durations; may be infinite.
  double SampleSeconds(Random& random) const;

  double min() const;
  double max() const;
  // The flag's text.
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
  const Range& SampleRange(Random& random) const;

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

// For defaults of flags. CHECKs that `text` is valid.
CountMix Counts(std::string_view text);
DurationMix Durations(std::string_view text);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_MIXTURE_H_
