#include "client/cli/base/template_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "client/cli/base/command_line.h"

ABSL_DECLARE_FLAG(tlm::cli::TemplateArguments, template_argument);

namespace tlm::cli {
namespace {

using testing::HasSubstr;

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
