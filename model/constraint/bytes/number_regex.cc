#include "model/constraint/bytes/number_regex.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t SkipDigits(std::string_view text, size_t position) {
  while (position < text.size() && IsDigit(text[position])) ++position;
  return position;
}

// The nearest double to 'digits * 10^exponent'.
double ToDouble(const Decimal& value) {
  const std::string text = fmt::format("{}{}e{}", value.is_negative() ? "-" : "",
                                       value.is_zero() ? "0" : value.digits(), value.exponent());
  double number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  // NaN if it is outside of the range of doubles.
  return result.ec == std::errc() ? number : std::nan("");
}

// Builds expressions of magnitudes, which are numbers without a sign.
class Magnitudes {
 public:
  explicit Magnitudes(RegexSet& regexes) : regexes_(regexes) {}

  ByteRegex Digit(char first = '0', char last = '9') {
    if (first > last) return RegexSet::kNone;
    return regexes_.Bytes(ByteSet::Range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
  }
  ByteRegex Digits(int32_t min, int32_t max) { return regexes_.Repeat(Digit(), min, max); }
  ByteRegex AnyDigits() { return Digits(0, RegexSet::kUnbounded); }
  ByteRegex Text(std::string_view text) { return regexes_.Literal(text); }
  ByteRegex Point(ByteRegex digits) { return regexes_.Concat(Text("."), digits); }

  ByteRegex Integer() {
    return regexes_.Or(Text("0"), regexes_.Concat(Digit('1'), Digits(0, kMaxIntegerDigits - 1)));
  }
  ByteRegex MaybeFraction() {
    return regexes_.Or(RegexSet::kEmpty, Point(Digits(1, kMaxFractionDigits)));
  }
  // All magnitudes within the limits.
  ByteRegex All(bool integer) {
    return integer ? Integer() : regexes_.Concat(Integer(), MaybeFraction());
  }

  // The integers within the limits, also as 1.0, 1.00, ...
  ByteRegex WholeNumbers() {
    return regexes_.And(All(false), regexes_.Concat(Integer(), FractionEqual("")));
  }

  // One digit except 0, and perhaps a fraction within the limits. Without the zeros at its end, the
  // fraction has at most `fraction_digits` digits.
  ByteRegex Mantissa(int32_t fraction_digits) {
    const ByteRegex digits = regexes_.Concat(Digits(0, fraction_digits), Zeros(0));
    const ByteRegex one = Digit('1');
    return regexes_.And(regexes_.Concat(one, MaybeFraction()),
                        regexes_.Or(one, regexes_.Concat(one, Point(digits))));
  }

  ByteRegex ZeroMantissa() { return regexes_.And(All(false), Equal(Decimal())); }

  // The exponents in the syntax of JSON, with up to two zeros before their digits.
  ByteRegex Exponents(const std::vector<int32_t>& exponents) {
    const auto sign = [this](char c) { return Text(std::string(1, c)); };
    std::vector<ByteRegex> texts;
    for (const int32_t exponent : exponents) {
      const ByteRegex signs = exponent < 0 ? sign('-')
                              : exponent > 0
                                  ? regexes_.Repeat(sign('+'), 0, 1)
                                  : regexes_.Repeat(regexes_.Or(sign('+'), sign('-')), 0, 1);
      const ByteRegex digits = regexes_.Concat(regexes_.Repeat(Text("0"), 0, 2),
                                               Text(fmt::to_string(std::abs(exponent))));
      texts.push_back(regexes_.Concat(signs, digits));
    }
    return regexes_.Concat(regexes_.Or(Text("e"), Text("E")), regexes_.Or(texts));
  }

  // The magnitudes in the range, written as a digit, perhaps a fraction, and an exponent.
  ByteRegex Scientific(const NumberRange& range) {
    const Decimal zero;
    static const Decimal kOne = *Decimal::Parse("1"), kTen = *Decimal::Parse("10");
    std::map<ByteRegex, std::vector<int32_t>> exponents;  // by mantissa
    const bool has_zero = (!range.min.has_value() || *range.min < zero ||
                           (*range.min == zero && !range.min_exclusive)) &&
                          (!range.max.has_value() || *range.max > zero ||
                           (*range.max == zero && !range.max_exclusive));
    for (int32_t exponent = -kMaxScientificExponent; exponent <= kMaxScientificExponent;
         ++exponent) {
      if (has_zero) exponents[ZeroMantissa()].push_back(exponent);
      if (range.integer && exponent < 0) continue;
      ByteRegex mantissa = Mantissa(range.integer ? exponent : kMaxFractionDigits);
      const auto limit = [&](const std::optional<Decimal>& bound, bool exclusive, bool above) {
        if (!bound.has_value() || (above && *bound <= zero)) return;
        if (*bound <= zero) {
          mantissa = RegexSet::kNone;
          return;
        }
        const Decimal scaled = bound->Scaled(-exponent);
        // A bound outside of the decade allows all of it or nothing.
        const bool is_below = scaled < kOne, is_above = scaled >= kTen;
        if (is_below || is_above) {
          if (is_above == above) mantissa = RegexSet::kNone;
          return;
        }
        ByteRegex side = above ? Above(scaled) : Below(scaled);
        if (!exclusive) side = regexes_.Or(side, Equal(scaled));
        mantissa = regexes_.And(mantissa, side);
      };
      limit(range.min, range.min_exclusive, true);
      limit(range.max, range.max_exclusive, false);
      if (mantissa != RegexSet::kNone) exponents[mantissa].push_back(exponent);
    }
    std::vector<ByteRegex> texts;
    for (const auto& [mantissa, of] : exponents) {
      texts.push_back(regexes_.Concat(mantissa, Exponents(of)));
    }
    return regexes_.Or(texts);
  }

  // The texts with the value of the bound. They may have longer fractions than All allows.
  ByteRegex Equal(const Decimal& bound) {
    return regexes_.Concat(Text(bound.IntegerDigits()), FractionEqual(bound.FractionDigits()));
  }

  // The texts with smaller values than the magnitude of the bound. All may exclude some of them.
  ByteRegex Below(const Decimal& bound) {
    const std::string integer = bound.IntegerDigits();
    std::vector<ByteRegex> parts;
    // Integers with fewer digits.
    const auto shorter = static_cast<int32_t>(integer.size()) - 1;
    if (shorter > 0) {
      parts.push_back(Text("0"));
      parts.push_back(regexes_.Concat(Digit('1'), Digits(0, shorter - 1)));
    }
    AddDifferent(integer, '\0', &parts);
    const ByteRegex smaller = regexes_.Concat(regexes_.Or(parts), AnyFraction());
    return regexes_.Or(smaller,
                       regexes_.Concat(Text(integer), FractionBelow(bound.FractionDigits())));
  }

  ByteRegex Above(const Decimal& bound) {
    const std::string integer = bound.IntegerDigits();
    std::vector<ByteRegex> parts = {regexes_.Concat(
        Digit('1'), Digits(static_cast<int32_t>(integer.size()), RegexSet::kUnbounded))};
    AddDifferent(integer, '9', &parts);
    const ByteRegex larger = regexes_.Concat(regexes_.Or(parts), AnyFraction());
    return regexes_.Or(larger,
                       regexes_.Concat(Text(integer), FractionAbove(bound.FractionDigits())));
  }

 private:
  ByteRegex AnyFraction() {
    return regexes_.Or(RegexSet::kEmpty, Point(Digits(1, RegexSet::kUnbounded)));
  }

  // Adds integers with as many digits as `integer`: the same digits up to a place, there a digit
  // that is nearer to `end` ('\0' or '9'), and then any digits.
  void AddDifferent(const std::string& integer, char end, std::vector<ByteRegex>* parts) {
    for (size_t i = 0; i < integer.size(); ++i) {
      const char least = i == 0 && integer.size() > 1 ? '1' : '0';
      const ByteRegex digit = end == '9' ? Digit(static_cast<char>(integer[i] + 1), '9')
                                         : Digit(least, static_cast<char>(integer[i] - 1));
      const auto left = static_cast<int32_t>(integer.size() - i - 1);
      parts->push_back(
          regexes_.Concat(std::array{Text(integer.substr(0, i)), digit, Digits(left, left)}));
    }
  }

  ByteRegex Zeros(int32_t min) { return regexes_.Repeat(Text("0"), min, RegexSet::kUnbounded); }
  ByteRegex FractionEqual(const std::string& fraction) {
    if (fraction.empty()) return regexes_.Or(RegexSet::kEmpty, Point(Zeros(1)));
    return Point(regexes_.Concat(Text(fraction), Zeros(0)));
  }
  ByteRegex FractionBelow(const std::string& fraction) {
    if (fraction.empty()) return RegexSet::kNone;
    std::vector<ByteRegex> parts = {RegexSet::kEmpty};
    for (size_t i = 0; i < fraction.size(); ++i) {
      // A proper prefix of the bound's digits is smaller, because the last digit is not 0.
      const ByteRegex same = Text(fraction.substr(0, i));
      if (i > 0) parts.push_back(Point(same));
      const ByteRegex digit = Digit('0', static_cast<char>(fraction[i] - 1));
      parts.push_back(Point(regexes_.Concat(std::array{same, digit, AnyDigits()})));
    }
    return regexes_.Or(parts);
  }
  ByteRegex FractionAbove(const std::string& fraction) {
    std::vector<ByteRegex> parts = {
        Point(regexes_.Concat(std::array{Text(fraction), Zeros(0), Digit('1'), AnyDigits()}))};
    for (size_t i = 0; i < fraction.size(); ++i) {
      const ByteRegex digit = Digit(static_cast<char>(fraction[i] + 1), '9');
      parts.push_back(
          Point(regexes_.Concat(std::array{Text(fraction.substr(0, i)), digit, AnyDigits()})));
    }
    return regexes_.Or(parts);
  }

  RegexSet& regexes_;
};

// Reads the digits of a magnitude as an integer in units of 10^-scale, and keeps the remainder of
// its division by `modulus`.
class MultipleAutomaton final : public RegexSet::Automaton {
 public:
  MultipleAutomaton(int32_t modulus, int32_t scale) : modulus_(modulus), scale_(scale) {}

