#include "model/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(RegexSyntaxTest, CopiesWhatBothReadAlike) {
  for (const char* const pattern :
       {"", "abc", R"('s|'t| ?\p{L}+| ?\p{N}{1,3}|[^\r\n\p{L}]?x*?y++)",
        R"((?:a|b)(?=c)(?!d)(?<=e)(?<!f)(?>g))", R"((?i:'s|'t))", R"([a-z\]\[\-])", R"([]a])",
        R"(\x{1F600}\x41\\\.\-)", R"(^a$|\A\z)", "一-龥", R"(\d\D{2,})", R"([^\p{^L}])"}) {
    const auto translated = ToPcre2Syntax(pattern);
    ASSERT_THAT(translated, IsOk()) << pattern;
    EXPECT_EQ(*translated, pattern);
  }
}

TEST(RegexSyntaxTest, SpellsOutClassesThatDiffer) {
  EXPECT_EQ(*ToPcre2Syntax(R"(\s+(?!\S))"), R"(\p{White_Space}+(?!\P{White_Space}))");
  EXPECT_EQ(*ToPcre2Syntax(R"([^\s\S])"), R"([^\p{White_Space}\P{White_Space}])");
  EXPECT_EQ(*ToPcre2Syntax(R"(\w)"), R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])");
  EXPECT_EQ(*ToPcre2Syntax(R"(\W)"), R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])");
  EXPECT_EQ(*ToPcre2Syntax(R"([\w-])"), R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}-])");
  EXPECT_EQ(*ToPcre2Syntax(R"(\u4e2d)"), R"(\x{4e2d})");
  EXPECT_EQ(*ToPcre2Syntax(R"(\\s)"), R"(\\s)") << "an escaped backslash";
}

TEST(RegexSyntaxTest, RefusesWhatWouldMeanSomethingElse) {
  for (const char* const pattern :
       {R"(\h)",   R"(\b)",      R"(\K)",  R"(\G)",   R"(\1)",   R"(\Q)",       R"(\C)",
        R"(\v)",   "[a[bc]]",    "[a&&b]", R"([\W])", R"([\b])", "[[:alpha:]]", "(?m:a)",
        "(?s)",    "(?<name>a)", "(*UTF)", "(?#c)",   "a{1,3}+", "a{,3}",       "a{",
        R"(\xff)", R"(\u12)",    R"(\pL)", R"(\p{L)", R"(\x{12)"}) {
    EXPECT_THAT(ToPcre2Syntax(pattern), IsUnimplemented("offset")) << pattern;
  }
  EXPECT_THAT(ToPcre2Syntax(R"(ab\h)"), IsUnimplemented(R"(\h)", "offset 2"));
}

// The first match in `subject`, or none.
std::optional<std::string> FirstMatch(const Regex& regex, std::string_view subject,
                                      size_t from = 0) {
  const auto match = RegexMatcher(regex).Find(subject, from);
  EXPECT_THAT(match, IsOk());
  if (!match.ok() || !match->has_value()) return std::nullopt;
  return std::string(subject.substr((*match)->begin, (*match)->end - (*match)->begin));
}

Regex Compiled(std::string_view pattern) {
  auto regex = Regex::Compile(pattern);
  TLM_CHECK(regex.ok());
  return *std::move(regex);
}

TEST(RegexTest, MatchesUnicodeProperties) {
  EXPECT_EQ(FirstMatch(Compiled(R"(\p{L}+)"), "1 größe2"), "größe");
  EXPECT_EQ(FirstMatch(Compiled(R"(\p{N}+)"), "x½Ⅷ٣y"), "½Ⅷ٣");
  EXPECT_EQ(FirstMatch(Compiled(R"(.)"), "\n\U0001F600"), "\U0001F600");
}

TEST(RegexTest, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_EQ(FirstMatch(Compiled(R"(\s+)"), "a \u3000\u0085\u00A0b"), " \u3000\u0085\u00A0");
  EXPECT_EQ(FirstMatch(Compiled(R"(\s)"), "\u180E"), std::nullopt);
}

TEST(RegexTest, FoldsCaseOnlyInItsGroup) {
  const Regex regex = Compiled("(?i:'s)|'T");
  EXPECT_EQ(FirstMatch(regex, "'S"), "'S");
  EXPECT_EQ(FirstMatch(regex, "'ſ"), "'ſ") << "LATIN SMALL LETTER LONG S folds to s";
  EXPECT_EQ(FirstMatch(regex, "'t"), std::nullopt);
}

