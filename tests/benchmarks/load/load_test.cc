#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/benchmarks/load/metrics.h"
#include "tests/benchmarks/load/mixture.h"
#include "tests/benchmarks/load/workload.h"
#include "tests/support/status_matchers.h"

namespace tlm::bench {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

TEST(SummarizeTest, TakesWhatTheHistogramHolds) {
  load::LatencyHistogram histogram;
  EXPECT_EQ(Summarize(histogram).count, 0u);
  for (int i = 200; i >= 1; --i) histogram.Add(i);
  const Summary summary = Summarize(histogram);
  EXPECT_EQ(summary.count, 200u);
  EXPECT_NEAR(summary.p50, 100, 0.3);
  EXPECT_NEAR(summary.p90, 180, 0.5);
  EXPECT_NEAR(summary.p99, 198, 0.5);
  EXPECT_EQ(summary.max, 200);
  EXPECT_DOUBLE_EQ(summary.mean, 100.5);
}

TEST(MixtureTest, SamplesWithinItsRangesByTheirWeights) {
  const Mixture mixture = Counts("10..20*3,100").mixture;
  EXPECT_EQ(mixture.min(), 10);
  EXPECT_EQ(mixture.max(), 100);
  Random random(1);
  int large = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t sampled = mixture.SampleCount(random);
    large += sampled == 100;
    if (sampled != 100) {
      EXPECT_THAT(sampled, AllOf(Ge(10), Le(20)));
    }
  }
  // A quarter of 4,000, and five standard deviations.
  EXPECT_NEAR(large, 1000, 5 * std::sqrt(4000 * 0.25 * 0.75));
}

TEST(MixtureTest, DurationsMayBeInfinite) {
  Random random(1);
  EXPECT_TRUE(std::isinf(Durations("inf").mixture.SampleSeconds(random)));
  EXPECT_THAT(Durations("500ms..2s").mixture.SampleSeconds(random), AllOf(Ge(0.5), Le(2.0)));
}

TEST(MixtureTest, RefusesWhatIsNoDistribution) {
  for (const char* text : {"", "x", "1..", "..2", "3..2", "1*0", "1*-1", "1*nan", "1,", "1.5"}) {
    EXPECT_THAT(Mixture::ParseCounts(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"")))
        << text;
  }
  for (const char* text : {"0s", "-1s", "5"}) {
    EXPECT_FALSE(Mixture::ParseDurations(text).ok()) << text;
  }
}

v1::ModelInfoResponse SmallModel() {
  v1::ModelInfoResponse model;
  model.mutable_architecture()->set_vocab_size(50);
  model.mutable_limits()->set_max_context_tokens(200);
  return model;
}

WorkloadOptions SmallWorkload() {
  return {.prompt_tokens = Counts("20..100").mixture,
          .output_tokens = Counts("5..10").mixture,
          .deadline = Durations("inf").mixture,
          .priority = Counts("-3..3").mixture,
          .seed = 9};
}

std::vector<uint32_t> PromptOf(const load::PlannedRequest& request) {
  const auto& ids = request.message.prompt_token_ids().ids();
  return {ids.begin(), ids.end()};
}

TEST(WorkloadTest, SameSeedRunAndIndexGiveTheSameRequest) {
  const absl::StatusOr<Workload> one = Workload::Create(SmallWorkload(), SmallModel());
  const absl::StatusOr<Workload> other = Workload::Create(SmallWorkload(), SmallModel());
  ASSERT_TRUE(one.ok() && other.ok());
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(one->Make(3, i).message.SerializeAsString(),
              other->Make(3, i).message.SerializeAsString());
    EXPECT_NE(PromptOf(one->Make(3, i)), PromptOf(one->Make(4, i)));
    EXPECT_NE(PromptOf(one->Make(3, i)), PromptOf(one->Make(3, i + 1)));
  }
}

TEST(WorkloadTest, GroupsShareTheBeginningOfTheirPromptsInAllRuns) {
  WorkloadOptions options = SmallWorkload();
  options.prompt_tokens = Counts("100").mixture;
  options.shared_prefix = 0.8;
  const absl::StatusOr<Workload> workload = Workload::Create(options, SmallModel());
  ASSERT_TRUE(workload.ok());
  const std::vector<uint32_t> one = PromptOf(workload->Make(0, 0));
  const std::vector<uint32_t> other = PromptOf(workload->Make(1, 5));
  const auto differ = std::mismatch(one.begin(), one.end(), other.begin()).first;
  EXPECT_GE(differ - one.begin(), 80);
  EXPECT_NE(one, other);
}

