#include "model/constraint/bytes/number_regex.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_dfa.h"

namespace tlm {
namespace {

Decimal Parse(std::string_view text) {
  const auto value = Decimal::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.value_or(Decimal());
}

// The value in units of 10^-9, of a text with at most so many digits behind the point.
__int128 Scaled(std::string_view text) {
  const bool negative = text.starts_with("-");
  __int128 value = 0;
  int behind = -1;
  for (const char c : text.substr(negative ? 1 : 0)) {
    if (c == '.') {
      behind = 0;
      continue;
    }
    value = value * 10 + (c - '0');
    if (behind >= 0) ++behind;
  }
  for (int i = std::max(behind, 0); i < 9; ++i) value *= 10;
  return negative ? -value : value;
}

class NumberRegexTest : public ::testing::Test {
 protected:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  // Few digits, many of them 0, 1 and 9, so that texts lie at and beside each other.
  std::string RandomDigits(int count) {
    std::string digits;
    for (int i = 0; i < count; ++i) digits += "0019959"[Draw(7)];
    return digits;
  }
  std::string RandomNumber() {
    std::string text = Draw(3) == 0 ? "-" : "";
    std::string integer = RandomDigits(1 + Draw(3));
    integer.erase(0, std::min(integer.find_first_not_of('0'), integer.size() - 1));
    text += integer;
    if (Draw(2) == 0) text += "." + RandomDigits(1 + Draw(3));
    return text;
  }
  bool Holds(ByteRegex regex, std::string_view text) { return Matches(regexes_, regex, text); }

