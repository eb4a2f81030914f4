#include "model/tokenizer/regex_syntax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
    EXPECT_THAT(ToPcre2Syntax(pattern),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("offset")))
        << pattern;
  }
  EXPECT_THAT(ToPcre2Syntax(R"(ab\h)"), StatusIs(absl::StatusCode::kUnimplemented,
                                                 AllOf(HasSubstr(R"(\h)"), HasSubstr("offset 2"))));
}

}  // namespace
}  // namespace tlm