  bool Accepts(int32_t state) const override {
    // Digits that are not written are zeros.
    int64_t remainder = state % modulus_;
    for (int32_t i = DigitsLeft(state); i > 0 && remainder != 0; --i) {
      remainder = remainder * 10 % modulus_;
    }
    return remainder == 0;
  }

  int32_t Next(int32_t state, uint8_t byte) const override {
    const int32_t part = state / modulus_;
    const int32_t remainder = state % modulus_;
    if (byte == '.') return part == 0 ? modulus_ + remainder : kDead;
    if (!IsDigit(static_cast<char>(byte))) return kDead;
    if (DigitsLeft(state) == 0 && part > 0) return byte == '0' ? state : kDead;
    const int64_t next = (int64_t{remainder} * 10 + (byte - '0')) % modulus_;
    return static_cast<int32_t>((part == 0 ? 0 : part + 1) * int64_t{modulus_} + next);
  }

 private:
  // A state is remainder + modulus * part. Part 0 is before the point; part 1 + n is after the
  // point and n digits.
  int32_t DigitsLeft(int32_t state) const {
    const int32_t part = state / modulus_;
    return part == 0 ? scale_ : scale_ - (part - 1);
  }

  const int32_t modulus_;
  const int32_t scale_;
};

// The number digits * 10^exponent; nullopt if it has too many digits.
std::optional<int64_t> SmallInteger(const std::string& digits, int64_t exponent) {
  constexpr int64_t kMaxDigits = 18;
  if (static_cast<int64_t>(digits.size()) + exponent > kMaxDigits) return std::nullopt;
  int64_t value = 0;
  for (const char digit : digits) value = value * 10 + (digit - '0');
  for (; exponent > 0; --exponent) value *= 10;
  return value;
}

// Whether `number` is exactly a multiple of `of`; nullopt if `of` has too many digits.
std::optional<bool> IsExactMultiple(const Decimal& number, const Decimal& of) {
  const std::optional<int64_t> divisor = SmallInteger(of.digits(), 0);
  if (!divisor.has_value() || of.is_zero()) return std::nullopt;
  if (number.is_zero()) return true;
  // The last digit of both is not 0, so a number with a smaller last unit is not a multiple.
  if (number.exponent() < of.exponent()) return false;
  __int128 remainder = 0;
  for (const char digit : number.digits()) remainder = (remainder * 10 + (digit - '0')) % *divisor;
  for (int64_t i = number.exponent() - of.exponent(); i > 0 && remainder != 0; --i) {
    remainder = remainder * 10 % *divisor;
  }
  return remainder == 0;
}

}  // namespace

