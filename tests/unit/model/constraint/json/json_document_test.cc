#include "model/constraint/json/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

TEST(JsonDocumentTest, NumbersAreKeptAsTheyAreWritten) {
  for (const char* text : {"0", "-1", "18446744073709551615", "1.50", "1E+2", "1e400", "-1.5e4000",
                           "1e-5000", "123456789012345678901234567890.12345678901234567890"}) {
    SCOPED_TRACE(text);
    const auto document = ParseJsonDocument(text, 1);
    ASSERT_THAT(document, IsOk());
    EXPECT_TRUE(document->is_number());
    EXPECT_EQ(document->text, text);
  }
}

TEST(JsonDocumentTest, RefusalsNameTheReasonAndThePlace) {
  const struct {
    std::string_view text, error;
  } kCases[] = {
      {"", "is not valid JSON at line 1, column 1"},
      {"{\n  \"a\": 1,\n  b}", "is not valid JSON at line 3, column 3"},
      {std::string_view("{}\0", 3), "is not valid JSON at line 1, column 3"},
      {"[1,\n 1e99999]", "number out of range at line 2, column 8"},
      {"{\"a\": 1, \"a\": 2}", "key 'a' occurs twice"},
      {"[[[1]]]", "nested deeper than 2 arrays and objects"},
  };
  for (const auto& each : kCases) {
    EXPECT_THAT(ParseJsonDocument(each.text, 2),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(each.error))));
  }
}

TEST(JsonDocumentTest, EqualValuesHaveEqualTexts) {
  const auto canonical = [](std::string_view text) {
    const auto document = ParseJsonDocument(text, 3);
    return document.ok() ? CanonicalJson(*document) : std::string(document.status().message());
  };
  EXPECT_EQ(canonical("[1.0, 100, -0, 1e400]"), canonical("[1, 1E2, 0, 10e399]"));
  EXPECT_EQ(canonical(R"({"b": [], "a": "\u0061"})"), canonical(R"({"a": "a", "b": []})"));
  EXPECT_NE(canonical("1e400"), canonical("1e399"));
  EXPECT_NE(canonical("1"), canonical("\"1\""));
}

}  // namespace
}  // namespace tlm
