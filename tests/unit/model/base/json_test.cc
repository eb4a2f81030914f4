#include "model/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(JsonTest, BuildsWhatTheTextSays) {
  constexpr char kText[] =
      R"({"a": [1, -2, 3.5, "x", null, true, [], {}], "b": {"c": {"d": 18446744073709551615}}})";
  const auto value = ParseJson(kText);
  ASSERT_THAT(value, IsOk());
  EXPECT_EQ(*value, nlohmann::json::parse(kText));
}

TEST(JsonTest, RefusesAKeyThatOccursTwiceInOneObject) {
  EXPECT_THAT(ParseJson(R"({"a": 1, "b": {"c": 1, "c": 2}})"),
              IsInvalidArgument("key 'c' occurs twice"));
  // The same key after unescaping.
  EXPECT_THAT(ParseJson(R"({"a": 1, "\u0061": 1})"), IsInvalidArgument("key 'a' occurs twice"));
  EXPECT_THAT(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}])"), IsOk());
}

TEST(JsonTest, RefusesNestingBeyondTheLimit) {
  EXPECT_THAT(ParseJson("[[[1]]]", 3), IsOk());
  EXPECT_THAT(ParseJson("[[[[1]]]]", 3), IsInvalidArgument("limit of 3 levels"));
  EXPECT_THAT(ParseJson("[[{\"a\":{", 3), IsInvalidArgument("limit of 3 levels"));
  EXPECT_THAT(ParseJson(std::string(1'000'000, '[')), IsInvalidArgument("64 levels"));
}

TEST(JsonTest, SaysWhereTheTextStopsBeingJson) {
  EXPECT_THAT(ParseJson("{\n  \"a\": 1,\n  b}"), IsInvalidArgument("line 3, column 3"));
  EXPECT_THAT(ParseJson(""), IsInvalidArgument("line 1, column 1"));
  EXPECT_THAT(ParseJson("\"\xff\""), IsInvalidArgument("not valid JSON"));
  EXPECT_THAT(ParseJson("1 2"), IsInvalidArgument("not valid JSON"));
  EXPECT_THAT(ParseJson(std::string_view("{}\0{", 4)), IsInvalidArgument("column 3"));
  EXPECT_THAT(ParseJson("-1e999"), IsInvalidArgument("number out of range"));
}

}  // namespace
}  // namespace tlm
