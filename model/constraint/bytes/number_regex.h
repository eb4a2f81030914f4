// JSON numbers by their values, as texts.
//
// A number has at most kMaxIntegerDigits digits before the point and kMaxFractionDigits after it,
// so that no output lives on digits. In the form kJsonAny it may also have one digit before the
// point and an exponent from -kMaxScientificExponent to kMaxScientificExponent: 4e1, 1.5E+02.
// Within these texts everything here is exact: bounds and divisors are decimals, never binary
// floating point.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_NUMBER_REGEX_H_
#define TLM_MODEL_CONSTRAINT_BYTES_NUMBER_REGEX_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_set.h"

namespace tlm {

inline constexpr int32_t kMaxIntegerDigits = 40;
inline constexpr int32_t kMaxFractionDigits = 40;
// All integers of kMaxIntegerDigits digits.
inline constexpr int32_t kMaxScientificExponent = kMaxIntegerDigits - 1;
// With it every text with an exponent is a normal double.
inline constexpr int32_t kMaxNumberExponent = 250;

// An exact decimal number: digits * 10^exponent.
class Decimal {
 public:
  static constexpr size_t kMaxDigits = 800;
  static constexpr int64_t kMaxExponent = 400;

  Decimal() = default;  // 0
  // The text of a JSON number. INVALID_ARGUMENT if it is none, RESOURCE_EXHAUSTED for more than
  // kMaxDigits digits, or an exponent of more than kMaxExponent either way.
  static absl::StatusOr<Decimal> Parse(std::string_view json_number);

  bool is_zero() const { return digits_.empty(); }
  bool is_negative() const { return negative_; }
  bool is_integer() const { return exponent_ >= 0; }
  // Neither the first nor the last is 0. None of zero.
  const std::string& digits() const { return digits_; }
  int64_t exponent() const { return exponent_; }

  Decimal Negated() const;
  // Times 10^power.
  Decimal Scaled(int64_t power) const;
  // Of the magnitude: the digits before the point ("0" if there are none) and those behind it,
  // without zeros at the end.
  std::string IntegerDigits() const;
  std::string FractionDigits() const;

  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal& a, const Decimal& b) = default;

 private:
  bool negative_ = false;
  std::string digits_;
  int64_t exponent_ = 0;
};

struct NumberRange {
  std::optional<Decimal> min = std::nullopt, max = std::nullopt;
  bool min_exclusive = false, max_exclusive = false;
  // In kJson texts without a fraction part only: 1, but not 1.0; in kJsonAny all integers by value.
  bool integer = false;
};

// The texts -?(0|[1-9][0-9]*)(\.[0-9]+)? of a value in the range, in kJsonAny those with an
// exponent, too. -0 is 0.
ByteRegex NumberRegex(RegexSet& regexes, const NumberRange& range, TextForm form = TextForm::kJson);
// The texts of the form of exactly that value: 1, 1.0, 1.00, ...
ByteRegex NumberEqualRegex(RegexSet& regexes, const Decimal& value,
                           TextForm form = TextForm::kJson);
// All numbers of JSON's grammar with exponents up to kMaxNumberExponent.
ByteRegex AnyNumberRegex(RegexSet& regexes);

// The texts of multiples of `of` > 0, in kJsonAny those with an exponent, too. nullopt where the
// automaton could have too many states: `of` is n / 10^k with n above 10^6 or k above
// kMaxFractionDigits. For the same reason texts with some exponents are left out.
std::optional<ByteRegex> MultipleRegex(RegexSet& regexes, const Decimal& of,
                                       TextForm form = TextForm::kJson);

// Whether a number is a multiple of another. Validators divide doubles and look for a fraction,
// which is wrong for some decimals (4.35 of 0.01): there it depends on whom one asks.
enum class MultipleVerdict { kNo, kYes, kDisputed };
// kDisputed also where `of` has more than 18 digits, and for a text that Decimal does not take.
MultipleVerdict CheckMultiple(std::string_view json_number, const Decimal& of);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_NUMBER_REGEX_H_
