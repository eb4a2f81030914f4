#include "client/cli/base/flag_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/declare.h"
#include "absl/flags/reflection.h"
#include "client/cli/base/command_line.h"

ABSL_DECLARE_FLAG(tlm::cli::TemplateArguments, template_argument);

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

// What is said of a text that is no value.
template <typename T>
std::string ErrorOf(const std::string& text) {
  T value;
  std::string error;
  EXPECT_FALSE(AbslParseFlag(absl::string_view(text), &value, &error)) << text;
  EXPECT_NE(error, "") << text;
  return error;
}
template <typename T>
void ExpectRefused(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) ErrorOf<T>(text);
}

TEST(IdListTest, ParsesNumbersAndNothingElse) {
  EXPECT_THAT(Parse<IdList>("").ids, ElementsAre());
  EXPECT_THAT(Parse<IdList>("7").ids, ElementsAre(7));
  EXPECT_THAT(Parse<IdList>("1, 2,4294967295").ids, ElementsAre(1, 2, 4294967295u));
  ExpectRefused<IdList>({"a", "-1", "+1", "1.5", "4294967296", "1,,2", ",", "1,", "1 2", "0x10",
                         "99999999999999999999999"});
  EXPECT_THAT(ErrorOf<IdList>("1,x,3"), HasSubstr("'x'"));
}

TEST(IdListsTest, ParsesSequences) {
  EXPECT_THAT(Parse<IdLists>("1,2,3;4").sequences,
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4)));
  ExpectRefused<IdLists>({"1;;2"});
  EXPECT_EQ(AbslUnparseFlag(Parse<IdLists>("1,2;3")), "1,2;3");
}

TEST(StringListTest, SplitsAtCommasAndUnescapes) {
  EXPECT_THAT(Parse<StringList>("").values, ElementsAre());
  EXPECT_THAT(Parse<StringList>("a b,c").values, ElementsAre("a b", "c"));
  EXPECT_THAT(Parse<StringList>(R"(a\,b,\n\n,\\,\t)").values,
              ElementsAre("a,b", "\n\n", "\\", "\t"));
  ExpectRefused<StringList>({",", "a,", ",a", "a,,b", "\\", "a\\x"});
}

TEST(StringListTest, UnparsesToWhatParsesToTheSame) {
  const StringList list{{"a,b", "\n", "\\n", "\t\\", "plain"}};
  EXPECT_EQ(Parse<StringList>(AbslUnparseFlag(list).c_str()).values, list.values);
}

TEST(BiasListTest, ParsesPairsOfOneEachId) {
  EXPECT_THAT(Parse<BiasList>("198:-100,5:2.5").biases,
              ElementsAre(Pair(198, -100.0f), Pair(5, 2.5f)));
  EXPECT_EQ(AbslUnparseFlag(Parse<BiasList>("198:-100,5:2.5")), "198:-100,5:2.5");
  ExpectRefused<BiasList>({"198", "198:", ":1", "x:1", "1:y", "1:2:3", "1:2,"});
  EXPECT_THAT(ErrorOf<BiasList>("7:1,8:1,7:1"), HasSubstr("7 is given twice"));
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
  ExpectRefused<TimeSpan>({"", "-1", "-1s", "soon", "nan", "1 parsec"});
}

TEST(TimeSpanTest, UnparsesToWhatParsesToTheSame) {
  for (const absl::Duration duration :
       {absl::InfiniteDuration(), absl::Seconds(90), absl::Milliseconds(1)}) {
    EXPECT_EQ(Parse<TimeSpan>(AbslUnparseFlag(TimeSpan{duration}).c_str()).duration, duration);
  }
}

class TemplateArgumentsTest : public testing::Test {
 protected:
  // `tlm chat --template_argument=...` once for each text.
  static absl::Status Parse(const std::vector<std::string>& texts) {
    std::vector<std::string> args;
    for (const std::string& text : texts) args.push_back("--template_argument=" + text);
    return ParseCommandLine(*FindCommand("chat"), args).status();
  }
  static google::protobuf::Value Value(const std::string& name) {
    return absl::GetFlag(FLAGS_template_argument).values.fields().at(name);
  }

  absl::FlagSaver saver_;
};

TEST_F(TemplateArgumentsTest, TakesEveryKindOfJsonValue) {
  ASSERT_TRUE(Parse({"a=false", "b=1.5", "c=\"x, \\\"y\\\"; z=1\"", "d=null",
                     "e=[1,\n {\"k\": true}]", "_f2={\"k\":\"v\"}"})
                  .ok());
  EXPECT_TRUE(Value("a").has_bool_value());
  EXPECT_FALSE(Value("a").bool_value());
  EXPECT_EQ(Value("b").number_value(), 1.5);
  EXPECT_EQ(Value("c").string_value(), "x, \"y\"; z=1");
  EXPECT_TRUE(Value("d").has_null_value());
  EXPECT_TRUE(Value("e").list_value().values(1).struct_value().fields().at("k").bool_value());
  EXPECT_EQ(Value("_f2").struct_value().fields().at("k").string_value(), "v");
}

TEST_F(TemplateArgumentsTest, TakesLatestValueOfAName) {
  ASSERT_TRUE(Parse({"a=1", "a=2"}).ok());
  EXPECT_EQ(Value("a").number_value(), 2);
}

TEST_F(TemplateArgumentsTest, RefusesWhatIsNoArgument) {
  const std::string deep(200'000, '[');
  for (const std::string& text :
       {std::string("a"), std::string("=1"), std::string("a b=1"), std::string("1a=1"),
        std::string("a="), std::string("a=yes"), std::string("a='yes'"), std::string("a={k:1}"),
        std::string("a=[1,]"), std::string("a=1e999"), std::string("a=\"\xff\""),
        std::string("\xff=1"), "a=" + deep, "a=" + deep + std::string(deep.size(), ']')}) {
    const absl::Status status = Parse({text});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 20);
    EXPECT_THAT(std::string(status.message()), HasSubstr("template_argument"));
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
    EXPECT_LT(status.message().size(), 300u);
  }
}

}  // namespace

}  // namespace tlm::cli
