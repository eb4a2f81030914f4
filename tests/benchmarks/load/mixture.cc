#include "tests/benchmarks/load/mixture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "model/base/errors.h"

namespace tlm::bench {
namespace {

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

bool ParseWholeNumber(std::string_view text, double* value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  *value = static_cast<double>(number);
  return true;
}

bool ParseSeconds(std::string_view text, double* value) {
  absl::Duration duration;
  if (!absl::ParseDuration(AbslView(text), &duration)) return false;
  *value = absl::ToDoubleSeconds(duration);
  return *value > 0;
}

bool ParseWeight(std::string_view text, double* weight) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *weight);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*weight) &&
         *weight > 0;
}

// Cuts `text` at the first `separator`; the second half is empty without one.
std::pair<std::string_view, std::string_view> Cut(std::string_view text,
                                                  std::string_view separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

template <typename Mix>
bool SetFlag(absl::StatusOr<Mixture> mixture, Mix* mix, std::string* error) {
  if (!mixture.ok()) {
    *error = std::string(mixture.status().message());
    return false;
  }
  mix->mixture = *std::move(mixture);
  return true;
}

}  // namespace

absl::StatusOr<Mixture::Range> Mixture::ParseRange(std::string_view text, NumberParser number) {
  Range range;
  const auto [values, weight] = Cut(text, "*");
  if (values.size() < text.size() && !ParseWeight(weight, &range.weight)) {
    return InvalidArgument("\"{}\": the weight is not a number above 0", text);
  }
  const auto [low, high] = Cut(values, "..");
  const bool single = low.size() == values.size();
  if (!number(low, &range.low) || !number(single ? low : high, &range.high) ||
      range.low > range.high) {
    return InvalidArgument("\"{}\" is neither VALUE nor LOW..HIGH", text);
  }
  return range;
}

absl::StatusOr<Mixture> Mixture::Parse(std::string_view text, NumberParser number) {
  Mixture mixture;
  mixture.text_ = std::string(text);
  for (const absl::string_view part : absl::StrSplit(AbslView(text), ',')) {
    TLM_ASSIGN_OR_RETURN(const Range range, ParseRange(StdView(part), number));
    mixture.ranges_.push_back(range);
  }
  return mixture;
}

absl::StatusOr<Mixture> Mixture::ParseCounts(std::string_view text) {
  return Parse(text, ParseWholeNumber);
}

absl::StatusOr<Mixture> Mixture::ParseDurations(std::string_view text) {
  return Parse(text, ParseSeconds);
}

const Mixture::Range& Mixture::SampleRange(Random& random) const {
  double total = 0;
  for (const Range& range : ranges_) total += range.weight;
  double left = std::uniform_real_distribution<double>(0, total)(random);
  for (const Range& range : ranges_) {
    left -= range.weight;
    if (left < 0) return range;
  }
  return ranges_.back();
}

int64_t Mixture::SampleCount(Random& random) const {
  const Range& range = SampleRange(random);
  return std::uniform_int_distribution<int64_t>(static_cast<int64_t>(range.low),
                                                static_cast<int64_t>(range.high))(random);
}

double Mixture::SampleSeconds(Random& random) const {
  const Range& range = SampleRange(random);
  if (range.low == range.high || std::isinf(range.high)) return range.high;
  return std::uniform_real_distribution<double>(range.low, range.high)(random);
}

double Mixture::min() const {
  double least = ranges_.front().low;
  for (const Range& range : ranges_) least = std::min(least, range.low);
  return least;
}

double Mixture::max() const {
  double most = ranges_.front().high;
  for (const Range& range : ranges_) most = std::max(most, range.high);
  return most;
}

bool AbslParseFlag(absl::string_view text, CountMix* mix, std::string* error) {
  return SetFlag(Mixture::ParseCounts(StdView(text)), mix, error);
}
std::string AbslUnparseFlag(const CountMix& mix) { return mix.mixture.text(); }

bool AbslParseFlag(absl::string_view text, DurationMix* mix, std::string* error) {
  return SetFlag(Mixture::ParseDurations(StdView(text)), mix, error);
}
std::string AbslUnparseFlag(const DurationMix& mix) { return mix.mixture.text(); }

CountMix Counts(std::string_view text) {
  absl::StatusOr<Mixture> mixture = Mixture::ParseCounts(text);
  TLM_CHECK(mixture.ok());
  return {*std::move(mixture)};
}

DurationMix Durations(std::string_view text) {
  absl::StatusOr<Mixture> mixture = Mixture::ParseDurations(text);
  TLM_CHECK(mixture.ok());
  return {*std::move(mixture)};
}

}  // namespace tlm::bench
