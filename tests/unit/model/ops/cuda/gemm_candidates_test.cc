#include "model/ops/cuda/gemm_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GemmCandidatesTest, LeavesOutWhatTellsOfPartialSums) {
  EXPECT_TRUE(MaySumInOneChain({}));
  EXPECT_TRUE(MaySumInOneChain({.id = 66, .stages = 35, .split_k = 0}));
  EXPECT_FALSE(MaySumInOneChain({.split_k = 2}));
  EXPECT_FALSE(MaySumInOneChain({.reduction = 1}));
  EXPECT_FALSE(MaySumInOneChain({.workspace_bytes = 1}));
}

TEST(GemmCandidatesTest, TriesTheFamilyKnownToSumForwardFirstOnHopper) {
  const std::vector<GemmAlgorithm> algorithms = {
      {.id = 21, .stages = 35}, {.id = 66, .stages = 35, .split_k = 3},
      {.id = 66, .stages = 35}, {.id = 66, .stages = 34},
      {.id = 66, .stages = 35}, {.id = 3, .stages = 1}};
  EXPECT_THAT(TrialOrder(algorithms, 9), ElementsAre(2, 4, 0, 3, 5));
  EXPECT_THAT(TrialOrder(algorithms, 8), ElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(TrialOrder({}, 9), IsEmpty());
}

TEST(GemmCandidatesTest, BucketsCoverEveryRowCountOnce) {
  EXPECT_THAT(RowBuckets(64, 1000), ElementsAre(128, 256, 512, 1000));
  EXPECT_THAT(RowBuckets(64, 128), ElementsAre(128));
  EXPECT_THAT(RowBuckets(0, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(RowBuckets(100, 101), ElementsAre(101));
  EXPECT_THAT(RowBuckets(64, 64), IsEmpty());
  EXPECT_THAT(RowBuckets(64, 10), IsEmpty());
  for (const int64_t min_rows : {0, 1, 63, 64, 65}) {
    for (const int64_t max_rows : {66, 127, 128, 129, 8192}) {
      const std::vector<int64_t> buckets = RowBuckets(min_rows, max_rows);
      ASSERT_EQ(buckets.back(), max_rows);
      int64_t above = min_rows;
      for (size_t i = 0; i < buckets.size(); ++i) {
        ASSERT_GT(buckets[i], above);
        for (const int64_t m : {above + 1, buckets[i]}) EXPECT_EQ(BucketOf(buckets, m), i);
        above = buckets[i];
      }
    }
  }
}

TEST(GemmCandidatesTest, ChoosesTheFastestOfTheFirstThatAgree) {
  // By algorithm: milliseconds, or a negative number where the bits differ.
  const std::vector<float> times = {-1, 5, -1, 3, 4, 1};
  std::vector<size_t> timed;
  const auto agrees = [&](size_t i) -> absl::StatusOr<bool> { return times[i] >= 0; };
  const auto time = [&](size_t i) -> absl::StatusOr<float> {
    timed.push_back(i);
    return times[i];
  };
  EXPECT_EQ(ChooseFastest(6, 3, agrees, time).value(), 3u);
  EXPECT_THAT(timed, ElementsAre(1, 3, 4));
  EXPECT_EQ(ChooseFastest(6, 4, agrees, time).value(), 5u);
  EXPECT_EQ(ChooseFastest(1, 4, agrees, time).value(), std::nullopt);
  EXPECT_EQ(ChooseFastest(0, 4, agrees, time).value(), std::nullopt);
}

TEST(GemmCandidatesTest, StopsAtAFault) {
  const auto agrees = [](size_t i) -> absl::StatusOr<bool> {
    if (i == 1) return Internal("fault");
    return true;
  };
  const auto time = [](size_t) -> absl::StatusOr<float> { return 1.0f; };
  EXPECT_THAT(ChooseFastest(3, 4, agrees, time),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("fault")));
  const auto all = [](size_t) -> absl::StatusOr<bool> { return true; };
  const auto fails = [](size_t) -> absl::StatusOr<float> { return Internal("clock"); };
  EXPECT_THAT(ChooseFastest(3, 4, all, fails),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("clock")));
}

TEST(GemmCandidatesTest, ProbesBothEndsOfABucket) {
  EXPECT_THAT(ProbedRows(64, 128), ElementsAre(128, 65, 97));
  EXPECT_THAT(ProbedRows(64, 65), ElementsAre(65));
  EXPECT_THAT(ProbedRows(64, 66), ElementsAre(66, 65));
  EXPECT_THAT(ProbedRows(64, 67), ElementsAre(67, 65));
  EXPECT_THAT(ProbedRows(1, 4), ElementsAre(4, 2, 3));
}

}  // namespace
}  // namespace tlm
