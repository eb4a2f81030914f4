// Statuses with details, and files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/descriptor.h"
#include "model/base/errors.h"
#include "model/base/mapped_file.h"
#include "model/base/regular_file.h"
#include "tests/support/mapped_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ErrorsTest, ContextKeepsCodeAndDetails) {
  const absl::Status inner = WithReason(ResourceExhausted("{} waiting", 7), "QUEUE_FULL");
  const absl::Status outer = WithContext(inner, "engine");
  EXPECT_THAT(outer, StatusIs(absl::StatusCode::kResourceExhausted, "engine: 7 waiting"));
  EXPECT_EQ(ReasonOf(outer), "QUEUE_FULL");
  EXPECT_THAT(WithContext(absl::OkStatus(), "engine"), IsOk());
}

TEST(ErrorsTest, DetailsAreAbsentUnlessGiven) {
  const absl::Status plain = InvalidArgument("no");
  EXPECT_EQ(ReasonOf(plain), "");
  EXPECT_EQ(FieldOf(plain), "");
  EXPECT_EQ(RetryAfterOf(plain), std::nullopt);
  EXPECT_EQ(RetryAfterOf(WithRetryAfter(plain, absl::Milliseconds(1500))),
            absl::Milliseconds(1500));
  EXPECT_EQ(FieldOf(WithField(plain, "sampling.top_p")), "sampling.top_p");
}

TEST(ErrorsTest, MacrosPassTheFirstErrorOn) {
  const auto half = [](int value) -> absl::StatusOr<int> {
    if (value % 2 != 0) return InvalidArgument("{} is odd", value);
    return value / 2;
  };
  const auto quarter = [&half](int value) -> absl::StatusOr<int> {
    TLM_ASSIGN_OR_RETURN(const int halved, half(value));
    return half(halved);
  };
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_THAT(quarter(6), StatusIs(absl::StatusCode::kInvalidArgument, "3 is odd"));
}

TEST(MappedFileTest, ReadsAFileAndSurvivesMoving) {
  const TempDir directory;
  auto file = MappedFile::Open(directory.Write("a", "hello"));
  ASSERT_THAT(file, IsOk());
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  const auto empty = MappedFile::Open(directory.Write("b", ""));
  ASSERT_THAT(empty, IsOk());
  EXPECT_TRUE(empty->bytes().empty());
}

// The kernel maps pages around those that are touched, of other parts.
TEST(MappedFileTest, NothingOfAReleasedPartStaysResident) {
  const TempDir directory;
  constexpr size_t kBytes = size_t{4} << 20;
  const std::string path = directory.Write("a", std::string(kBytes, 'x'));
  const auto file = MappedFile::Open(path);
  ASSERT_THAT(file, IsOk());
  const auto part = file->bytes().subspan(kBytes / 2 + 5000, 100);
  EXPECT_EQ(part[0], std::byte{'x'});
  EXPECT_GT(ResidentBytesOf(path), 0u);
  file->Release(part);
  EXPECT_EQ(ResidentBytesOf(path), 0u);
  EXPECT_EQ(part[99], std::byte{'x'});
  for (const size_t begin : {size_t{0}, kBytes - 1}) {
    const auto end = file->bytes().subspan(begin, 1);
    EXPECT_EQ(end[0], std::byte{'x'});
    file->Release(end);
  }
}

TEST(MappedFileTest, WhatIsCutOffReadsAsZerosAndIsTold) {
  const TempDir directory;
  constexpr size_t kBytes = size_t{3} << 20;
  const std::string path = directory.Write("a", std::string(kBytes, 'x'));
  auto cut = MappedFile::Open(path);
  ASSERT_THAT(cut, IsOk());
  const auto other = MappedFile::Open(directory.Write("b", std::string(kBytes, 'y')));
  ASSERT_THAT(other, IsOk());
  std::filesystem::resize_file(path, kBytes / 2);
  const MappedFile moved = *std::move(cut);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&moved] {
      moved.Populate(moved.bytes());
      EXPECT_EQ(std::ranges::count(moved.bytes(), std::byte{'x'}), kBytes / 2);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_THAT(moved.CheckUnchanged(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith(path), HasSubstr(std::to_string(kBytes)),
                             HasSubstr(std::to_string(kBytes / 2)))));
  EXPECT_THAT(other->CheckUnchanged(), IsOk());
}

TEST(MappedFileTest, TellsOfBytesItCouldNotReadThoughTheFileIsAsBefore) {
  const TempDir directory;
  const std::string path = directory.Write("a", std::string(size_t{1} << 20, 'x'));
  const auto file = MappedFile::Open(path);
  ASSERT_THAT(file, IsOk());
  struct stat before;
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file->bytes().back(), std::byte{0});
  std::filesystem::resize_file(path, file->bytes().size());
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_THAT(file->CheckUnchanged(), IsFailedPrecondition("could not be read"));
}

TEST(MappedFileTest, OtherBusErrorsEndTheProcessAsEver) {
  const TempDir directory;
  const std::string path = directory.Write("a", std::string(4096, 'x'));
  const auto file = MappedFile::Open(path);
  ASSERT_THAT(file, IsOk());
  const int own = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto* const bytes =
      static_cast<const volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, own, 0));
  close(own);
  std::filesystem::resize_file(path, 0);
  EXPECT_DEATH(static_cast<void>(*bytes), "");
}

TEST(RegularFileTest, RefusesWhatIsNoRegularFileWithoutWaiting) {
  const TempDir directory;
  EXPECT_THAT(RegularFile::Open(directory.File("none")),
              IsNotFound("none: cannot be opened: No such"));
  const std::string pipe = directory.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", directory.File("link"));
  for (const std::string& path :
       {directory.path(), pipe, directory.File("link"), std::string("/dev/zero")}) {
    EXPECT_THAT(RegularFile::Open(path),
                StatusIs(absl::StatusCode::kFailedPrecondition, path + ": is not a regular file"));
  }
  const std::string file = directory.Write("file", "text");
  std::filesystem::create_symlink("file", directory.File("good"));
  EXPECT_EQ(*ReadFile(directory.File("good"), 4), "text");
}

TEST(RegularFileTest, BoundsWhatItReads) {
  const TempDir directory;
  EXPECT_THAT(ReadFile(directory.Write("long", "123456"), 5), IsInvalidArgument("6 bytes"));
}

TEST(RegularFileTest, TellsOfChangesSinceItWasOpened) {
  const TempDir directory;
  const std::string path = directory.Write("a", "hello");
  const auto file = RegularFile::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(*file->Read(5), "hello");
  const timespec times[] = {{0, UTIME_OMIT}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_THAT(file->Read(5), IsFailedPrecondition("changed while"));
  std::filesystem::remove(path);
  directory.Write("a", "other");
  EXPECT_EQ(*ReadFile(path, 5), "other");
}

// What a program started with closed descriptors would open first.
TEST(DescriptorTest, StandardOnesAreTakenAndOfNoUse) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        OpenStandardDescriptors();
        const int next = open("/dev/null", O_RDWR);
        char byte = 0;
        const bool useless = read(STDIN_FILENO, &byte, 1) < 0 && write(STDOUT_FILENO, "", 1) < 0;
        std::_Exit(next > STDERR_FILENO && useless ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace tlm
