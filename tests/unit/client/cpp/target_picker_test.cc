#include "client/cpp/target_picker.h"

#include <gtest/gtest.h>

namespace tlm::client {
namespace {

const absl::Time kNow = absl::UnixEpoch();

TEST(TargetPickerTest, TakesTurns) {
  TargetPicker picker(3);
  for (const size_t expected : {0, 1, 2, 0}) EXPECT_EQ(picker.Next(kNow), expected);
}

TEST(TargetPickerTest, PassesOverWhatIsExcluded) {
  TargetPicker picker(3);
  EXPECT_EQ(picker.Next(kNow, {0}), 1u);
  EXPECT_EQ(picker.Next(kNow, {2}), 0u);
  EXPECT_FALSE(picker.Next(kNow, {0, 1, 2}));
}

TEST(TargetPickerTest, AvoidsWhatFailedForASecond) {
  TargetPicker picker(2);
  picker.MarkFailed(0, kNow);
  EXPECT_EQ(picker.Next(kNow), 1u);
  EXPECT_EQ(picker.Next(kNow + absl::Milliseconds(999)), 1u);
  EXPECT_EQ(picker.Next(kNow + absl::Seconds(1)), 0u);
}

TEST(TargetPickerTest, TakesWhatFailedWhereNothingElseIsLeft) {
  TargetPicker picker(2);
  picker.MarkFailed(0, kNow);
  EXPECT_EQ(picker.Next(kNow, {1}), 0u);
  picker.MarkFailed(1, kNow);
  EXPECT_TRUE(picker.Next(kNow));
}

TEST(TargetPickerTest, ForgetsAFailureWhenTheTargetServes) {
  TargetPicker picker(2);
  picker.MarkFailed(0, kNow);
  picker.MarkServing(0);
  EXPECT_EQ(picker.Next(kNow), 0u);
}

}  // namespace
}  // namespace tlm::client
