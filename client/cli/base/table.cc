#include "client/cli/base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string_view>

#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

// Divides `value` by 1000 until it is smaller, at most prefixes - 1 times; returns how often.
size_t Scale(size_t prefixes, double* value) {
  size_t steps = 0;
  while (*value >= 1000 && steps + 1 < prefixes) {
    *value /= 1000;
    ++steps;
  }
  return steps;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() <= columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out, int indent) const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - DisplayWidth(row[i]), ' ');
      if (i > 0) line += "  ";
      line += columns_[i] == Align::kLeft ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

std::string WithSeparators(uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string HumanCount(double count) {
  constexpr std::string_view kPrefixes[] = {"", " k", " M", " G", " T", " P", " E"};
  const size_t prefix = Scale(std::size(kPrefixes), &count);
  if (prefix == 0) return fmt::format("{:.0f}", count);
  return fmt::format("{:.2f}{}", count, kPrefixes[prefix]);
}

std::string HumanParameters(uint64_t count) {
  constexpr std::string_view kPrefixes[] = {"", " k", " M", " B", " T"};
  double value = static_cast<double>(count);
  const size_t prefix = Scale(std::size(kPrefixes), &value);
  if (prefix == 0) return fmt::format("{}", count);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : 1, kPrefixes[prefix]);
}

std::string WithSeparators(double number, int decimals) {
  if (!std::isfinite(number)) return "-";
  std::string digits = fmt::format("{:.{}f}", number, decimals);
  const size_t first = digits.starts_with('-') ? 1 : 0;
  for (size_t end = std::min(digits.find('.'), digits.size()); end > first + 3; end -= 3) {
    digits.insert(end - 3, 1, ',');
  }
  return digits;
}

std::string HumanSeconds(double seconds) {
  const bool whole = seconds >= 0.9995;
  const double value = whole ? seconds : seconds * 1000;
  const int decimals = value < 0.9995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, whole ? "s" : "ms");
}

std::string Percent(double share) { return fmt::format("{:.1f} %", share * 100); }

}  // namespace tlm::cli