  std::mt19937 random_{5};
  RegexSet regexes_{1 << 22};
};

TEST_F(NumberRegexTest, DecimalsCompareAsTheirValues) {
  for (int round = 0; round < 100'000; ++round) {
    const std::string a = RandomNumber(), b = RandomNumber();
    ASSERT_EQ(Parse(a) < Parse(b), Scaled(a) < Scaled(b)) << a << " " << b;
    ASSERT_EQ(Parse(a) == Parse(b), Scaled(a) == Scaled(b)) << a << " " << b;
  }
  EXPECT_EQ(Parse("1.50e2"), Parse("150"));
  EXPECT_EQ(Parse("-0.0E-7"), Parse("0"));
  EXPECT_EQ(Parse("12e+3").IntegerDigits(), "12000");
  EXPECT_EQ(Parse("12e-3").FractionDigits(), "012");
  EXPECT_EQ(Parse("12e-1").IntegerDigits() + "." + Parse("12e-1").FractionDigits(), "1.2");
}

TEST_F(NumberRegexTest, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "1 ", "--1", "1.2.3"}) {
    EXPECT_EQ(Decimal::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  for (const std::string& text : {std::string("1e401"), std::string("1e-401"),
                                  std::string("1e99999999999"), "1" + std::string(800, '3')}) {
    EXPECT_EQ(Decimal::Parse(text).status().code(), absl::StatusCode::kResourceExhausted) << text;
  }
  EXPECT_TRUE(Decimal::Parse("1" + std::string(399, '0')).ok());
}

TEST_F(NumberRegexTest, RangesHoldWhatLiesInThem) {
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(RandomNumber());
  for (int round = 0; round < 1000; ++round) {
    NumberRange range;
    std::string min, max;
    if (Draw(5) > 0) range.min = Parse(min = RandomNumber());
    if (Draw(5) > 0) range.max = Parse(max = RandomNumber());
    range.min_exclusive = Draw(2) == 0;
    range.max_exclusive = Draw(2) == 0;
    range.integer = Draw(4) == 0;
    const ByteRegex regex = NumberRegex(regexes_, range);
    std::vector<std::string> probes = texts;
    for (const std::string& bound : {min, max}) {
      if (bound.empty()) continue;
      const std::string longer = bound.find('.') == bound.npos ? bound + "." : bound;
      probes.insert(probes.end(),
                    {bound, longer + "0", longer + "00", longer + "1", longer + "01"});
    }
    probes.push_back("-0");
    for (const std::string& text : probes) {
      const __int128 value = Scaled(text);
      const bool above =
          !range.min || value > Scaled(min) || (value == Scaled(min) && !range.min_exclusive);
      const bool below =
          !range.max || value < Scaled(max) || (value == Scaled(max) && !range.max_exclusive);
      const bool form = !range.integer || text.find('.') == text.npos;
      ASSERT_EQ(Holds(regex, text), above && below && form)
          << text << " in " << min << " (" << range.min_exclusive << ") to " << max << " ("
          << range.max_exclusive << ")";
    }
    ASSERT_FALSE(Holds(regex, "01"));
    ASSERT_FALSE(Holds(regex, ""));
    ASSERT_FALSE(Holds(regex, "-"));
  }
}

TEST_F(NumberRegexTest, DigitsEndSomewhere) {
  const std::string nines(kMaxIntegerDigits, '9'), zeros(kMaxFractionDigits, '0');
  const ByteRegex any = NumberRegex(regexes_, {});
  EXPECT_TRUE(Holds(any, "-" + nines + "." + zeros));
  EXPECT_FALSE(Holds(any, nines + "9"));
  EXPECT_FALSE(Holds(any, "1." + zeros + "0"));
  EXPECT_EQ(any, NumberRegex(regexes_, {}));
  // Bounds beyond all texts, and behind their last digits.
  EXPECT_TRUE(Holds(NumberRegex(regexes_, {.max = Parse("1e300")}), nines));
  RegexDfa none(regexes_, NumberRegex(regexes_, {.min = Parse("1e300")}), 10'000);
  EXPECT_EQ(none.start(), RegexDfa::kDead);
  const ByteRegex tiny = NumberRegex(regexes_, {.min = Parse("1e-45"), .max = Parse("1e-39")});
  EXPECT_FALSE(Holds(tiny, "0." + zeros));
  EXPECT_TRUE(Holds(tiny, "0." + zeros.substr(1) + "1"));
  EXPECT_FALSE(Holds(tiny, "0." + zeros.substr(2) + "11"));
}

TEST_F(NumberRegexTest, EqualsHoldEveryTextOfTheValue) {
  for (int round = 0; round < 300; ++round) {
    const std::string value = RandomNumber();
    const ByteRegex regex = NumberEqualRegex(regexes_, Parse(value));
    for (int i = 0; i < 200; ++i) {
      const std::string text = RandomNumber();
      ASSERT_EQ(Holds(regex, text), Scaled(text) == Scaled(value)) << value << " " << text;
    }
    ASSERT_TRUE(Holds(regex, value));
    ASSERT_TRUE(Holds(regex, value + (value.find('.') == value.npos ? ".00" : "00")));
  }
  const ByteRegex zero = NumberEqualRegex(regexes_, Decimal());
  for (const char* text : {"0", "-0", "0.0", "-0.00"}) EXPECT_TRUE(Holds(zero, text)) << text;
}

TEST_F(NumberRegexTest, AllTextsWithExponentsAreFiniteDoubles) {
  const ByteRegex any = AnyNumberRegex(regexes_);
  for (const char* text : {"0e0", "-1.5E+05", "1e250", "1e-250", "1e007", "12"}) {
    EXPECT_TRUE(Holds(any, text)) << text;
  }
  for (const char* text :
       {"1e251", "1e260", "1e300", "1e1000", "1e", "e5", "1e+", ".5e1", "01e1", "1.e1"}) {
    EXPECT_FALSE(Holds(any, text)) << text;
  }
  const std::string largest = std::string(kMaxIntegerDigits, '9') + "e250";
  EXPECT_TRUE(Holds(any, largest));
  EXPECT_TRUE(std::isfinite(std::strtod(largest.c_str(), nullptr)));
  const std::string least = "0." + std::string(kMaxFractionDigits - 1, '0') + "1e-250";
  EXPECT_TRUE(Holds(any, least));
  EXPECT_TRUE(std::isnormal(std::strtod(least.c_str(), nullptr)));
}

// A digit, perhaps a fraction, and an exponent: exact by value, as texts without exponent are.
TEST_F(NumberRegexTest, ScientificTextsAreInARangeByTheirValue) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto scientific = [&] {
    const int digit = below(10);
    std::string text = fmt::format("{}{}", below(3) == 0 ? "-" : "", digit);
    if (below(2) == 0) {
      text += fmt::format(".{}{}", digit == 0 ? 0 : below(100), below(2) == 0 ? "0" : "");
    }
    return text + fmt::format("{}{}{}{}", below(2) == 0 ? "e" : "E",
                              below(3) == 0   ? "-"
                              : below(2) == 0 ? "+"
                                              : "",
                              below(3) == 0 ? "0" : "", below(4));
  };
  for (int round = 0; round < 300; ++round) {
    NumberRange range = {
        .min_exclusive = below(2) == 0, .max_exclusive = below(2) == 0, .integer = below(3) == 0};
    if (below(4) != 0) range.min = Parse(below(2) == 0 ? RandomNumber() : scientific());
    if (below(4) != 0) range.max = Parse(below(2) == 0 ? RandomNumber() : scientific());
    const ByteRegex regex = NumberRegex(regexes_, range, TextForm::kJsonAny);
    for (int i = 0; i < 100; ++i) {
      const std::string text = below(3) == 0 ? RandomNumber() : scientific();
      const Decimal value = Parse(text);
      const bool above =
          !range.min || (range.min_exclusive ? value > *range.min : value >= *range.min);
      const bool under =
          !range.max || (range.max_exclusive ? value < *range.max : value <= *range.max);
      ASSERT_EQ(Holds(regex, text), above && under && (!range.integer || value.is_integer()))
          << text << " " << round;
    }
    const Decimal divisor = Parse(fmt::format("{}e{}", 1 + below(60), below(3) - 1));
    const ByteRegex multiples = *MultipleRegex(regexes_, divisor, TextForm::kJsonAny);
    for (int i = 0; i < 50; ++i) {
      const std::string text = scientific();
      if (text.find('-', 1) != text.npos) continue;  // some of these are left out
      const auto verdict = CheckMultiple(text, divisor);
      if (verdict == MultipleVerdict::kDisputed) continue;
      ASSERT_EQ(Holds(multiples, text), verdict == MultipleVerdict::kYes) << text;
    }
  }
  const ByteRegex all = NumberRegex(regexes_, {}, TextForm::kJsonAny);
  for (const char* text : {"9.9e39", "1e-39", "0e0", "0.00E+00", "4e1", "4.0e001"}) {
    EXPECT_TRUE(Holds(all, text)) << text;
    EXPECT_FALSE(Holds(NumberRegex(regexes_, {}), text)) << text;
  }
  for (const char* text : {"1e40", "40e1", "00e1", "1.e1", "1e", "1e+", "e1", "1e0001"}) {
    EXPECT_FALSE(Holds(all, text)) << text;
  }
}

TEST_F(NumberRegexTest, MultiplesAreExact) {
  for (const char* of : {"1", "2", "3", "7", "10", "16", "100", "120", "0.5", "0.25", "0.01", "0.3",
                         "1.5", "2.5e-3", "1e3", "99"}) {
    const auto regex = MultipleRegex(regexes_, Parse(of));
    ASSERT_TRUE(regex.has_value()) << of;
    // In units of 10^-9.
    const __int128 divisor = Scaled(std::string_view(of).find('e') == std::string_view::npos
                                        ? of
                                        : (std::string_view(of) == "1e3" ? "1000" : "0.0025"));
    int multiples = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string text = i % 2 == 0 ? RandomNumber() : fmt::format("{}", Draw(3000));
      const bool expected = Scaled(text) % divisor == 0;
      multiples += expected ? 1 : 0;
      ASSERT_EQ(Holds(*regex, text), expected) << text << " of " << of;
      const MultipleVerdict verdict = CheckMultiple(text, Parse(of));
      if (verdict != MultipleVerdict::kDisputed) {
        ASSERT_EQ(verdict == MultipleVerdict::kYes, expected) << text << " of " << of;
      }
    }
    EXPECT_GT(multiples, 5) << of;
    EXPECT_TRUE(Holds(*regex, "-0.000"));
    EXPECT_FALSE(Holds(*regex, ""));
    EXPECT_FALSE(Holds(*regex, "01"));
  }
  EXPECT_FALSE(MultipleRegex(regexes_, Parse("1000001")).has_value());
  EXPECT_FALSE(MultipleRegex(regexes_, Parse("1e-41")).has_value());
  EXPECT_FALSE(MultipleRegex(regexes_, Parse("1e30")).has_value());
}

TEST_F(NumberRegexTest, WhatDoublesGetWrongIsDisputed) {
  const auto check = [](const char* text, const char* of) {
    return CheckMultiple(text, Parse(of));
  };
  EXPECT_EQ(check("4.35", "0.01"), MultipleVerdict::kDisputed);  // 434.99999999999994
  EXPECT_EQ(check("0.0075", "0.0001"), MultipleVerdict::kYes);
  EXPECT_EQ(check("0.00751", "0.0001"), MultipleVerdict::kNo);
  EXPECT_EQ(check("9007199254740993", "2"), MultipleVerdict::kDisputed);  // 2^53 + 1
  EXPECT_EQ(check("1e307", "0.5"), MultipleVerdict::kYes);
  EXPECT_EQ(check("1e308", "0.01"), MultipleVerdict::kDisputed);  // infinity
  EXPECT_EQ(check("-7", "2"), MultipleVerdict::kNo);
  EXPECT_EQ(check("-8.0", "2"), MultipleVerdict::kYes);
  EXPECT_EQ(check("6", "1.1234567890123456789"), MultipleVerdict::kDisputed);
}

}  // namespace
}  // namespace tlm