absl::StatusOr<Decimal> Decimal::Parse(std::string_view json_number) {
  const auto malformed = [&] { return InvalidArgument("{} is no number", Quoted(json_number)); };
  Decimal value;
  size_t position = json_number.starts_with("-") ? 1 : 0;
  value.negative_ = position == 1;
  const size_t integer = position;
  position = SkipDigits(json_number, position);
  if (position == integer || (json_number[integer] == '0' && position > integer + 1)) {
    return malformed();
  }
  value.digits_ = json_number.substr(integer, position - integer);
  if (position < json_number.size() && json_number[position] == '.') {
    const size_t fraction = position + 1;
    position = SkipDigits(json_number, fraction);
    if (position == fraction) return malformed();
    value.digits_ += json_number.substr(fraction, position - fraction);
    value.exponent_ = -static_cast<int64_t>(position - fraction);
  }
  if (position < json_number.size() && (json_number[position] | 0x20) == 'e') {
    ++position;
    const bool minus = json_number.substr(position).starts_with("-");
    if (minus || json_number.substr(position).starts_with("+")) ++position;
    const size_t begin = position;
    int64_t exponent = 0;
    for (position = SkipDigits(json_number, begin);
         const char c : json_number.substr(begin, position - begin)) {
      exponent = std::min<int64_t>(exponent * 10 + (c - '0'), 1'000'000'000);
    }
    if (position == begin) return malformed();
    value.exponent_ += minus ? -exponent : exponent;
  }
  if (position < json_number.size()) return malformed();
  value.digits_.erase(0, std::min(value.digits_.find_first_not_of('0'), value.digits_.size()));
  while (!value.digits_.empty() && value.digits_.back() == '0') {
    value.digits_.pop_back();
    ++value.exponent_;
  }
  if (value.digits_.empty()) return Decimal();
  if (value.digits_.size() > kMaxDigits || std::abs(value.exponent_) > kMaxExponent) {
    return ResourceExhausted("the number {} has more than {} digits, or an exponent beyond {}",
                             Quoted(json_number), kMaxDigits, kMaxExponent);
  }
  return value;
}

Decimal Decimal::Negated() const {
  Decimal negated = *this;
  negated.negative_ = !negative_ && !is_zero();
  return negated;
}

Decimal Decimal::Scaled(int64_t power) const {
  Decimal scaled = *this;
  if (!is_zero()) scaled.exponent_ += power;
  return scaled;
}

std::string Decimal::IntegerDigits() const {
  std::string digits = digits_;
  if (exponent_ > 0) {
    digits.append(static_cast<size_t>(exponent_), '0');
  } else {
    const auto decimals = static_cast<size_t>(-exponent_);
    digits.resize(digits.size() - std::min(decimals, digits.size()));
  }
  return digits.empty() ? "0" : digits;
}

std::string Decimal::FractionDigits() const {
  if (exponent_ >= 0) return "";
  const auto decimals = static_cast<size_t>(-exponent_);
  if (decimals <= digits_.size()) return digits_.substr(digits_.size() - decimals);
  return std::string(decimals - digits_.size(), '0') + digits_;
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& value) {
    return value.is_zero() ? 0 : value.is_negative() ? -1 : 1;
  };
  if (sign(a) != sign(b)) return sign(a) <=> sign(b);
  const Decimal& larger_if_more = sign(a) >= 0 ? a : b;
  const Decimal& other = sign(a) >= 0 ? b : a;
  const auto places = [](const Decimal& value) {
    return static_cast<int64_t>(value.digits_.size()) + value.exponent_;
  };
  if (places(a) != places(b)) return places(larger_if_more) <=> places(other);
  // Both start at the same place. A proper prefix is smaller, because the last digit is not 0.
  return larger_if_more.digits_ <=> other.digits_;
}

