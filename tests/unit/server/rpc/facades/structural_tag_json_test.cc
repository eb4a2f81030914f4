#include "server/rpc/facades/structural_tag_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/base/errors.h"
#include "tests/support/proto.h"
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
  // The keys of the schema stay in their order.
  EXPECT_THAT(*tag, IsProto(R"(
      triggers: "<f="
      regions { begin: "<f=a>" end: "</f>" json_schema: '{"z":1,"a":{"type":"null"}}' })"));
}

TEST(StructuralTagJsonTest, ReadsTriggeredTags) {
  const auto tag = Read(R"({"type": "structural_tag", "format": {"type": "triggered_tags",
      "triggers": ["<"], "at_least_one": false, "tags": [
      {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "x+"}, "end": ""},
      {"begin": "<b>", "content": {"type": "grammar", "grammar": "root ::= \"b\""}, "end": "</b>"},
      {"begin": "<c>", "content": {"type": "json_schema", "json_schema": true}, "end": "</c>"}]}})");
  ASSERT_THAT(tag, IsOk());
  EXPECT_THAT(*tag, IsProto(R"(
                  triggers: "<" regions { begin: "<a>" regex: "x+" }
                  regions { begin: "<b>" grammar: 'root ::= "b"' end: "</b>" }
                  regions { begin: "<c>" json_schema: "true" end: "</c>" })"));
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
  for (const char* const text :
       {"{", "[]", "{}", R"({"triggers": "<", "structures": []})",
        R"({"triggers": [1], "structures": []})",
        R"({"triggers": ["<"], "structures": [{"begin": "<", "schema": {}}]})",
        R"({"triggers": ["<"], "structures": ["<"]})",
        R"({"format": {"triggers": ["<"], "tags": [{"begin": "<", "end": ""}]}})", deep.c_str()}) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_))
        << std::string(text).substr(0, 80);
  }
}

}  // namespace
}  // namespace tlm
