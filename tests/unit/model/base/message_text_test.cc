#include "model/base/message_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace tlm {
namespace {

TEST(MessageTextTest, OneLineIsUtf8WithoutControlCharacters) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"", ""},
      {"plain ~", "plain ~"},
      {"a\tb\nc\rd\x1b[31m", "a?b?c?d?[31m"},
      {{"nul\0\x7f", 5}, "nul??"},
      {"\u00e9 \u6f22 \U0001f600 \ufffd", "\u00e9 \u6f22 \U0001f600 \ufffd"},
      {"\u00a0\u009b31m\u0080", "\u00a0?31m?"},          // C1 controls, of which U+009B is as ESC [
      {"a\x80z", "a\ufffdz"},                            // continues nothing
      {"a\xffz", "a\ufffdz"},                            // never in UTF-8
      {"\xc3(", "\ufffd("},                              // the rest of a character is missing
      {"end\xe6\xbc", "end\ufffd"},                      // likewise, at the end
      {"\xc0\xaf", "\ufffd\ufffd"},                      // too long a form of /
      {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},            // a surrogate
      {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},  // above U+10FFFF
  };
  for (const auto& [text, line] : kCases) EXPECT_EQ(OneLine(text), line) << text;
  std::string everything;
  for (int byte = 0; byte < 256; ++byte) everything += static_cast<char>(byte);
  const std::string line = OneLine(everything);
  EXPECT_EQ(nlohmann::json(line).dump().size(), line.size() + 4) << "quotes, \\ and \" escaped";
}

TEST(MessageTextTest, QuotedCutsAtACharacterAndHidesControlCharacters) {
  EXPECT_EQ(Quoted("a\nb\x7f\x1b["), "'a?b??['");
  EXPECT_EQ(Quoted(std::string(100, 'x')), "'" + std::string(100, 'x') + "'");
  EXPECT_EQ(Quoted(std::string(99, 'x') + "\u00e9"), "'" + std::string(99, 'x') + "...'");
  EXPECT_EQ(Quoted("\xe9"), "'\ufffd'");
  EXPECT_THAT(Quoted(std::string(200, '\x80')),
              ::testing::MatchesRegex("'(\ufffd){96,100}\\.\\.\\.'"));
}

TEST(MessageTextTest, BytesHaveTheLargestUnitThatIsNotBelowOne) {
  constexpr std::pair<uint64_t, std::string_view> kCases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {6230444800, "5.80 GiB"},
      {(uint64_t{1} << 30) - 1, "1.00 GiB"},
      {uint64_t{1} << 40, "1.00 TiB"},
      {UINT64_MAX, "16.00 EiB"},
  };
  for (const auto& [bytes, text] : kCases) EXPECT_EQ(HumanBytes(bytes), text);
}

}  // namespace
}  // namespace tlm
