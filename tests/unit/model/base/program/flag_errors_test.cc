#include "model/base/program/flag_errors.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"

ABSL_FLAG(std::optional<uint32_t>, test_count, std::nullopt, "");
ABSL_FLAG(int, test_level, 0, "");
ABSL_FLAG(std::optional<float>, test_share, std::nullopt, "");
ABSL_FLAG(bool, test_switch, false, "");
ABSL_FLAG(absl::Duration, test_time, absl::Seconds(1), "");

namespace tlm {
namespace {

constexpr std::string_view kNames[] = {"port",        "port_file", "max_context",
                                       "temperature", "model",     "host"};

TEST(DidYouMeanTest, NamesTheNearest) {
  EXPECT_EQ(DidYouMean("prot", kNames, "--"), ": did you mean --port?");
  EXPECT_EQ(DidYouMean("temprature", kNames, "--"), ": did you mean --temperature?");
  EXPECT_EQ(DidYouMean("max-context", kNames), ": did you mean max_context?");
  EXPECT_EQ(DidYouMean("modle", kNames), ": did you mean model?");
  EXPECT_EQ(DidYouMean("max_c", kNames), ": did you mean max_context?");
}

TEST(DidYouMeanTest, GuessesNothingFarFetched) {
  for (const std::string& wrong :
       {std::string(), std::string("x"), std::string("pr"), std::string("bogus"),
        std::string("temperate_zone"), std::string(100'000, 'p')}) {
    EXPECT_EQ(DidYouMean(wrong, kNames), "") << wrong;
  }
}

// As a program gets it of a flag that refuses its value.
std::string Refusal(const char* name, const std::string& value) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  std::string error;
  EXPECT_FALSE(flag->ParseFrom(value, &error)) << name << value;
  return BadFlagValue(*flag, value, error);
}

TEST(BadFlagValueTest, NamesTypeOrRange) {
  EXPECT_EQ(Refusal("test_count", "abc"), "--test_count is 'abc', it must be a whole number");
  EXPECT_EQ(Refusal("test_count", "1.5"), "--test_count is '1.5', it must be a whole number");
  EXPECT_EQ(Refusal("test_count", "-1"), "--test_count is '-1', the range is [0, 4294967295]");
  EXPECT_EQ(Refusal("test_level", "4294967295"),
            "--test_level is '4294967295', the range is [-2147483648, 2147483647]");
  EXPECT_EQ(Refusal("test_level", "-"), "--test_level is '-', it must be a whole number");
  EXPECT_EQ(Refusal("test_share", "half"), "--test_share is 'half', it must be a number");
  EXPECT_EQ(Refusal("test_switch", "perhaps"),
            "--test_switch is 'perhaps', it must be true or false");
  EXPECT_EQ(Refusal("test_time", "5"),
            "--test_time is '5', it must be a time with its unit, as 500ms, 30s or 2m");
}

TEST(BadFlagValueTest, KeepsWhatTheTypeSays) {
  EXPECT_EQ(BadFlagValue(*absl::FindCommandLineFlag("test_count"), "x",
                         "Illegal value 'x' specified for flag 'test_count'; an id is small"),
            "--test_count is 'x': an id is small");
}

TEST(BadFlagValueTest, ShowsValuesHarmlesslyAndShort) {
  EXPECT_EQ(Refusal("test_level", "a\nb\x1b"), "--test_level is 'a?b?', it must be a whole number");
  EXPECT_LT(Refusal("test_level", std::string(100'000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace tlm
