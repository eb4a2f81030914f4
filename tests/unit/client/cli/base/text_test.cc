#include "client/cli/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;

TEST(TextTest, PrintableDisarmsControlCharacters) {
  EXPECT_EQ(Printable("a\n\tb é"), "a\n\tb é");
  EXPECT_EQ(Printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // the one-character form of ESC [
  EXPECT_EQ(Printable("\xff\r"), "\\xff\\x0d");
}

TEST(TextTest, QuotedShowsEveryByte) {
  EXPECT_EQ(Quoted(" the"), "\" the\"");
  EXPECT_EQ(Quoted("a\"b\\\n"), R"("a\"b\\\n")");
  EXPECT_EQ(Quoted("\xe6\x97"), R"("\xe6\x97")");
  EXPECT_EQ(Quoted(""), "\"\"");
}

TEST(TextTest, MeasuresColumns) {
  EXPECT_EQ(DisplayWidth("abc"), 3u);
  EXPECT_EQ(DisplayWidth("é"), 1u);
  EXPECT_EQ(DisplayWidth("日本"), 4u);
}

TEST(TextTest, ReadsStandardInputForDash) {
  std::istringstream in("from stdin\n");
  EXPECT_EQ(*ReadText("-", &in), "from stdin\n");
  EXPECT_EQ(*ReadText("argument", &in), "argument");
}

TEST(TextTest, RefusesEndlessInput) {
  std::istringstream in(std::string((size_t{4} << 20) + 1, 'x'));
  EXPECT_EQ(ReadText("-", &in).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ShortenedTest, KeepsWhatFits) {
  EXPECT_EQ(Shortened("", 3), "");
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(Shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(Shortened("日本語です", 10), "日本語です");
  EXPECT_EQ(Shortened("日本語ですよ", 10), "日本語...");
}

TEST(CheckUtf8Test, NamesTheFirstWrongByte) {
  EXPECT_TRUE(CheckUtf8("naïve").ok());
  EXPECT_EQ(std::string(CheckUtf8("ab\xff").message()),
            "the text is not valid UTF-8: byte 0xff at offset 2");
}

using ::testing::HasSubstr;

TEST(ReadTextFileTest, ReadsUpToTheLimit) {
  const TempDir dir;
  const std::string text(100'000, 'x');  // more than one piece
  const std::string path = dir.Write("file", text);
  const absl::StatusOr<std::string> whole = ReadTextFile(path, text.size());
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(*whole, text);
  EXPECT_THAT(ReadTextFile(path, text.size() - 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longer than 99999 bytes")));
  EXPECT_THAT(ReadTextFile("/dev/zero", 1000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longer than 1000 bytes")));
}

TEST(ReadTextFileTest, AnEmptyFileIsAnEmptyText) {
  const TempDir dir;
  const absl::StatusOr<std::string> text = ReadTextFile(dir.Write("file", ""), 10);
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(*text, "");
}

TEST(ReadTextFileTest, NamesWhatCannotBeRead) {
  EXPECT_THAT(ReadTextFile("/nonexistent/file", 10),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/file")));
  EXPECT_THAT(ReadTextFile("/", 10), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/: ")));
}

constexpr size_t kMaxBytes = 10;

TEST(ReadLineTest, ReturnsLinesWithoutTheirEnds) {
  std::istringstream in("one\n\ntwo\r\nno end");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "one");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "two");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "no end");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

TEST(ReadLineTest, GoesOnAfterInvalidUtf8) {
  std::istringstream in("a\xff\xfe\nna\xc3\xafve\n\xe6\x97");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "naïve");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

TEST(ReadLineTest, GoesOnAfterLongLines) {
  std::istringstream in("0123456789\n01234567890\nnext\n01234567890");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "0123456789");
  const auto status = ReadLine(&in, kMaxBytes).status();
  EXPECT_EQ(std::string(status.message()), "the line is longer than 10 bytes");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "next");
  EXPECT_FALSE(ReadLine(&in, kMaxBytes).ok());
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

}  // namespace

}  // namespace tlm::cli
