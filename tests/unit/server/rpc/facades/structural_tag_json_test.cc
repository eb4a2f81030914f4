#include "server/rpc/facades/structural_tag_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<v1::StructuralTag> Read(const std::string& text) {
  v1::StructuralTag tag;
  const absl::Status status = ReadStructuralTag("tag", text, tag);
  if (!status.ok()) {
    EXPECT_EQ(FieldOf(status), "tag") << status;
    return status;
  }
  return tag;
}

TEST(StructuralTagJsonTest, ReadsTriggersWithStructures) {
  const auto tag = Read(R"({"type": "structural_tag", "triggers": ["<f="], "structures": [
      {"begin": "<f=a>", "schema": {"z": 1, "a": {"type": "null"}}, "end": "</f>"}]})");
  ASSERT_THAT(tag, IsOk());
  EXPECT_EQ(tag->triggers(0), "<f=");
  ASSERT_EQ(tag->regions_size(), 1);
  EXPECT_EQ(tag->regions(0).begin(), "<f=a>");
  EXPECT_EQ(tag->regions(0).end(), "</f>");
  EXPECT_EQ(tag->regions(0).json_schema(), R"({"z":1,"a":{"type":"null"}})") << "in this order";
}

TEST(StructuralTagJsonTest, ReadsTriggeredTags) {
  const auto tag = Read(R"({"type": "structural_tag", "format": {"type": "triggered_tags",
      "triggers": ["<"], "at_least_one": false, "tags": [
      {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "x+"}, "end": ""},
      {"begin": "<b>", "content": {"type": "grammar", "grammar": "root ::= \"b\""}, "end": "</b>"},
      {"begin": "<c>", "content": {"type": "json_schema", "json_schema": true}, "end": "</c>"}]}})");
  ASSERT_THAT(tag, IsOk());
  ASSERT_EQ(tag->regions_size(), 3);
  EXPECT_EQ(tag->regions(0).regex(), "x+");
  EXPECT_EQ(tag->regions(1).grammar(), "root ::= \"b\"");
  EXPECT_EQ(tag->regions(2).json_schema(), "true");
}

TEST(StructuralTagJsonTest, RefusesOtherFormsByName) {
  const char* const cases[][2] = {
      {R"({"triggers": [], "structures": [], "strict": true})", "strict"},
      {R"({"format": {"type": "sequence", "elements": []}})", "sequence"},
      {R"({"type": "json", "format": {}})", "json"},
      {R"({"format": {"type": "triggered_tags", "triggers": [], "tags": [], "at_least_one": true}})",
       "at_least_one"},
      {R"({"format": {"triggers": ["<"], "tags": [
          {"begin": "<", "content": {"type": "any_text"}, "end": ">"}]}})",
       "any_text"},
      {R"({"triggers": ["<"], "structures": [{"begin": "<", "schema": {}, "end": "", "x": 1}]})",
       "'x'"}};
  for (const auto& [text, name] : cases) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(name))) << text;
  }
}

TEST(StructuralTagJsonTest, RefusesWhatIsMalformed) {
  std::string deep = R"({"triggers": ["<"], "structures": [{"begin": "<", "end": "", "schema": )";
  for (int i = 0; i < 100000; ++i) deep += '[';
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"triggers": "<", "structures": []})"),
        std::string(R"({"triggers": [1], "structures": []})"),
        std::string(R"({"triggers": ["<"], "structures": [{"begin": "<", "schema": {}}]})"),
        std::string(R"({"triggers": ["<"], "structures": ["<"]})"),
        std::string(R"({"format": {"triggers": ["<"], "tags": [{"begin": "<", "end": ""}]}})"),
        deep}) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_))
        << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace tlm
