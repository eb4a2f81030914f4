#include "client/cli/base/flag_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

template <typename T>
T Parse(const char* text) {
  T value;
  std::string error;
  EXPECT_TRUE(AbslParseFlag(absl::string_view(text), &value, &error)) << text << ": " << error;
  return value;
}

template <typename T>
bool Refuses(const std::string& text) {
  T value;
  std::string error;
  const bool parsed = AbslParseFlag(absl::string_view(text), &value, &error);
  return !parsed && !error.empty();
}

TEST(IdListTest, ParsesNumbers) {
  EXPECT_THAT(Parse<IdList>("").ids, ElementsAre());
  EXPECT_THAT(Parse<IdList>("7").ids, ElementsAre(7));
  EXPECT_THAT(Parse<IdList>("1, 2,4294967295").ids, ElementsAre(1, 2, 4294967295u));
}

TEST(IdListTest, RefusesWhatIsNoId) {
  for (const char* text : {"a", "-1", "+1", "1.5", "4294967296", "1,,2", ",", "1,", "1 2", "0x10",
                           "99999999999999999999999"}) {
    EXPECT_TRUE(Refuses<IdList>(text)) << text;
  }
}

TEST(IdListTest, NamesTheOffender) {
  IdList list;
  std::string error;
  EXPECT_FALSE(AbslParseFlag(absl::string_view("1,x,3"), &list, &error));
  EXPECT_THAT(error, HasSubstr("'x'"));
}

TEST(IdListsTest, ParsesSequences) {
  EXPECT_THAT(Parse<IdLists>("1,2,3;4").sequences,
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4)));
  EXPECT_TRUE(Refuses<IdLists>("1;;2"));
  EXPECT_EQ(AbslUnparseFlag(Parse<IdLists>("1,2;3")), "1,2;3");
}

TEST(StringListTest, SplitsAtCommasAndUnescapes) {
  EXPECT_THAT(Parse<StringList>("").values, ElementsAre());
  EXPECT_THAT(Parse<StringList>("a b,c").values, ElementsAre("a b", "c"));
  EXPECT_THAT(Parse<StringList>(R"(a\,b,\n\n,\\,\t)").values,
              ElementsAre("a,b", "\n\n", "\\", "\t"));
}

TEST(StringListTest, RefusesEmptyTextsAndUnknownEscapes) {
  for (const char* text : {",", "a,", ",a", "a,,b", "\\", "a\\x"}) {
    EXPECT_TRUE(Refuses<StringList>(text)) << text;
  }
}

TEST(StringListTest, UnparsesToWhatParsesToTheSame) {
  const StringList list{{"a,b", "\n", "\\n", "\t\\", "plain"}};
  EXPECT_EQ(Parse<StringList>(AbslUnparseFlag(list).c_str()).values, list.values);
}

TEST(BiasListTest, ParsesPairs) {
  EXPECT_THAT(Parse<BiasList>("198:-100,5:2.5").biases,
              ElementsAre(Pair(198, -100.0f), Pair(5, 2.5f)));
  EXPECT_EQ(AbslUnparseFlag(Parse<BiasList>("198:-100,5:2.5")), "198:-100,5:2.5");
}

TEST(BiasListTest, RefusesWhatIsNoPair) {
  for (const char* text : {"198", "198:", ":1", "x:1", "1:y", "1:2:3", "1:2,"}) {
    EXPECT_TRUE(Refuses<BiasList>(text)) << text;
  }
}

TEST(BiasListTest, RefusesAnIdGivenTwice) {
  BiasList list;
  std::string error;
  EXPECT_FALSE(AbslParseFlag(absl::string_view("7:1,8:1,7:1"), &list, &error));
  EXPECT_THAT(error, HasSubstr("7 is given twice"));
}

TEST(OptionalTextTest, TellsEmptyFromNotGiven) {
  EXPECT_EQ(OptionalText().text, std::nullopt);
  EXPECT_EQ(Parse<OptionalText>("").text, "");
  EXPECT_EQ(Parse<OptionalText>("a,b").text, "a,b");
}

TEST(TimeSpanTest, TakesSecondsOrUnits) {
  EXPECT_EQ(Parse<TimeSpan>("1.5").duration, absl::Milliseconds(1500));
  EXPECT_EQ(Parse<TimeSpan>("0").duration, absl::ZeroDuration());
  EXPECT_EQ(Parse<TimeSpan>("1m30s").duration, absl::Seconds(90));
  EXPECT_EQ(Parse<TimeSpan>("250ms").duration, absl::Milliseconds(250));
  EXPECT_EQ(Parse<TimeSpan>("inf").duration, absl::InfiniteDuration());
}

TEST(TimeSpanTest, RefusesNegativeAndNonsense) {
  for (const char* text : {"", "-1", "-1s", "soon", "nan", "1 parsec"}) {
    EXPECT_TRUE(Refuses<TimeSpan>(text)) << text;
  }
}

TEST(TimeSpanTest, UnparsesToWhatParsesToTheSame) {
  for (const absl::Duration duration :
       {absl::InfiniteDuration(), absl::Seconds(90), absl::Milliseconds(1)}) {
    EXPECT_EQ(Parse<TimeSpan>(AbslUnparseFlag(TimeSpan{duration}).c_str()).duration, duration);
  }
}

}  // namespace
}  // namespace tlm::cli
