#include "model/constraint/bytes/pattern.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "model/constraint/bytes/regex_dfa.h"
#include "model/text/utf8.h"
#include "tests/support/recognizer_walk.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tlm {
namespace {

constexpr std::array kForms = {TextForm::kUtf8, TextForm::kJson};

// What PCRE2 says. Its $ is the end of the text alone, as in ECMA-262.
class Oracle {
 public:
  explicit Oracle(std::string_view pattern) : data_(pcre2_match_data_create_8(1, nullptr)) {
    int error = 0;
    size_t offset = 0;
    code_.reset(pcre2_compile_8(
        reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NO_START_OPTIMIZE,
        &error, &offset, nullptr));
  }
  bool is_valid() const { return code_ != nullptr; }
  bool Finds(std::string_view text, bool whole) const {
    const uint32_t options = whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
    return pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), 0,
                         options, data_.get(), nullptr) >= 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
    void operator()(pcre2_match_data_8* data) const { pcre2_match_data_free_8(data); }
  };
  std::unique_ptr<pcre2_code_8, Free> code_;
  std::unique_ptr<pcre2_match_data_8, Free> data_;
};

// The texts over some characters up to a length.
std::vector<std::string> TextsOver(const std::vector<std::string>& characters, size_t max_length) {
  std::vector<std::string> texts = {""};
  size_t begin = 0;
  for (size_t length = 1; length <= max_length; ++length) {
    const size_t end = texts.size();
    for (size_t i = begin; i < end; ++i) {
      for (const std::string& character : characters) texts.push_back(texts[i] + character);
    }
    begin = end;
  }
  return texts;
}

class PatternTest : public ::testing::Test {
 protected:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::string OneOf(const std::vector<std::string>& choices) {
    return choices[static_cast<size_t>(Draw(static_cast<int>(choices.size())))];
  }

  // A pattern that means the same to both.
  std::string RandomPattern(int depth, bool assertions) {
    if (depth == 0 || Draw(4) == 0) {
      if (assertions && Draw(4) == 0) {
        return OneOf({"^", "$", "^", "$", "\\b", "\\B"});
      }
      return OneOf({"a", "b", "€", "-", "[ab]", "[^a]", "[^€-]", "[a-b€]", "\\w", "\\W", "[]",
                    "(?i:B)", "(?s:.)", "\\x61", "(?:)"});
    }
    switch (Draw(assertions ? 7 : 5)) {
      case 0:
      case 1:
        return RandomPattern(depth - 1, assertions) + RandomPattern(depth - 1, assertions);
      case 2:
        return "(" + RandomPattern(depth - 1, assertions) + "|" +
               RandomPattern(depth - 1, assertions) + ")";
      case 3:
        return "(?:" + RandomPattern(depth - 1, assertions) + ")" +
               OneOf({"?", "{2}", "{1,2}", "??", "{0,2}?"});
      case 4:
        return "(?:" + RandomPattern(depth - 1, false) + ")" + OneOf({"*", "+", "{1,}", "*?"});
      case 5:
        return "(?=" + RandomPattern(depth - 1, assertions) + ")";
      default:
        return "(?!" + RandomPattern(depth - 1, assertions) + ")";
    }
  }

