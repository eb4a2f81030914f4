#include "model/text/casing.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

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

}  // namespace
}  // namespace tlm
