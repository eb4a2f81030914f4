#include "model/ops/cuda/gemm/gemm_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
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

// Algorithms by what they take at each of kEnds: milliseconds; a negative number: the bits differ.
constexpr int64_t kEnds[] = {65, 128};
using Times = std::vector<std::array<float, 2>>;

struct Search {
  const Times& times;
  std::array<float, 2> own = {4, 8};
  std::vector<size_t> timed{};

  absl::StatusOr<std::optional<size_t>> Run(size_t most) {
    return ChooseFastest(
        times.size(), most, [&](size_t i) -> absl::StatusOr<bool> { return times[i][0] >= 0; },
        kEnds, [&](int64_t m) -> absl::StatusOr<float> { return own[m == kEnds[0] ? 0 : 1]; },
        [&](size_t i, int64_t m) -> absl::StatusOr<float> {
          if (timed.empty() || timed.back() != i) timed.push_back(i);
          return times[i][m == kEnds[0] ? 0 : 1];
        });
  }
};

TEST(GemmCandidatesTest, ChoosesTheFastestOfTheFirstThatAgree) {
  const Times times = {{-1, 0}, {3, 6}, {-1, 0}, {2, 4}, {2, 5}, {1, 2}};
  Search search{times};
  EXPECT_EQ(search.Run(3).value(), 3u);
  EXPECT_THAT(search.timed, ElementsAre(1, 3, 4));
  EXPECT_EQ(search.Run(4).value(), 5u);
  const Times none = {{-1, 0}};
  EXPECT_EQ(Search{none}.Run(4).value(), std::nullopt);
  const Times empty;
  EXPECT_EQ(Search{empty}.Run(4).value(), std::nullopt);
}

TEST(GemmCandidatesTest, OwnKernelsStayWhereTheyAreFaster) {
  const Times slow = {{5, 8}, {4, 8}};
  EXPECT_EQ(Search{slow}.Run(4).value(), std::nullopt);
  const Times faster = {{5, 8}, {4, 7.9f}};
  EXPECT_EQ(Search{faster}.Run(4).value(), 1u);
}

TEST(GemmCandidatesTest, BothEndsOfABucketCountAlike) {
  // Twice as fast for many rows, five times as slow for few; and a little faster for both.
  const Times times = {{20, 4}, {3.6f, 7.2f}};
  EXPECT_EQ(Search{times}.Run(4).value(), 1u);
}

TEST(GemmCandidatesTest, WhatCannotBeTimedIsLeftOut) {
  const auto all = [](size_t) -> absl::StatusOr<bool> { return true; };
  const auto own = [](int64_t) -> absl::StatusOr<float> { return 1.0f; };
  const auto time = [](size_t i, int64_t) -> absl::StatusOr<float> {
    if (i == 0) return Unimplemented("refused");
    return 0.5f;
  };
  EXPECT_EQ(ChooseFastest(2, 4, all, kEnds, own, time).value(), 1u);
}

TEST(GemmCandidatesTest, StopsAtAFault) {
  const auto agrees = [](size_t i) -> absl::StatusOr<bool> {
    if (i == 1) return Internal("fault");
    return true;
  };
  const auto own = [](int64_t) -> absl::StatusOr<float> { return 1.0f; };
  const auto time = [](size_t, int64_t) -> absl::StatusOr<float> { return 1.0f; };
  EXPECT_THAT(ChooseFastest(3, 4, agrees, kEnds, own, time), IsInternal("fault"));
  const auto all = [](size_t) -> absl::StatusOr<bool> { return true; };
  const auto fails = [](size_t, int64_t) -> absl::StatusOr<float> { return Internal("clock"); };
  EXPECT_THAT(ChooseFastest(3, 4, all, kEnds, own, fails), IsInternal("clock"));
}

// A clock that says these times, one after the other, and how often it was asked.
struct Clock {
  std::vector<float> times;
  mutable size_t asked = 0;
  absl::StatusOr<float> operator()() const { return times[asked++]; }
};

TEST(GemmCandidatesTest, OneSlowRunDoesNotDecide) {
  Clock clock{{9.0f, 0.1f, 0.2f}};
  EXPECT_EQ(MedianTime(clock).value(), 0.2f);
  Clock steady{{0.3f, 0.1f, 0.7f, 0.2f, 0.5f, 0.6f, 0.4f, 0.0f}};
  EXPECT_EQ(MedianTime(steady).value(), 0.4f);
  EXPECT_EQ(steady.asked, 7u);
}

TEST(GemmCandidatesTest, TimingEndsAfterSomeMilliseconds) {
  Clock slow{{100.0f, 300.0f, 200.0f, 0.0f}};
  EXPECT_EQ(MedianTime(slow).value(), 200.0f);
  EXPECT_EQ(slow.asked, 3u);
  Clock middling{{1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}};
  EXPECT_EQ(MedianTime(middling).value(), 1.0f);
  EXPECT_EQ(middling.asked, 4u);
  const auto fails = []() -> absl::StatusOr<float> { return Internal("fault"); };
  EXPECT_THAT(MedianTime(fails), IsInternal("fault"));
}

TEST(GemmCandidatesTest, TimesBothEndsOfABucket) {
  EXPECT_THAT(TimedRows(64, 128), ElementsAre(65, 128));
  EXPECT_THAT(TimedRows(64, 66), ElementsAre(65, 66));
  EXPECT_THAT(TimedRows(64, 65), ElementsAre(65));
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
