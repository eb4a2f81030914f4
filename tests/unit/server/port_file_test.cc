#include "server/port_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

TEST(PortFileTest, LivesAsLongAsTheObject) {
  const TempDir dir;
  const std::string path = dir.Write("port", "of an earlier server");
  {
    const absl::StatusOr<PortFile> file = PortFile::Create(path, 4711);
    ASSERT_THAT(file, IsOk());
    std::string line;
    std::ifstream stream(path);
    std::getline(stream, line);
    EXPECT_EQ(line, "4711");
    EXPECT_FALSE(stream.eof());
  }
  // Neither it nor a draft is left.
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PortFileTest, AnEmptyPathMakesNone) { EXPECT_THAT(PortFile::Create("", 1), IsOk()); }

TEST(PortFileTest, NamesThePathThatCannotBeWritten) {
  const TempDir dir;
  EXPECT_THAT(PortFile::Create(dir.File("no/such/place"), 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no/such/place")));
}

TEST(PortFileTest, ADirectoryInItsPlaceIsLeftAlone) {
  const TempDir dir;
  EXPECT_THAT(PortFile::Create(dir.path(), 1).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(dir.path())));
  EXPECT_TRUE(std::filesystem::is_directory(dir.path()));
}

}  // namespace
}  // namespace tlm