TEST(WorkloadTest, RefusesWhatTheContextDoesNotHold) {
  WorkloadOptions options = SmallWorkload();
  options.prompt_tokens = Counts("20..196").mixture;
  EXPECT_THAT(Workload::Create(options, SmallModel()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("context is 200")));
}

class MeasureTest : public ::testing::Test {
 protected:
  // A call that is due `seconds` after the window begins and ends with `code`.
  load::CallRecord& AddCall(double seconds, absl::StatusCode code, std::string reason = "") {
    load::CallRecord& call = run_.calls.emplace_back();
    call.due = load::After(run_.window.begin, seconds);
    call.sent = call.due;
    call.done = load::After(call.due, 0.01);
    call.code = code;
    call.reason = std::move(reason);
    return call;
  }
  // A good one: three tokens, the first 0.1 s, the last `last` s after it was due.
  load::CallRecord& AddCompleted(double seconds, double last) {
    load::CallRecord& call = AddCall(seconds, absl::StatusCode::kOk);
    call.started = true;
    call.prompt_tokens = 10;
    call.wanted_tokens = call.tokens = 3;
    call.first_token = load::After(call.due, 0.1);
    call.last_token = call.done = load::After(call.due, last);
    call.gaps = {static_cast<float>(last - 0.1)};
    return call;
  }

  RunRecord run_ = {
      .window = {.begin = load::TimePoint(std::chrono::hours(1)),
                 .end = load::TimePoint(std::chrono::hours(1) + std::chrono::seconds(10))}};
};

TEST_F(MeasureTest, EveryOfferedRequestIsCompletedRefusedOrFailed) {
  AddCompleted(1, 0.5);
  AddCompleted(2, 0.5).tokens = 2;
  AddCall(3, absl::StatusCode::kResourceExhausted, "QUEUE_FULL").retry_seconds = 1.5;
  AddCall(3, absl::StatusCode::kResourceExhausted, "QUEUE_FULL");
  AddCall(4, absl::StatusCode::kDeadlineExceeded, "INFEASIBLE");
  AddCall(4, absl::StatusCode::kDeadlineExceeded, "EXPIRED_IN_QUEUE");
  AddCall(5, absl::StatusCode::kUnavailable, "DRAINING");
  AddCall(5, absl::StatusCode::kUnavailable);
  run_.window.not_sent = 2;
  const PointMetrics metrics = Measure(run_, {});
  EXPECT_EQ(metrics.offered, 10);
  EXPECT_EQ(metrics.completed, 1);
  EXPECT_EQ(metrics.refused, 4);
  EXPECT_EQ(metrics.failed, 5);
  ASSERT_EQ(metrics.endings.size(), 7);
  EXPECT_EQ(metrics.endings[0].reason, "QUEUE_FULL");
  EXPECT_EQ(metrics.endings[0].count, 2);
  EXPECT_EQ(metrics.endings[0].with_retry_time, 1);
  EXPECT_EQ(metrics.refusal.count, 4);
}

TEST_F(MeasureTest, OnlyRequestsDueInTheWindowAreCounted) {
  AddCompleted(-1, 0.5);
  AddCompleted(0, 0.5);
  AddCompleted(10, 0.5);
  EXPECT_EQ(Measure(run_, {}).offered, 1);
}

TEST_F(MeasureTest, RatesAreOfWhatHappenedInTheWindow) {
  AddCompleted(-1, 2);    // ends in it
  AddCompleted(9.5, 20);  // does not, but begins to answer in it
  run_.window.output_tokens = 5;
  run_.window.prompt_tokens = 10;
  const PointMetrics metrics = Measure(run_, {});
  EXPECT_DOUBLE_EQ(metrics.completed_per_second, 0.1);
  EXPECT_DOUBLE_EQ(metrics.offered_per_second, 0.1);
  EXPECT_DOUBLE_EQ(metrics.output_tokens_per_second, 0.5);
  EXPECT_DOUBLE_EQ(metrics.total_tokens_per_second, 1.5);
}

TEST_F(MeasureTest, GoodRequestsKeepBothTimes) {
  AddCompleted(1, 0.3);  // 0.1 s a token
  AddCompleted(2, 2.1);  // 1 s a token
  EXPECT_EQ(Measure(run_, {}).good, 2);
  EXPECT_EQ(Measure(run_, {.itl_seconds = 0.5}).good, 1);
  EXPECT_EQ(Measure(run_, {.ttft_seconds = 0.05}).good, 0);
}

}  // namespace
}  // namespace tlm::bench
