#include "model/text/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tlm {
namespace {

std::string Repair(std::string_view bytes) {
  Utf8Repair repair;
  std::string out;
  repair.Append(bytes, &out);
  repair.Flush(&out);
  return out;
}

TEST(Utf8Test, EveryScalarValueIsWellFormedAndReadsBack) {
  for (char32_t code_point = 0; code_point <= 0x10ffff; ++code_point) {
    if (code_point >= 0xd800 && code_point <= 0xdfff) continue;
    std::string text;
    AppendUtf8(code_point, &text);
    ASSERT_EQ(FindInvalidUtf8(text), text.npos) << std::hex << uint32_t{code_point};
    const Utf8Character first = FirstCharacter(text);
    ASSERT_EQ(first.code_point, code_point);
    ASSERT_EQ(first.length, text.size());
    ASSERT_EQ(LastCharacter("a" + text).code_point, code_point);
  }
}

TEST(Utf8Test, NamesTheFirstOffendingByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8("plain, naïve, 日本語, 🙂"), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(std::string("a\0b", 3)), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8("\x80"), 0u);
  EXPECT_EQ(FindInvalidUtf8("0123456789\xff"), 10u);
  EXPECT_EQ(FindInvalidUtf8("ab\xc3"), 2u) << "truncated";
  EXPECT_EQ(FindInvalidUtf8("\xc0\x80"), 0u) << "overlong";
  EXPECT_EQ(FindInvalidUtf8("\xe0\x9f\xbf"), 0u) << "overlong";
  EXPECT_EQ(FindInvalidUtf8("\xf0\x8f\xbf\xbf"), 0u) << "overlong";
  EXPECT_EQ(FindInvalidUtf8("\xed\xa0\x80"), 0u) << "surrogate";
  EXPECT_EQ(FindInvalidUtf8("\xf4\x90\x80\x80"), 0u) << "beyond U+10FFFF";
  EXPECT_EQ(FindInvalidUtf8("\xf5\x80\x80\x80"), 0u);
  EXPECT_TRUE(IsValidUtf8("é"));
  EXPECT_FALSE(IsValidUtf8("é\xa9"));
}

TEST(Utf8Test, CountsAndStepsByCodePoints) {
  const std::string text = "aé日🙂";
  EXPECT_EQ(CountCodePoints(text), 4u);
  EXPECT_EQ(ByteOffset(text, 3), 6u);
  EXPECT_EQ(ByteOffset(text, 5), text.size());
  size_t position = 1;
  EXPECT_EQ(NextCodePoint(text, &position), U'é');
  EXPECT_EQ(position, 3u);
  position = text.size();
  EXPECT_EQ(PreviousCodePoint(text, &position), U'🙂');
  EXPECT_EQ(position, 6u);
  const auto is_e = [](char32_t c) { return c == U'é'; };
  EXPECT_EQ(StripLeft("ééaé", is_e), "aé");
  EXPECT_EQ(StripRight("éaéé", is_e), "éa");
}

// The Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8RepairTest, ReplacesMaximalSubparts) {
  EXPECT_EQ(Repair("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(Repair("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(Repair("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A\uFFFD\uFFFD"
            "B");
  EXPECT_EQ(Repair("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
}

TEST(Utf8RepairTest, HoldsBackWhatCanStillBecomeACharacter) {
  Utf8Repair repair;
  std::string out;
  repair.Append("a\xf0\x9f", &out);
  EXPECT_EQ(out, "a");
  repair.Append("\x98", &out);
  EXPECT_EQ(out, "a");
  repair.Append("\x80z", &out);
  EXPECT_EQ(out, "a\U0001F600z");
  repair.Flush(&out);
  EXPECT_EQ(out, "a\U0001F600z");
}

TEST(Utf8RepairTest, IsReadyAgainAfterFlush) {
  Utf8Repair repair;
  std::string out;
  repair.Append("\xe4\xb8", &out);
  repair.Flush(&out);
  repair.Append("\xad", &out);
  EXPECT_EQ(out, "\uFFFD\uFFFD");
}

TEST(Utf8RepairTest, MayReplaceByteByByte) {
  Utf8Repair repair(Utf8Repair::Unit::kByte);
  std::string text;
  repair.Append("a\xe4\xb8", &text);
  EXPECT_EQ(text, "a");
  repair.Append("x\xff\xf0\x9f\x98", &text);
  repair.Flush(&text);
  EXPECT_EQ(text, "a\uFFFD\uFFFDx\uFFFD\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace tlm
