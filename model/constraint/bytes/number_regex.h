// Expressions for the texts of JSON numbers with given values.
//
// A number has at most kMaxIntegerDigits digits before the point and kMaxFractionDigits after it,
// so that no output continues with digits forever. In the form kJsonAny it may also have one digit
// before the point and an exponent from -kMaxScientificExponent to kMaxScientificExponent: 4e1,
// 1.5E+02. For these texts everything here is exact: bounds and divisors are decimals, never binary
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
// Covers all integers of kMaxIntegerDigits digits.
inline constexpr int32_t kMaxScientificExponent = kMaxIntegerDigits - 1;
// Within this limit every text with an exponent is a normal double.
inline constexpr int32_t kMaxNumberExponent = 250;

// An exact decimal number: digits * 10^exponent.
class Decimal {
 public:
  static constexpr size_t kMaxDigits = 800;
  static constexpr int64_t kMaxExponent = 400;

  Decimal() = default;  // 0
  // Parses a JSON number. INVALID_ARGUMENT for other text; RESOURCE_EXHAUSTED for more than
  // kMaxDigits digits or an exponent outside [-kMaxExponent, kMaxExponent].
  static absl::StatusOr<Decimal> Parse(std::string_view json_number);

  bool is_zero() const { return digits_.empty(); }
  bool is_negative() const { return negative_; }
  bool is_integer() const { return exponent_ >= 0; }
  // Neither the first nor the last digit is 0. Empty for zero.
  const std::string& digits() const { return digits_; }
  int64_t exponent() const { return exponent_; }

  Decimal Negated() const;
  // The number times 10^power.
  Decimal Scaled(int64_t power) const;
  // The digits of the absolute value before the point ("0" if it is below 1), and after the point
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
  // Only integers. In kJson they are written without a fraction: 1, not 1.0. In kJsonAny every text
  // with an integer value is allowed.
  bool integer = false;
};

// The texts -?(0|[1-9][0-9]*)(\.[0-9]+)? with a value in the range, and in kJsonAny also texts with
// an exponent. -0 is 0.
ByteRegex NumberRegex(RegexSet& regexes, const NumberRange& range, TextForm form = TextForm::kJson);
// The texts that have exactly this value: 1, 1.0, 1.00, ...
ByteRegex NumberEqualRegex(RegexSet& regexes, const Decimal& value,
                           TextForm form = TextForm::kJson);
// All numbers of JSON's grammar with exponents up to kMaxNumberExponent.
ByteRegex AnyNumberRegex(RegexSet& regexes);

// The texts of multiples of `of` > 0, in kJsonAny also texts with an exponent. nullopt if the
// automaton could have too many states: `of` is n / 10^k with n above 10^6 or k above
// kMaxFractionDigits. For the same reason texts with some exponents are left out.
std::optional<ByteRegex> MultipleRegex(RegexSet& regexes, const Decimal& of,
                                       TextForm form = TextForm::kJson);

// Whether a number is a multiple of another. Validators divide doubles and look for a fraction,
// which is wrong for some decimals (4.35 of 0.01). There validators disagree: kDisputed.
enum class MultipleVerdict { kNo, kYes, kDisputed };
// Also kDisputed if `of` has more than 18 digits, and for texts that Decimal::Parse refuses.
MultipleVerdict CheckMultiple(std::string_view json_number, const Decimal& of);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_NUMBER_REGEX_H_