ByteRegex NumberRegex(RegexSet& regexes, const NumberRange& range, TextForm form) {
  Magnitudes magnitudes(regexes);
  const bool any = form == TextForm::kJsonAny;
  const ByteRegex all =
      range.integer && any ? magnitudes.WholeNumbers() : magnitudes.All(range.integer);
  // The magnitudes in `side`, the part of the range on one side of zero.
  const auto within = [&](const NumberRange& side) {
    ByteRegex regex = all;
    const Decimal zero;
    if (side.max.has_value()) {
      if (*side.max < zero || (*side.max == zero && side.max_exclusive)) return RegexSet::kNone;
      ByteRegex below = magnitudes.Below(*side.max);
      if (!side.max_exclusive) below = regexes.Or(below, magnitudes.Equal(*side.max));
      regex = regexes.And(regex, below);
    }
    if (side.min.has_value() && *side.min >= zero) {
      ByteRegex above = magnitudes.Above(*side.min);
      if (!side.min_exclusive) above = regexes.Or(above, magnitudes.Equal(*side.min));
      regex = regexes.And(regex, above);
    }
    return any ? regexes.Or(regex, magnitudes.Scientific(side)) : regex;
  };
  const auto negated = [](const std::optional<Decimal>& bound) {
    return bound.has_value() ? std::optional(bound->Negated()) : std::nullopt;
  };
  const ByteRegex plus = within(range);
  const ByteRegex minus = within({.min = negated(range.max),
                                  .max = negated(range.min),
                                  .min_exclusive = range.max_exclusive,
                                  .max_exclusive = range.min_exclusive,
                                  .integer = range.integer});
  const ByteRegex sign = magnitudes.Text("-");
  if (plus == minus) return regexes.Concat(regexes.Repeat(sign, 0, 1), plus);
  return regexes.Or(plus, regexes.Concat(sign, minus));
}