  // Compares with PCRE2 on the texts, in both forms, searched and as a whole.
  void Compare(const std::string& pattern, const std::vector<std::string>& texts) {
    const Oracle oracle(pattern);
    ASSERT_TRUE(oracle.is_valid()) << pattern;
    for (const TextForm form : kForms) {
      for (const bool whole : {false, true}) {
        RegexSet regexes(1 << 18);
        const auto regex = ParsePattern(regexes, pattern, {.whole = whole, .form = form});
        ASSERT_TRUE(regex.ok()) << regex.status();
        RegexDfa dfa(regexes, *regex, 20'000);
        for (const std::string& text : texts) {
          ASSERT_EQ(Accepts(dfa, EncodeText(text, form)), oracle.Finds(text, whole))
              << pattern << " on '" << text << "' " << whole;
        }
        ASSERT_FALSE(dfa.full()) << pattern;
      }
    }
  }

  std::string Refusal(std::string_view pattern) {
    const auto regex = ParsePattern(regexes_, pattern, {});
    if (regex.ok()) return "none";
    EXPECT_TRUE(regex.status().code() == absl::StatusCode::kInvalidArgument ||
                regex.status().code() == absl::StatusCode::kResourceExhausted);
    return std::string(regex.status().message());
  }

  bool Holds(std::string_view pattern, std::string_view text) {
    const auto regex = ParsePattern(regexes_, pattern, {});
    EXPECT_TRUE(regex.ok()) << regex.status();
    return regex.ok() && tlm::Matches(regexes_, *regex, text);
  }

  std::mt19937 random_{11};
  RegexSet regexes_{1 << 20};
};

TEST_F(PatternTest, FindsWhatPcre2Finds) {
  const std::vector<std::string> texts = TextsOver({"a", "b", "€", "-", "\n"}, 4);
  for (int round = 0; round < 1500; ++round) {
    ASSERT_NO_FATAL_FAILURE(Compare(RandomPattern(4, round % 2 == 0), texts)) << round;
  }
}

TEST_F(PatternTest, AnchorsAndLookaheadsStandAnywhere) {
  const std::vector<std::string> texts = TextsOver({"a", "b", "c", "\n", "\""}, 5);
  for (const char* pattern : {"^(a|b)$",
                              "(^a|b$)",
                              "^$",
                              "(^|a)b",
                              "a|^b$|c",
                              "a^b",
                              "a$b",
                              "^^a$$",
                              "(^a)?b",
                              "a(b$)?",
                              "(^a|b)*c",
                              "^(a|b$)*$",
                              "(?:^a)*b",
                              "(a$)*",
                              "(^a$|b)+c",
                              "^([ab](c|$))*$",
                              "^(a?((b{2})|(c*))($|a))*$",
                              "^([^b]+(b|$)){2,}$",
                              "(^|b){2}a",
                              "^(a|^b){1,3}$",
                              "^(?!ab|b$)",
                              "^(?=a.*b)[^c]*$",
                              "a(?=b)",
                              "a(?!b)",
                              "(?!a)",
                              "(?=a)b",
                              "^(?!.*bc)",
                              "^(?:(?!bc).)*$",
                              "^(?:(?!b$)[ab])+$",
                              "^(?:(?!^a)[abc])*$",
                              "(?:(?!a)b){2,3}c",
                              "((?:[^b]*b)*)(?=a(b|c))",
                              "^(?!.*b)(?=.{1,2}$)((.{1,2}a){1,2}(?![0-9]*$)[abc]+a?)$",
                              "\\bab?\\b",
                              "\\Bb\\B",
                              "a\\b|b\\B",
                              "^(\\b|c)a",
                              "(?m)^a$",
                              "(?m)a$\n^b",
                              "(?m:^b)c",
                              "(?s)^a.b$",
                              "(?s-s:^a.b$)",
                              "^[^\"]\"?$",
                              "\\Aa",
                              "a\\z"}) {
    // What . takes for a line terminator differs; none of those is in the texts but the newline.
    ASSERT_NO_FATAL_FAILURE(Compare(pattern, texts)) << pattern;
  }
}

TEST_F(PatternTest, WhatMatchesIsAText) {
  for (const TextForm form : {TextForm::kUtf8, TextForm::kJson}) {
    for (const char* pattern :
         {"a(?=b)", "a(?=b(?=c))", "(a(?=b)|c)", "(?=a)", "(?=a$)", "a(?!b)", "(?!a(?=b))",
          "((?:[^b]*b)*)(?=a(b|c))", "(?m)a$", "a\\b", "(?:(?!a)b){2,3}c"}) {
      RegexSet regexes(100'000);
      const auto regex = ParsePattern(regexes, pattern, {.whole = false, .form = form});
      ASSERT_TRUE(regex.ok()) << regex.status();
      const ByteRegex others = regexes.And(*regex, regexes.Not(AnyTextRegex(regexes, form)));
      RegexDfa dfa(regexes, others, 100'000);
      EXPECT_EQ(dfa.start(), RegexDfa::kDead) << pattern;
      EXPECT_FALSE(dfa.full()) << pattern;
    }
  }
}

TEST_F(PatternTest, CharactersEndWhereUtf8ChangesItsLength) {
  const std::vector<char32_t> boundaries = {
      0,      1,      0x1f,    0x20,    0x7e,    0x7f,    0x80,     0x81,     0x7fe,
      0x7ff,  0x800,  0x801,   0xfff,   0x1000,  0xd7fe,  0xd7ff,   0xe000,   0xe001,
      0xfffe, 0xffff, 0x10000, 0x3ffff, 0x40000, 0xfffff, 0x100000, 0x10fffe, 0x10ffff};
  for (const TextForm form : kForms) {
    for (const char32_t first : boundaries) {
      for (const char32_t last : boundaries) {
        if (first > last) continue;
        RegexSet regexes(1 << 16);
        const ByteRegex regex = CharRegex(regexes, CharSet::Of(first, last), form);
        RegexDfa dfa(regexes, regex, 1000);
        for (const char32_t c : boundaries) {
          std::string text;
          AppendUtf8(c, &text);
          ASSERT_EQ(Accepts(dfa, EncodeText(text, form)), first <= c && c <= last)
              << std::hex << uint32_t{first} << "-" << uint32_t{last} << " " << uint32_t{c};
        }
      }
    }
    // Bytes that are no characters: surrogates, longer forms than needed, beyond U+10FFFF, ...
    RegexDfa any(regexes_, AnyTextRegex(regexes_, form), 1000);
    for (const char* bytes :
         {"\xed\xa0\x80", "\xed\xbf\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xc3", "\xe2\x82",
          "\xff"}) {
      EXPECT_FALSE(Accepts(any, bytes)) << bytes;
    }
  }
}

TEST_F(PatternTest, EveryCharacterStandsAsJsonWritersWriteIt) {
  RegexDfa any(regexes_, AnyTextRegex(regexes_, TextForm::kJson), 1000);
  for (const CharSet::Range& range : CharSet::All().ranges()) {
    for (char32_t c = range.first; c <= range.last; c += c < 0x3000 ? 1 : 97) {
      std::string text;
      AppendUtf8(c, &text);
      const std::string encoded = EncodeText(text, TextForm::kJson);
      // nlohmann escapes U+007F as well.
      if (c != 0x7f) {
        ASSERT_EQ("\"" + encoded + "\"", nlohmann::json(text).dump());
      }
      ASSERT_EQ(nlohmann::json::parse("\"" + encoded + "\"").get<std::string>(), text);
      ASSERT_TRUE(Accepts(any, encoded)) << std::hex << uint32_t{c};
    }
  }
  for (const char* other :
       {"\"", "\\", "\\/", "\\u0041", "\\u000A", "\\u000a", "\\u001F", "\n", "\\x"}) {
    EXPECT_FALSE(Accepts(any, other)) << other;
  }
  EXPECT_TRUE(Accepts(any, "\\u001f\\n\\\\/\\\"\x7f"));
}

TEST_F(PatternTest, LengthsCountCharacters) {
  for (const TextForm form : kForms) {
    for (const auto& [min, max] : {std::pair<int64_t, int64_t>(0, 0),
                                   {0, 2},
                                   {2, 3},
                                   {3, kNoMaxLength},
                                   {-1, 1},
                                   {4, 3},
                                   {int64_t{1} << 40, kNoMaxLength}}) {
      RegexDfa dfa(regexes_, TextLengthRegex(regexes_, min, max, form), 1000);
      std::string text;
      for (int64_t length = 0; length < 6; ++length) {
        EXPECT_EQ(Accepts(dfa, EncodeText(text, form)), min <= length && length <= max)
            << min << " " << max << " " << length;
        text += std::array<std::string, 3>{"\n", "😀", "é"}[static_cast<size_t>(length % 3)];
      }
    }
  }
}

TEST_F(PatternTest, ReadsWhatSchemasWrite) {
  EXPECT_TRUE(Holds("^[\\w\\-\\.\\_\\/\\@\\ ]+\\#\\~$", "a-._/@ #~"));
  EXPECT_TRUE(Holds("^[\\w-.]+$", "a-."));
  EXPECT_FALSE(Holds("^[\\w-.]+$", "/"));
  EXPECT_TRUE(Holds("^{a}{,2}{$", "{a}{,2}{"));
  EXPECT_TRUE(Holds("^[\\d-x]$", "-"));
  EXPECT_TRUE(
      Holds("^\\u00e9\\uD83D\\uDE00\\u{1F600}\\x41\\cA\\0$", std::string("é😀😀A\x01\0", 13)));
  EXPECT_TRUE(Holds("^[\\b]$", "\b"));
  EXPECT_TRUE(Holds("^[^]$", "\n"));
  EXPECT_TRUE(Holds("^\\s$", "\u3000"));
  // ECMA-262 and Python's re differ: no class holds them but one that holds everything.
  for (const std::string_view text : {"\xef\xbb\xbf", "\u0085", "\x1c"}) {
    EXPECT_FALSE(Holds("^\\s$", text));
    EXPECT_FALSE(Holds("^[^\\s]$", text));
    EXPECT_TRUE(Holds("^[\\s\\S]$", text));
  }
  EXPECT_FALSE(Holds("^\\W$", "é"));
  EXPECT_FALSE(Holds("^\\w$", "é"));
  EXPECT_FALSE(Holds("^\\d$", "߀"));
  EXPECT_FALSE(Holds("^.$", "\u2028"));
  EXPECT_TRUE(Holds("^]$", "]"));
  EXPECT_TRUE(Holds("(?<year>\\d)(?P<m>x)", "1x"));
}

TEST_F(PatternTest, KnowsUnicode) {
  EXPECT_TRUE(Holds("^\\p{Letter}\\p{Lu}\\p{gc=Ll}\\pN\\P{L}$", "äÄä٣-"));
  EXPECT_TRUE(Holds("^[\\p{Script=Greek}\\p{sc=Cyrl}]+$", "αЖ"));
  EXPECT_FALSE(Holds("^\\p{Script=Greek}$", "Ж"));
  EXPECT_TRUE(Holds("^\\p{Alphabetic}\\p{Any}$", "a-"));
  // Every category by its short and its long name, against PCRE2 character by character.
  for (const auto& [name, pcre2_name] :
       {std::pair("Letter", "L"), std::pair("Nd", "Nd"), std::pair("Space_Separator", "Zs"),
        std::pair("Script=Han", "sc:Han"), std::pair("Unassigned", "Cn"), std::pair("LC", "L&")}) {
    const auto set = CharsOfProperty(name);
    ASSERT_TRUE(set.has_value()) << name;
    const Oracle oracle(std::string("\\p{") + pcre2_name + "}");
    for (const CharSet::Range& range : CharSet::All().ranges()) {
      for (char32_t c = range.first; c <= range.last; c += 1 + c / 4096) {
        std::string text;
        AppendUtf8(c, &text);
        ASSERT_EQ(set->Has(c), oracle.Finds(text, true)) << name << std::hex << uint32_t{c};
      }
    }
  }
}

TEST_F(PatternTest, CaseIsPcre2s) {
  // Characters whose cases PCRE2's Unicode, which may be another, knows: all but the Turkish i's.
  for (char32_t c = 1; c < 0x1f000; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    const CharSet cases = WithOtherCases(CharSet::Of(c));
    ASSERT_TRUE(cases.Has(c));
    if (cases == CharSet::Of(c)) continue;
    const std::string hex = fmt::format("{:x}", uint32_t{c});
    const Oracle oracle("(?i)\\x{" + hex + "}");
    for (const CharSet::Range& range : cases.ranges()) {
      for (char32_t other = range.first; other <= range.last; ++other) {
        std::string text;
        AppendUtf8(other, &text);
        ASSERT_TRUE(oracle.Finds(text, true)) << hex << " " << text;
      }
    }
  }
  EXPECT_TRUE(Holds("(?i)^straSSE[^a]É$", "STRAsſeBé"));
  EXPECT_FALSE(Holds("(?i)^[^a]$", "A"));
  EXPECT_TRUE(Holds("^a(?i)b(?-i)c$", "aBc"));
  EXPECT_FALSE(Holds("^a(?i)b(?-i)c$", "aBC"));
  EXPECT_FALSE(Holds("^(?:(?i)b)c$", "BC"));
  for (const char* text : {"\u017f", "\u212a"}) {
    EXPECT_TRUE(Holds("(?i)^\\w$", text));
    EXPECT_FALSE(Holds("(?i)^\\W$", text));
    EXPECT_FALSE(Holds("^\\w$", text));
    EXPECT_TRUE(Holds(fmt::format("(?i)^a\\b{}$", text), fmt::format("a{}", text)));
  }
  EXPECT_FALSE(Holds("(?i)^\\w$", "é"));
}

TEST_F(PatternTest, NamesWhatItRefuses) {
  const auto expect = [this](std::string_view pattern, std::string_view message) {
    EXPECT_NE(Refusal(pattern).find(message), std::string::npos)
        << pattern << ": " << Refusal(pattern);
  };
  expect("ab\\1", "has a backreference, which is not supported, at byte 2");
  expect("(?<a>x)\\k<a>", "a backreference, which is not supported, at byte 7");
  expect("a(?<=b)", "a lookbehind, which is not supported, at byte 1");
  expect("a(?<!b)", "a lookbehind");
  expect("(?>a)", "an atomic group");
  expect("a++", "a possessive quantifier, which is not supported, at byte 2");
  expect("(?R)", "a recursion");
  expect("(?(1)a|b)", "a condition");
  expect("(?#a)", "a comment");
  expect("(*ACCEPT)", "a control verb");
  expect("(?x)a", "a group of a kind that is not supported");
  expect("(a", "a group that is not closed at byte 0");
  expect("a)", "a ) that closes no group at byte 1");
  expect("[a", "a class that is not closed at byte 0");
  expect("[b-a]", "a range with its ends swapped at byte 1");
  expect("a{3,2}", "a quantifier with its numbers swapped at byte 1");
  expect("*a", "a quantifier of nothing at byte 0");
  expect("a|*", "a quantifier of nothing at byte 2");
  expect("a**", "a quantifier of nothing");
  expect("a{2}{3}", "a quantifier of nothing");
  expect("{2}", "a quantifier of nothing");
  expect("\\", "a \\ before nothing");
  expect("\\a", "an unknown escape at byte 0");
  expect("\\Z", "an unknown escape at byte 0");
  expect("\\u12", "a malformed escape");
  expect("\\u{110000}", "an escape beyond U+10FFFF");
  expect("\\ud800x", "a surrogate");
  expect("\\01", "an octal escape");
  expect("\\p{Nonsense}", "an unknown Unicode property");
  expect("\\p{L}a\xff", "is not UTF-8 at byte 6");
  expect("(?:(?=a)b|c)*d", "has an assertion in an unbounded repetition");
  expect(std::string(101, '(') + std::string(101, ')'), "more than 100 groups");
  expect("a{65536}", "more than 65535 repetitions");
  expect(std::string(65537, 'a'), "65537 bytes, the limit is 65536");
  expect("(?:(?:(?:(?:a\\b){0,999}x){0,999}y){0,999}z){0,999}", "repeats assertions too often");
  RegexSet few(100);
  EXPECT_EQ(ParsePattern(few, std::string(200, 'a') + "bcdefgh", {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tlm
