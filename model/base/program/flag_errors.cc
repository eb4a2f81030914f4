#include "model/base/program/flag_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "model/base/json.h"

namespace tlm {
namespace {

char Folded(char c) { return c == '-' ? '_' : c; }

// Returns the edit distance of two texts: missing, extra, wrong and swapped letters.
size_t TypingErrors(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last;
  std::vector<size_t> last(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Folded(a[i - 1]) == Folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::exchange(last, std::move(row));
  }
  return last.back();
}

template <typename... Types>
bool IsOneOf(const absl::CommandLineFlag& flag) {
  return ((flag.IsOfType<Types>() || flag.IsOfType<std::optional<Types>>()) || ...);
}

template <typename T>
std::string WholeNumber(bool is_whole) {
  if (!is_whole) return "it must be a whole number";
  return fmt::format("the range is [{}, {}]", std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

// Says what the flag needs; empty for types that explain themselves.
std::string Wanted(const absl::CommandLineFlag& flag, std::string_view value) {
  const size_t digits = value.starts_with('-') || value.starts_with('+') ? 1 : 0;
  const bool is_whole = value.size() > digits &&
                        value.find_first_not_of("0123456789", digits) == std::string_view::npos;
  if (IsOneOf<int32_t>(flag)) return WholeNumber<int32_t>(is_whole);
  if (IsOneOf<uint32_t>(flag)) return WholeNumber<uint32_t>(is_whole);
  if (IsOneOf<int64_t>(flag)) return WholeNumber<int64_t>(is_whole);
  if (IsOneOf<uint64_t>(flag)) return WholeNumber<uint64_t>(is_whole);
  if (IsOneOf<float, double>(flag)) return "it must be a number";
  if (IsOneOf<bool>(flag)) return "it must be true or false";
  if (IsOneOf<absl::Duration>(flag)) return "it must be a time with its unit, as 500ms, 30s or 2m";
  return "";
}

}  // namespace

std::string DidYouMean(std::string_view wrong, std::span<const std::string_view> known,
                       std::string_view prefix) {
  constexpr size_t kMaxBytes = 64;
  constexpr size_t kMinBeginning = 3;
  if (wrong.size() > kMaxBytes) return "";
  size_t fewest = std::min<size_t>(3, wrong.size() / 3 + 1);
  std::string_view nearest;
  for (const std::string_view name : known) {
    const bool begins = wrong.size() >= kMinBeginning && name.starts_with(wrong);
    const size_t errors = begins ? 1 : TypingErrors(wrong, name);
    if (errors >= fewest) continue;
    fewest = errors;
    nearest = name;
  }
  return nearest.empty() ? "" : fmt::format(": did you mean {}{}?", prefix, nearest);
}

std::string BadFlagValue(const absl::CommandLineFlag& flag, std::string_view value,
                         std::string_view error) {
  const std::string name(flag.Name());
  const std::string shown = fmt::format("--{} is {}", name, Quoted(value));
  const std::string before_reason = fmt::format("specified for flag '{}'; ", name);
  const size_t reason = error.rfind(before_reason);
  if (reason != std::string_view::npos) {
    return fmt::format("{}: {}", shown, error.substr(reason + before_reason.size()));
  }
  const std::string wanted = Wanted(flag, value);
  return wanted.empty() ? shown + ", which it cannot be" : fmt::format("{}, {}", shown, wanted);
}

}  // namespace tlm
