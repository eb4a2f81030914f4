#include "model/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

TEST(JsonTest, BuildsWhatTheTextSays) {
  constexpr char kText[] =
      R"({"a": [1, -2, 3.5, "x", null, true, [], {}], "b": {"c": {"d": 18446744073709551615}}})";
  const auto value = ParseJson(kText);
  ASSERT_THAT(value, IsOk());
  EXPECT_EQ(*value, nlohmann::json::parse(kText));
}

TEST(JsonTest, RefusesAKeyThatOccursTwiceInOneObject) {
  EXPECT_THAT(ParseJson(R"({"a": 1, "b": {"c": 1, "c": 2}})"),
              StatusIs(kBad, HasSubstr("key 'c' occurs twice")));
  // The same key after unescaping.
  EXPECT_THAT(ParseJson(R"({"a": 1, "\u0061": 1})"),
              StatusIs(kBad, HasSubstr("key 'a' occurs twice")));
  EXPECT_THAT(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}])"), IsOk());
}

TEST(JsonTest, RefusesNestingBeyondTheLimit) {
  EXPECT_THAT(ParseJson("[[[1]]]", 3), IsOk());
  EXPECT_THAT(ParseJson("[[[[1]]]]", 3), StatusIs(kBad, HasSubstr("limit of 3 levels")));
  EXPECT_THAT(ParseJson("[[{\"a\":{", 3), StatusIs(kBad, HasSubstr("limit of 3 levels")));
  EXPECT_THAT(ParseJson(std::string(1'000'000, '[')), StatusIs(kBad, HasSubstr("64 levels")));
}

TEST(JsonTest, SaysWhereTheTextStopsBeingJson) {
  EXPECT_THAT(ParseJson("{\n  \"a\": 1,\n  b}"), StatusIs(kBad, HasSubstr("line 3, column 3")));
  EXPECT_THAT(ParseJson(""), StatusIs(kBad, HasSubstr("line 1, column 1")));
  EXPECT_THAT(ParseJson("\"\xff\""), StatusIs(kBad, HasSubstr("not valid JSON")));
  EXPECT_THAT(ParseJson("1 2"), StatusIs(kBad, HasSubstr("not valid JSON")));
  EXPECT_THAT(ParseJson(std::string_view("{}\0{", 4)), StatusIs(kBad, HasSubstr("column 3")));
  EXPECT_THAT(ParseJson("-1e999"), StatusIs(kBad, HasSubstr("number out of range")));
}

}  // namespace
}  // namespace tlm
