#include "server/process/port_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <optional>

#include "model/base/regular_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

TEST(PortFileTest, LivesAsLongAsTheObject) {
  const TempDir dir;
  for (const char* const before : {"", "65535\n"}) {
    const std::string path = dir.Write("port", before);
    const absl::StatusOr<PortFile> file = PortFile::Create("port_file", path, 4711);
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ(*ReadFile(path, 10), "4711\n");
  }
  // Neither it nor a draft is left.
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PortFileTest, AnEmptyPathMakesNone) {
  EXPECT_THAT(PortFile::Create("port_file", "", 1), IsOk());
}

TEST(PortFileTest, NamesThePathThatCannotBeWritten) {
  const TempDir dir;
  const std::string path = dir.File("no/such/place");
  for (const absl::Status& status : {PortFile::Check("admin_port_file", path),
                                     PortFile::Create("admin_port_file", path, 1).status()}) {
    EXPECT_THAT(status, IsFailedPrecondition("--admin_port_file", "no/such/place"));
  }
}

TEST(PortFileTest, ReplacesNothingButAPortFile) {
  const TempDir dir;
  std::filesystem::create_symlink("/dev/null", dir.File("device"));
  std::filesystem::create_symlink(dir.Write("linked", "1\n"), dir.File("link"));
  dir.Write("notes", "6 eggs");
  dir.Write("long", "1234567");
  const std::string contents[] = {dir.path(),        dir.File("device"), dir.File("link"),
                                  dir.File("notes"), dir.File("long"),   "/dev/null"};
  for (const std::string& path : contents) {
    EXPECT_THAT(PortFile::Create("port_file", path, 1), IsFailedPrecondition(path, "regular file"));
  }
  EXPECT_EQ(*ReadFile(dir.File("notes"), 10), "6 eggs");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.File("link")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(PortFileTest, AnotherServersFileIsNotRemoved) {
  const TempDir dir;
  const std::string path = dir.File("port");
  auto first = std::make_optional(*PortFile::Create("port_file", path, 1));
  const PortFile second = PortFile::Create("port_file", path, 2).value();
  first.reset();
  EXPECT_EQ(*ReadFile(path, 10), "2\n");
  second.Remove();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PortFileTest, LeavesNoDraftWhereItCannotWrite) {
  const TempDir dir;
  const rlimit none{0, RLIM_INFINITY};
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status status = PortFile::Create("port_file", dir.File("port"), 1).status();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(status, IsFailedPrecondition("File too large"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace tlm
