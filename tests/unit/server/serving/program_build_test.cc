#include "server/serving/program_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(ProgramBuildTest, TheBuildIdIsASha1) {
  const absl::StatusOr<std::string> id = ProgramBuildId();
  ASSERT_THAT(id, IsOk());
  EXPECT_THAT(*id, MatchesRegex("[0-9a-f]{40}"));
}

TEST(ProgramBuildTest, IsTheSameEveryTime) {
  const absl::StatusOr<ProgramBuild> first = ReadProgramBuild("cpu");
  const absl::StatusOr<ProgramBuild> second = ReadProgramBuild("cpu");
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->build_id, *ProgramBuildId());
  EXPECT_EQ(first->build_id, second->build_id);
  EXPECT_EQ(first->libraries, second->libraries);
  EXPECT_EQ(first->math, second->math);
  EXPECT_THAT(first->math, MatchesRegex("[0-9a-f]{64}"));
}

// This test is linked as the project's default is, with shared libraries of the distribution.
TEST(ProgramBuildTest, NamesTheLibrariesThatComputeAndNoOthers) {
  const absl::StatusOr<ProgramBuild> build = ReadProgramBuild("cpu");
  ASSERT_THAT(build, IsOk());
  EXPECT_THAT(build->libraries, Not(HasSubstr("libcrypto")));
  EXPECT_THAT(build->libraries, Not(HasSubstr("/")));
  std::istringstream lines(build->libraries);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, MatchesRegex("lib[^ ]+ [0-9a-f]{40}"));
  }
}

}  // namespace
}  // namespace tlm
