#include "server/observe/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlm {
namespace {

prometheus::ClientMetric::Histogram Of(MetricFamilies& families, std::string_view name,
                                       const std::vector<double>& buckets) {
  return families.Histogram(name, {"m", "0"}, buckets).Collect().histogram;
}

class EngineMetricsTest : public ::testing::Test {
 protected:
  prometheus::ClientMetric::Histogram Gaps() {
    return Of(families_, "vllm:inter_token_latency_seconds", InterTokenBuckets());
  }
  prometheus::ClientMetric::Histogram StepTimes() {
    return families_.Histogram("tlm_engine_step_seconds", {}, StepTimeBuckets())
        .Collect()
        .histogram;
  }
  double Count(std::string_view name) { return families_.Counter(name, {"m", "0"}).Value(); }

  MetricFamilies families_;
  EngineMetrics metrics_{families_, "m"};
};

TEST_F(EngineMetricsTest, HandsOverAtTheEndOfTheStepAndTellsNothingTwice) {
  const auto steps = [this] {
    return Of(families_, "vllm:iteration_tokens_total", StepTokenBuckets()).sample_count;
  };
  metrics_.AddPrompt(7);
  metrics_.AddToken(absl::Milliseconds(20));
  metrics_.AddToken(absl::ZeroDuration());  // a first one: it has no gap
  EXPECT_EQ(Gaps().sample_count, 0u);
  EXPECT_EQ(Count("vllm:generation_tokens_total"), 0);
  for (const uint64_t step : {1u, 2u}) {
    metrics_.EndStep(8, absl::Milliseconds(3));
    EXPECT_EQ(Gaps().sample_count, 1u);
    EXPECT_NEAR(Gaps().sample_sum, 0.02, 1e-12);
    EXPECT_EQ(Count("vllm:generation_tokens_total"), 2);
    EXPECT_EQ(Count("vllm:prompt_tokens_total"), 7);
    EXPECT_EQ(steps(), step);
    EXPECT_EQ(StepTimes().sample_count, step);
    EXPECT_NEAR(StepTimes().sample_sum, 0.003 * static_cast<double>(step), 1e-12);
  }
  metrics_.EndStep(0, absl::ZeroDuration());  // one that failed computed nothing
  EXPECT_EQ(steps(), 2u);
}

TEST_F(EngineMetricsTest, ConstrainedTokensAndWaitsForMasksAreCountedOnce) {
  const auto counted = [this](std::string_view kind) {
    return families_.Counter("tlm_constrained_tokens_total", {kind}).Value();
  };
  const auto waits = [this] {
    return families_.Histogram("tlm_constraint_mask_wait_seconds", {}, LatencyBuckets())
        .Collect()
        .histogram;
  };
  metrics_.AddConstrainedToken(/*forced=*/false);
  for (int i = 0; i < 2; ++i) metrics_.AddConstrainedToken(/*forced=*/true);
  for (const int64_t ms : {3, 5, 4}) metrics_.AddMaskWait(absl::Milliseconds(ms));
  for (int step = 0; step < 2; ++step) {
    metrics_.EndStep(3, absl::Milliseconds(9));
    EXPECT_EQ(counted("drawn"), 1);
    EXPECT_EQ(counted("forced"), 2);
    EXPECT_EQ(waits().sample_count, 1u);
    EXPECT_NEAR(waits().sample_sum, 0.005, 1e-12) << "the longest of the step";
  }
}

TEST_F(EngineMetricsTest, DraftsAreCountedByPosition) {
  const auto accepted_at = [this](std::string_view position) {
    return families_
        .Counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", {"m", "0", position})
        .Value();
  };
  metrics_.AddDraft(4, 3);
  metrics_.AddDraft(2, 1);
  metrics_.AddDraft(3, 0);
  EXPECT_EQ(Count("vllm:spec_decode_num_drafts_total"), 0);
  metrics_.EndStep(9, absl::Milliseconds(3));
  metrics_.EndStep(1, absl::Milliseconds(3));
  EXPECT_EQ(Count("vllm:spec_decode_num_drafts_total"), 3);
  EXPECT_EQ(Count("vllm:spec_decode_num_draft_tokens_total"), 9);
  EXPECT_EQ(Count("vllm:spec_decode_num_accepted_tokens_total"), 4);
  EXPECT_EQ(accepted_at("0"), 2);
  EXPECT_EQ(accepted_at("2"), 1);
  EXPECT_EQ(accepted_at("3"), 0);
}

TEST_F(EngineMetricsTest, BatchesFallIntoTheBucketsOfSingleObservations) {
  MetricFamilies singly;
  auto& histogram =
      singly.Histogram("vllm:inter_token_latency_seconds", {"m", "0"}, InterTokenBuckets());
  for (const double ms : {0.1, 9.9, 10.0, 10.1, 25.0, 80'000.0, 80'001.0}) {
    histogram.Observe(ms / 1000);
    metrics_.AddToken(absl::Seconds(ms / 1000));
  }
  metrics_.EndStep(1, absl::Milliseconds(1));
  const auto batched = Gaps();
  const auto expected = histogram.Collect().histogram;
  ASSERT_EQ(batched.bucket.size(), expected.bucket.size());
  for (size_t i = 0; i < batched.bucket.size(); ++i) {
    EXPECT_EQ(batched.bucket[i].cumulative_count, expected.bucket[i].cumulative_count) << i;
  }
  EXPECT_NEAR(batched.sample_sum, expected.sample_sum, 1e-9);
  EXPECT_EQ(Of(families_, "vllm:time_per_output_token_seconds", InterTokenBuckets()).sample_count,
            batched.sample_count);
}

TEST_F(EngineMetricsTest, TellsGapsBelowAMillisecondApart) {
  for (const double ms : {0.25, 0.25, 0.6}) metrics_.AddToken(absl::Milliseconds(ms));
  metrics_.EndStep(3, absl::Milliseconds(1));
  auto& fine = families_.Histogram("tlm_inter_token_latency_seconds", {"m"}, LatencyBuckets());
  const auto gaps = fine.Collect().histogram;
  EXPECT_EQ(gaps.sample_count, 3u);
  EXPECT_NEAR(gaps.sample_sum, 0.0011, 1e-12);
  for (const auto& bucket : gaps.bucket) {
    const uint64_t expected = bucket.upper_bound < 0.25e-3  ? 0
                              : bucket.upper_bound < 0.6e-3 ? 2
                                                            : 3;
    EXPECT_EQ(bucket.cumulative_count, expected) << bucket.upper_bound;
  }
}

TEST(LatencyBucketsTest, AreLogSpacedFromATenthOfAMillisecond) {
  const std::vector<double> bounds = LatencyBuckets();
  EXPECT_EQ(bounds.front(), 0.0001);
  EXPECT_EQ(bounds.back(), 1000);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_GT(bounds[i], 1.3 * bounds[i - 1]);
    EXPECT_LT(bounds[i], 1.7 * bounds[i - 1]);
  }
}

}  // namespace
}  // namespace tlm
