#include "server/serving/build_info.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// The note that tlm_identify linked into this test, of which the build leaves the source.
TEST(BuildInfoTest, TheBuildIdIsTheHashOfTheSources) {
  const absl::StatusOr<std::string> id = ReadBuildId();
  ASSERT_THAT(id, IsOk());
  EXPECT_THAT(*id, MatchesRegex("[0-9a-f]{40}"));
  std::ifstream file(std::string(TLM_IDENTITY_SOURCE));
  const std::string source(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(source, HasSubstr(*id));
}

TEST(BuildInfoTest, IsTheSameEveryTime) {
  const absl::StatusOr<BuildInfo> first = ReadBuildInfo("cpu");
  const absl::StatusOr<BuildInfo> second = ReadBuildInfo("cpu");
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->build_id, *ReadBuildId());
  EXPECT_EQ(first->build_id, second->build_id);
  EXPECT_EQ(first->libraries, second->libraries);
  EXPECT_EQ(first->math, second->math);
  EXPECT_THAT(first->math, MatchesRegex("[0-9a-f]{64}"));
}

// This test is linked as the project's default is, with shared libraries of the distribution.
TEST(BuildInfoTest, NamesTheLibrariesThatComputeAndNoOthers) {
  const BuildInfo build = ReadBuildInfo("cpu").value();
  EXPECT_THAT(build.libraries, Not(HasSubstr("libcrypto")));
  EXPECT_THAT(build.libraries, Not(HasSubstr("/")));
  std::istringstream lines(build.libraries);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, MatchesRegex("lib[^ ]+ [0-9a-f]{40}"));
  }
}

// Replicas with other versions of it, or without it, resume each other's streams.
TEST(BuildInfoTest, TheLibraryOfProductsHasNoSay) {
  std::string any;  // some library that is loaded
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* to) {
        const std::string path = object->dlpi_name;
        if (path.find("/libm.so") != std::string::npos) *static_cast<std::string*>(to) = path;
        return 0;
      },
      &any);
  ASSERT_NE(any, "");
  const BuildInfo without = ReadBuildInfo("cuda").value();
  const std::filesystem::path copy =
      std::filesystem::path(::testing::TempDir()) / "libcublasLt.so.13";
  std::filesystem::copy_file(any, copy, std::filesystem::copy_options::overwrite_existing);
  ASSERT_NE(dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const BuildInfo with = ReadBuildInfo("cuda").value();
  EXPECT_EQ(with.libraries, without.libraries);
}

}  // namespace
}  // namespace tlm
