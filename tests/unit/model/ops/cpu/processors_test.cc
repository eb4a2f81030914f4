#include "model/ops/cpu/processors.h"

#include <gtest/gtest.h>

#include <thread>

namespace tlm {
namespace {

TEST(ProcessorsOfQuotaTest, RoundsUp) {
  EXPECT_EQ(ProcessorsOfQuota("200000 100000"), 2);
  EXPECT_EQ(ProcessorsOfQuota("150000 100000"), 2);
  EXPECT_EQ(ProcessorsOfQuota("1000 100000"), 1);
  EXPECT_EQ(ProcessorsOfQuota("100001 100000\n"), 2);
  EXPECT_EQ(ProcessorsOfQuota("9223372036854775807 1"), 8192);
}

TEST(ProcessorsOfQuotaTest, NoLimitAndNoSuchText) {
  for (const char* text : {"max 100000", "", "100000", "0 100000", "-1 100000", "100000 0",
                           "99999999999999999999 1", "two 100000"}) {
    EXPECT_EQ(ProcessorsOfQuota(text), std::nullopt) << text;
  }
}

TEST(DefaultThreadsTest, AreNoMoreThanProcessors) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), static_cast<int>(UsableProcessors().size()));
}

TEST(SetTimeSliceTest, HoldsForTheThreadUntilItIsGivenBack) {
  using std::chrono::microseconds;
  std::thread([] {
    const auto before = SetTimeSlice(microseconds(300));
    if (!before.has_value()) GTEST_SKIP() << "this system has one slice for all threads";
    EXPECT_EQ(SetTimeSlice(microseconds(0)), microseconds(300));
    EXPECT_EQ(SetTimeSlice(microseconds(0)), before);
    EXPECT_EQ(SetTimeSlice(microseconds(1)), before);
    EXPECT_EQ(SetTimeSlice(microseconds(0)), microseconds(100)) << "the least";
  }).join();
}

}  // namespace
}  // namespace tlm