TEST(RegexTest, AnchorsMatchAtLines) {
  EXPECT_EQ(FirstMatch(Compiled("^b"), "a\nb"), "b");
  EXPECT_EQ(FirstMatch(Compiled("a$"), "a\nb"), "a");
}

TEST(RegexTest, SearchesFromAnOffsetAndLooksBehindIt) {
  EXPECT_EQ(FirstMatch(Compiled("(?<=a)b"), "ab", 1), "b");
  EXPECT_EQ(FirstMatch(Compiled("a"), "ab", 1), std::nullopt);
  EXPECT_EQ(FirstMatch(Compiled("x*"), "ab", 2), "");
}

TEST(RegexTest, LiteralsHaveNoSyntax) {
  const auto regex = Regex::CompileLiteral("a.(é");
  ASSERT_THAT(regex, IsOk());
  EXPECT_EQ(FirstMatch(*regex, "xa.(éy"), "a.(é");
  EXPECT_EQ(FirstMatch(*regex, "xab(éy"), std::nullopt);
}

TEST(RegexTest, NamesMessageAndOffsetOfAMalformedPattern) {
  EXPECT_THAT(Regex::Compile("ab(c"),
              IsInvalidArgument("'ab(c'", "offset 4", "missing closing parenthesis"));
  // The offset is that of the pattern as written, not of its longer translation.
  EXPECT_THAT(Regex::Compile(R"(\s\s(c)"), IsInvalidArgument("offset 6"));
  EXPECT_THAT(Regex::Compile(R"(\p{Nonsense})"), IsInvalidArgument("unknown property"));
  EXPECT_THAT(Regex::Compile("[z-a]"), IsInvalidArgument(""));
  EXPECT_THAT(Regex::Compile(std::string(100'000, 'a')), IsInvalidArgument("the limit is 65536"));
  EXPECT_THAT(Regex::Compile(std::string(1000, '(') + std::string(1000, ')')),
              IsInvalidArgument("nested"));
}

// Each repetition of a group keeps its state: the counts exceed the machine stack, then the larger
// one made for it, which leaves the interpreter, and at last every limit.
TEST(RegexTest, RepeatsGroupsOverLongTexts) {
  const Regex regex = Compiled("(?:(a)b|c)+");
  for (const int count : {50'000, 300'000}) {
    std::string subject;
    for (int i = 0; i < count; ++i) subject += "ab";
    EXPECT_TRUE(FirstMatch(regex, subject + "x") == subject) << count;
    EXPECT_EQ(FirstMatch(regex, "xcy" + subject), "c");
  }
}

TEST(RegexTest, AMatcherWorksOnAfterALimit) {
  const Regex regex = Compiled("(?:(a)b|c)+");
  std::string subject;
  for (int i = 0; i < 2'000'000; ++i) subject += "ab";
  RegexMatcher matcher(regex);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(matcher.Find(subject, 0), IsResourceExhausted("limit"));
    const auto match = matcher.Find("xab", 0);
    ASSERT_THAT(match, IsOk());
    ASSERT_TRUE(match->has_value());
    EXPECT_EQ((*match)->begin, 1u);
    EXPECT_EQ((*match)->end, 3u);
  }
}

TEST(RegexTest, GivesUpOnUnboundedBacktracking) {
  const Regex regex = Compiled("(?:a+)+b");
  EXPECT_THAT(RegexMatcher(regex).Find(std::string(64, 'a') + "cb", 0),
              IsResourceExhausted("limit"));
}

// Segments as text, matches in brackets.
std::string Segments(std::string_view pattern, std::string_view subject) {
  std::string result;
  const auto regex = Regex::Compile(pattern);
  EXPECT_THAT(regex, IsOk());
  EXPECT_THAT(RegexMatcher(*regex).ForEachSegment(subject,
                                                  [&](std::string_view segment, bool is_match) {
                                                    result += is_match ? "[" : "";
                                                    result += segment;
                                                    result += is_match ? "]" : "|";
                                                    return absl::OkStatus();
                                                  }),
              IsOk());
  return result;
}

TEST(RegexMatcherTest, DividesAllOfTheSubject) {
  EXPECT_EQ(Segments("b+", "abbcb"), "a|[bb]c|[b]");
  EXPECT_EQ(Segments("b", "bb"), "[b][b]");
  EXPECT_EQ(Segments("x", "aé"), "aé|");
  EXPECT_EQ(Segments("x", ""), "");
  EXPECT_EQ(Segments("", ""), "[]");
  EXPECT_EQ(Segments("", "aé"), "[]a|[]é|[]");
  EXPECT_EQ(Segments("b*", "abbc"), "[]a|[bb]c|[]") << "no empty match behind another match";
}

}  // namespace
}  // namespace tlm