ByteRegex NumberEqualRegex(RegexSet& regexes, const Decimal& value, TextForm form) {
  return NumberRegex(regexes, {.min = value, .max = value}, form);
}

ByteRegex AnyNumberRegex(RegexSet& regexes) {
  Magnitudes magnitudes(regexes);
  const ByteRegex number = NumberRegex(regexes, {});
  static_assert(kMaxNumberExponent == 250);
  const ByteRegex up_to_limit = regexes.Or(std::array{
      magnitudes.Digits(1, 2), regexes.Concat(magnitudes.Digit('0', '1'), magnitudes.Digits(2, 2)),
      regexes.Concat(
          std::array{magnitudes.Text("2"), magnitudes.Digit('0', '4'), magnitudes.Digit()}),
      magnitudes.Text("250")});
  const auto one_of = [&regexes](char a, char b) {
    return regexes.Bytes(ByteSet::Of(static_cast<uint8_t>(a)) |
                         ByteSet::Of(static_cast<uint8_t>(b)));
  };
  const ByteRegex exponent = regexes.Concat(
      std::array{one_of('e', 'E'), regexes.Repeat(one_of('+', '-'), 0, 1), up_to_limit});
  return regexes.Concat(number, regexes.Repeat(exponent, 0, 1));
}

std::optional<ByteRegex> MultipleRegex(RegexSet& regexes, const Decimal& of, TextForm form) {
  Magnitudes magnitudes(regexes);
  // The multiples of `divisor` among the magnitudes of the expression `all`.
  const auto among = [&](const Decimal& divisor, ByteRegex all) -> std::optional<ByteRegex> {
    constexpr int64_t kMaxModulus = 1'000'000;
    const std::optional<int64_t> modulus =
        SmallInteger(divisor.digits(), std::max<int64_t>(divisor.exponent(), 0));
    const int64_t scale = std::max<int64_t>(-divisor.exponent(), 0);
    if (!modulus.has_value() || *modulus > kMaxModulus || scale > kMaxFractionDigits) {
      return std::nullopt;
    }
    const auto automaton = std::make_shared<MultipleAutomaton>(static_cast<int32_t>(*modulus),
                                                               static_cast<int32_t>(scale));
    return regexes.And(all, regexes.StateOf(automaton, 0));
  };
  if (of.is_zero() || of.is_negative()) return std::nullopt;
  const std::optional<ByteRegex> plain = among(of, magnitudes.All(false));
  if (!plain.has_value()) return std::nullopt;
  std::vector<ByteRegex> texts = {*plain};
  const ByteRegex mantissas =
      regexes.Or(magnitudes.Mantissa(kMaxFractionDigits), magnitudes.ZeroMantissa());
  for (int32_t exponent = -kMaxScientificExponent;
       form == TextForm::kJsonAny && exponent <= kMaxScientificExponent; ++exponent) {
    const auto scaled = among(of.Scaled(-exponent), mantissas);
    if (scaled.has_value()) {
      texts.push_back(regexes.Concat(*scaled, magnitudes.Exponents({exponent})));
    }
  }
  const ByteRegex sign = regexes.Repeat(magnitudes.Text("-"), 0, 1);
  return regexes.Concat(sign, regexes.Or(texts));
}

MultipleVerdict CheckMultiple(std::string_view json_number, const Decimal& of) {
  const absl::StatusOr<Decimal> number = Decimal::Parse(json_number);
  if (!number.ok()) return MultipleVerdict::kDisputed;
  const std::optional<bool> exact = IsExactMultiple(*number, of);
  if (!exact.has_value()) return MultipleVerdict::kDisputed;
  const double quotient = ToDouble(*number) / ToDouble(of);
  const bool rounded = std::isfinite(quotient) && std::trunc(quotient) == quotient;
  // An integer divisor must also divide the double itself.
  const bool remainder = !of.is_integer() || std::fmod(ToDouble(*number), ToDouble(of)) == 0;
  if (*exact != rounded || *exact != (rounded && remainder)) return MultipleVerdict::kDisputed;
  return *exact ? MultipleVerdict::kYes : MultipleVerdict::kNo;
}

}  // namespace tlm
