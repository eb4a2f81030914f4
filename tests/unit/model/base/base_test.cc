// Statuses with details, files, clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/clock.h"
#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "model/base/mapped_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

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

TEST(MappedFileTest, SaysWhatIsWrong) {
  const TempDir directory;
  EXPECT_THAT(MappedFile::Open(directory.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(MappedFile::Open(directory.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a regular file")));
  EXPECT_THAT(ReadFile(directory.Write("long", "123456"), 5),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("6 bytes")));
}

TEST(FakeClockTest, StandsStillUntilMoved) {
  FakeClock clock(absl::UnixEpoch());
  EXPECT_EQ(clock.Now(), clock.Now());
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(3));
}

}  // namespace
}  // namespace tlm
