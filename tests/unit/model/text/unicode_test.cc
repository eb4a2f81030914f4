#include "model/text/unicode.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tlm {
namespace {

TEST(UnicodeTest, WhiteSpaceIsTheUnicodeProperty) {
  int count = 0;
  for (char32_t c = 0; c <= 0x10ffff; ++c) count += IsWhiteSpace(c) ? 1 : 0;
  EXPECT_EQ(count, 25);  // PropList.txt
  EXPECT_TRUE(IsWhiteSpace(' '));
  EXPECT_TRUE(IsWhiteSpace('\n'));
  EXPECT_TRUE(IsWhiteSpace(0x3000));
  EXPECT_FALSE(IsWhiteSpace(0x180e)) << "MONGOLIAN VOWEL SEPARATOR, no longer";
  EXPECT_FALSE(IsWhiteSpace(0x200b)) << "ZERO WIDTH SPACE";
}

TEST(UnicodeTest, WordCharactersAreLettersMarksDigitsAndConnectors) {
  for (const char32_t c :
       {U'a', U'_', U'7', U'é', U'中', U'\u0301', U'Ⅷ', U'Ⓐ', U'\u203F', U'\u200D'}) {
    EXPECT_TRUE(IsWordCharacter(c)) << uint32_t{c};
  }
  for (const char32_t c : {U' ', U'-', U'\'', U'½', U'!', U'\u00A0', U'\U0001F600', U'\0'}) {
    EXPECT_FALSE(IsWordCharacter(c)) << uint32_t{c};
  }
}

TEST(UnicodeTest, MarksAreTheThreeCategories) {
  for (const char32_t c : {U'\u0301', U'\u0903', U'\u20DD'}) EXPECT_TRUE(IsMark(c));
  for (const char32_t c : {U'a', U'^', U'\u02C6', U' '}) EXPECT_FALSE(IsMark(c));
}

}  // namespace
}  // namespace tlm
