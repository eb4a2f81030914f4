#include "model/jinja/number_parsing.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "model/base/errors.h"
#include "model/jinja/arithmetic.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Python's whitespace off both ends.
std::string_view Trimmed(std::string_view text) {
  return StripRight(StripLeft(text, IsSpace), IsSpace);
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// The base that "0x", "0o" or "0b" stands for, 0 without one.
int64_t PrefixBase(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char letter = static_cast<char>(text[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

// Text without the underscores between its digits; nullopt when one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && DigitValue(text[i - 1]) < 36 &&
                         DigitValue(text[i + 1]) < 36;
    if (!between) return std::nullopt;
  }
  return result;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) {
    return InvalidArgument("int() base must be >= 2 and <= 36, or 0, not {}", base);
  }
  text = Trimmed(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const int64_t prefix_base = PrefixBase(text);
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    base = prefix_base;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    if (text.starts_with('0') && text.find_first_not_of("0_") != text.npos) return std::nullopt;
    base = 10;
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  int64_t value = 0;
  bool overflow = false;
  for (const char c : *digits) {
    const int digit = DigitValue(c);
    if (digit >= base) return std::nullopt;
    overflow = overflow || __builtin_mul_overflow(value, base, &value) ||
               __builtin_sub_overflow(value, digit, &value);  // towards the larger half
  }
  if (overflow || (!negative && __builtin_mul_overflow(value, int64_t{-1}, &value))) {
    return IntegerOverflow();
  }
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Trimmed(text);
  const std::optional<std::string> plain = WithoutUnderscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view number = *plain;
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number.remove_prefix(1);
  if (number.empty() || number[0] == '-' || number[0] == '+' || number.ends_with(')')) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  // from_chars leaves what is too large or too small alone; strtod knows which it is.
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(number).c_str(), nullptr);
  return negative ? -value : value;
}

absl::StatusOr<std::optional<int64_t>> TruncateToInteger(double value) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (std::isnan(value)) return std::nullopt;
  if (!(value >= -kTwoTo63 && value < kTwoTo63)) return IntegerOverflow();
  return static_cast<int64_t>(value);
}

}  // namespace tlm::jinja
