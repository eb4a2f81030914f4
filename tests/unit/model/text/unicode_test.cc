#include "model/text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>

#include "model/text/utf8.h"
#include "tests/support/cpu_seconds.h"

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

TEST(CasingTest, LowercaseOfALetterMayBeMoreThanOneCharacter) {
  const auto lower = [](char32_t c) {
    std::string text;
    AppendLowercase(c, &text);
    return text;
  };
  EXPECT_EQ(lower(U'A'), "a");
  EXPECT_EQ(lower(U'Σ'), "σ");
  EXPECT_EQ(lower(U'\u0130'), "i\u0307");
  EXPECT_EQ(lower(U'中'), "中");
}

// The expected texts are Python's.
TEST(CasingTest, MapsTextsAsPythonDoes) {
  // Multi-character mappings, the final sigma, letters without case.
  EXPECT_EQ(ToUpper("straße ŉ ﬁ ı İ ẞ ᾳ ᾈ"), "STRASSE ʼN FI I İ ẞ ΑΙ ἈΙ");
  EXPECT_EQ(ToLower("ΟΔΟΣ Σ ΑΣ. ΣΑ İ"), "οδος σ ας. σα i̇");
  EXPECT_EQ(ToTitle("ǆ they're ßa ﬁ ᾳ ᾈ"), "ǅ They'Re Ssa Fi ᾼ ᾈ");
  EXPECT_EQ(ToCapitalized("éCOLE"), "École");
  EXPECT_EQ(ToUpper("世界 🙂"), "世界 🙂");
}

std::string ToNfc(std::string_view text) { return ToNormalForm(text, NormalForm::kNfc); }

// The whole of utf8proc's own normalisation, ordering included.
std::string Reference(const std::string& text, NormalForm form) {
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
  utf8proc_uint8_t* const result = form == NormalForm::kNfc    ? utf8proc_NFC(bytes)
                                   : form == NormalForm::kNfd  ? utf8proc_NFD(bytes)
                                   : form == NormalForm::kNfkc ? utf8proc_NFKC(bytes)
                                                               : utf8proc_NFKD(bytes);
  std::string copy(reinterpret_cast<const char*>(result));
  free(result);
  return copy;
}

TEST(NormalFormTest, ComposesAndOrders) {
  EXPECT_EQ(ToNfc("e\u0301"), "é");
  EXPECT_EQ(ToNfc("\u212B"), "Å") << "ANGSTROM SIGN";
  EXPECT_EQ(ToNfc("\u1100\u1161\u11A8"), "각") << "Hangul";
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(ToNfc("a\u0301\u0316"), "\u00E1\u0316");
  EXPECT_EQ(ToNfc("q\u0301\u0316"), "q\u0316\u0301") << "marks in order of their class";
  EXPECT_EQ(ToNfc("\uFB01"), "\uFB01") << "compatibility characters stay";
}

TEST(NormalFormTest, TheOtherFormsDecomposeAndSimplify) {
  EXPECT_EQ(ToNormalForm("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(ToNormalForm("각ﬁ", NormalForm::kNfd), "\u1100\u1161\u11A8ﬁ");
  EXPECT_EQ(ToNormalForm("ﬁ①é", NormalForm::kNfkc), "fi1é");
  EXPECT_EQ(ToNormalForm("ﬁ①é", NormalForm::kNfkd), "fi1e\u0301");
}

// The largest growth there is.
TEST(NormalFormTest, GrowsElevenfoldAtMost) {
  for (char32_t c = 1; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_LE(ToNormalForm(text, NormalForm::kNfkd).size(), 11 * text.size()) << uint32_t{c};
  }
}

TEST(NormalFormTest, KeepsTextThatIsNormalised) {
  for (const char* const text : {"", "plain", "Grüße, Ğ", "中文", "\U0001F600"}) {
    EXPECT_EQ(ToNfc(text), text);
  }
  const std::string with_zero("a\0e\u0301", 5);
  EXPECT_EQ(ToNfc(with_zero), std::string("a\0é", 4));
}

TEST(NormalFormTest, AgreesWithUtf8procOnRandomText) {
  std::mt19937 random(3);
  const char32_t interesting[] = {'a',    'e',    0x301,  0x316,  0x327,  0x334,  0x345, 0x344,
                                  0x1100, 0x1161, 0x11a8, 0xac00, 0x958,  0x93c,  0x915, 0x212b,
                                  0xfb2a, 0x5d0,  0x5bc,  0x5c1,  0x1f00, 0x3099, 0x304b};
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 10; ++i) {
      const bool any = random() % 4 == 0;
      char32_t c = any ? random() % 0x10ffff + 1 : interesting[random() % std::size(interesting)];
      if (c >= 0xd800 && c <= 0xdfff) c = 'x';
      AppendUtf8(c, &text);
    }
    for (const NormalForm form :
         {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      ASSERT_EQ(ToNormalForm(text, form), Reference(text, form));
    }
  }
}

// Ordering by swapping neighbours would take 64 times as long for 8 times the marks.
TEST(NormalFormTest, LongRunsOfUnorderedMarksTakeNearlyLinearTime) {
  const auto seconds_for = [](size_t pairs) {
    std::string text = "q";
    for (size_t i = 0; i < pairs; ++i) text += "\u0301\u0316";
    return LeastCpuSeconds([&] { EXPECT_EQ(ToNfc(text).size(), text.size()); });
  };
  EXPECT_LT(seconds_for(64000), 32 * seconds_for(8000) + 1e-3);
}

}  // namespace
}  // namespace tlm
