#include "server/config/flag_types.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

int64_t Parse(const std::string& text) {
  ByteSize size;
  std::string error;
  if (!AbslParseFlag(text, &size, &error)) {
    EXPECT_FALSE(error.empty());
    return -1;
  }
  return size.bytes;
}

TEST(ByteSizeTest, ReadsBytesAndUnits) {
  EXPECT_EQ(Parse("0"), 0);
  EXPECT_EQ(Parse("12345"), 12345);
  EXPECT_EQ(Parse("7B"), 7);
  EXPECT_EQ(Parse("1KiB"), 1024);
  EXPECT_EQ(Parse("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(Parse("8gib"), int64_t{8} << 30);
  EXPECT_EQ(Parse("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(Parse("3kB"), 3000);
  EXPECT_EQ(Parse("4GB"), 4'000'000'000);
}

TEST(ByteSizeTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "+1", "1.5GiB", "12XB", "1 MiB", " 1", "1MiB ", "0x10",
                           "99999999999999999999"}) {
    EXPECT_EQ(Parse(text), -1) << text;
  }
}

TEST(ByteSizeTest, RefusesOverflowAndTakesTheLargest) {
  EXPECT_EQ(Parse("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(Parse("9223372036854775808"), -1);
  EXPECT_EQ(Parse("8388607TiB"), int64_t{8388607} << 40);
  EXPECT_EQ(Parse("8388608TiB"), -1);
}

TEST(AutoSwitchTest, IsAutoOrABool) {
  const struct {
    const char* text;
    std::optional<bool> on;
  } kCases[] = {{"auto", std::nullopt}, {"true", true}, {"false", false}, {"1", true},
                {"no", false},          {"yes", true}};
  for (const auto& [text, on] : kCases) {
    AutoSwitch value{.on = !on.value_or(true)};
    std::string error;
    EXPECT_TRUE(AbslParseFlag(text, &value, &error)) << text << error;
    EXPECT_EQ(value.on, on) << text;
    AutoSwitch again;
    EXPECT_TRUE(AbslParseFlag(AbslUnparseFlag(value), &again, &error));
    EXPECT_EQ(again.on, on) << text;
  }
  for (const char* const text : {"", "on", "Auto", "--port=1"}) {
    AutoSwitch value;
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &value, &error)) << text;
    EXPECT_EQ(error, "it must be true, false or auto");
  }
}

TEST(ByteSizeTest, WritesWhatItReads) { EXPECT_EQ(Parse(AbslUnparseFlag({.bytes = 99})), 99); }

}  // namespace
}  // namespace tlm
