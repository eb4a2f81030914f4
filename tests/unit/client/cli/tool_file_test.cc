#include "client/cli/tool_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(ParseToolFileTest, ReadsBothForms) {
  const auto file = ParseToolFile(R"([
    {"type": "function", "exec": "sum",
     "function": {"name": "add", "description": "adds", "strict": true,
                  "parameters": {"type": "object", "properties": {"z": {}, "a": {"minimum": 1.0}}}}},
    {"name": "look", "exec": "cat"},
    {"type": "function", "name": "wait", "parameters": true}])");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tools.size(), 3u);
  EXPECT_EQ(file->tools[0].name(), "add");
  EXPECT_EQ(file->tools[0].description(), "adds");
  EXPECT_EQ(file->tools[0].parameters_json_schema(),
            R"({"type":"object","properties":{"z":{},"a":{"minimum":1.0}}})");
  EXPECT_EQ(file->tools[1].name(), "look");
  EXPECT_EQ(file->tools[1].parameters_json_schema(), "");
  EXPECT_EQ(file->tools[2].parameters_json_schema(), "true");
  EXPECT_THAT(file->commands, ElementsAre(Pair("add", "sum"), Pair("look", "cat")));
}

TEST(ParseToolFileTest, NamesThePlaceOfAMistake) {
  const std::pair<std::string, std::string> kMistakes[] = {
      {"[", "line 1, column"},
      {"{}", "is not a list"},
      {"[]", "is not a list"},
      {"[1]", "[0] is not an object"},
      {R"([{"name": "a"}, {"function": 1}])", "[1].function is not an object"},
      {R"([{"function": {"parameters": {}}}])", "[0].function.name is missing"},
      {R"([{"name": 1}])", "[0].name is not a text"},
      {R"([{"name": ""}])", "[0].name is missing"},
      {R"([{"name": "a", "description": null}])", "[0].description is not a text"},
      {R"([{"name": "a", "parameters": "{}"}])", "[0].parameters is not a JSON Schema"},
      {R"([{"name": "a", "paramters": {}}])",
       "[0] has the key \"paramters\"; known are type, name"},
      {R"([{"function": {"name": "a", "exec": "b"}}])", "[0].function has the key \"exec\""},
      {R"([{"type": "retrieval", "name": "a"}])", "[0].type is \"retrieval\""},
      {R"([{"name": "a", "exec": ""}])", "[0].exec is not a command line"},
      {R"([{"name": "a", "exec": "b\u0000c"}])", "[0].exec is not a command line"},
      {R"([{"name": "a", "name": "b"}])", "name"},
      {R"([{"name": "a", "parameters": {"x": )" + std::string(500, '['), "deep"},
  };
  for (const auto& [json, message] : kMistakes) {
    const absl::Status status = ParseToolFile(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << json;
  }
}

}  // namespace
}  // namespace tlm::cli
