#include "model/ops/cpu/processors.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tlm
