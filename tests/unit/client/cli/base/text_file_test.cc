#include "client/cli/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm::cli {
namespace {

using ::testing::HasSubstr;

TEST(ReadTextFileTest, ReadsUpToTheLimit) {
  const TempDir dir;
  const std::string text(100'000, 'x');  // more than one piece
  const std::string path = dir.Write("file", text);
  const absl::StatusOr<std::string> whole = ReadTextFile(path, text.size());
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(*whole, text);
  EXPECT_THAT(ReadTextFile(path, text.size() - 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longer than 99999 bytes")));
  EXPECT_THAT(ReadTextFile("/dev/zero", 1000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longer than 1000 bytes")));
}

TEST(ReadTextFileTest, AnEmptyFileIsAnEmptyText) {
  const TempDir dir;
  const absl::StatusOr<std::string> text = ReadTextFile(dir.Write("file", ""), 10);
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(*text, "");
}

TEST(ReadTextFileTest, NamesWhatCannotBeRead) {
  EXPECT_THAT(ReadTextFile("/nonexistent/file", 10),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/file")));
  EXPECT_THAT(ReadTextFile("/", 10), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/: ")));
}

}  // namespace
}  // namespace tlm::cli
