#include "server/admission/tenant_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

class TenantQuotasTest : public ::testing::Test {
 protected:
  absl::Status Begin(const TenantLimits& limits, int64_t tokens = 1,
                     const std::string& tenant = "a") {
    absl::Status status = quotas_.Check(tenant, limits, tokens, now_);
    if (status.ok()) status = quotas_.CountRequest(tenant, limits, now_);
    if (status.ok()) quotas_.Begin(tenant, limits, tokens, now_);
    return status;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  TenantQuotas quotas_;
};

TEST_F(TenantQuotasTest, AMinutesRequestsAtOnceThenOneAtATime) {
  const TenantLimits limits{.requests_per_minute = 6};
  for (int i = 0; i < 6; ++i) EXPECT_THAT(Begin(limits), IsOk()) << i;
  const absl::Status refused = Begin(limits);
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("6 requests per minute")));
  EXPECT_EQ(ReasonOf(refused), "TENANT_QUOTA");
  EXPECT_EQ(RetryAfterOf(refused), absl::Seconds(10));
  now_ += absl::Seconds(10) - absl::Milliseconds(1);
  EXPECT_THAT(Begin(limits), StatusIs(kExhausted, ::testing::_));
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Begin(limits), IsOk());
  EXPECT_THAT(Begin(limits), StatusIs(kExhausted, ::testing::_));
}

TEST_F(TenantQuotasTest, WaitingAsToldIsEnoughWhateverTheRate) {
  for (const int64_t rate : {1, 3, 7, 59, 601, 100'003}) {
    const TenantLimits limits{.tokens_per_minute = rate};
    const std::string tenant = std::to_string(rate);
    ASSERT_THAT(Begin(limits, rate, tenant), IsOk());
    for (int i = 0; i < 50; ++i) {
      const int64_t tokens = 1 + i * rate / 50;
      const absl::Status refused = Begin(limits, tokens, tenant);
      ASSERT_THAT(refused, StatusIs(kExhausted, ::testing::_));
      now_ += *RetryAfterOf(refused);
      ASSERT_THAT(Begin(limits, tokens, tenant), IsOk()) << rate << " " << i;
    }
  }
}

TEST_F(TenantQuotasTest, GeneratedTokensAreChargedAndMayLeaveADebt) {
  const TenantLimits limits{.tokens_per_minute = 60};
  EXPECT_THAT(Begin(limits, 10), IsOk());
  quotas_.Charge("a", limits, 170, now_);  // 120 in debt
  const absl::Status refused = Begin(limits, 1);
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("60 tokens per minute")));
  EXPECT_EQ(RetryAfterOf(refused), absl::Seconds(121));
  now_ += absl::Seconds(121);
  EXPECT_THAT(Begin(limits, 1), IsOk());
}

TEST_F(TenantQuotasTest, APromptLargerThanAMinutesTokensWaitsForAFullBudget) {
  const TenantLimits limits{.tokens_per_minute = 60};
  EXPECT_THAT(Begin(limits, 30), IsOk());
  EXPECT_EQ(RetryAfterOf(Begin(limits, 600)), absl::Seconds(30));
  now_ += absl::Seconds(30);
  EXPECT_THAT(Begin(limits, 600), IsOk());
  EXPECT_EQ(RetryAfterOf(Begin(limits, 1)), absl::Seconds(541));
}

TEST_F(TenantQuotasTest, RequestsAtOnceAreFreeAgainWhenTheyEnd) {
  const TenantLimits limits{.max_concurrent_requests = 2};
  EXPECT_THAT(Begin(limits), IsOk());
  EXPECT_THAT(Begin(limits), IsOk());
  const absl::Status refused = Begin(limits);
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("2 requests at once")));
  EXPECT_TRUE(RetryAfterOf(refused).has_value());
  quotas_.End("a", limits);
  EXPECT_THAT(Begin(limits), IsOk());
}

TEST_F(TenantQuotasTest, TokensThatAreRefundedWereNeverSpent) {
  const TenantLimits limits{.requests_per_minute = 3, .tokens_per_minute = 10};
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Begin(limits, 10), IsOk());
    quotas_.Refund("a", limits, 10, now_);
    quotas_.End("a", limits);
  }
  // The requests were: reading them was work.
  EXPECT_THAT(Begin(limits, 10), StatusIs(kExhausted, HasSubstr("3 requests per minute")));
}

TEST_F(TenantQuotasTest, TenantsDoNotFeelEachOther) {
  const TenantLimits limits{.requests_per_minute = 1};
  EXPECT_THAT(Begin(limits, 1, "a"), IsOk());
  EXPECT_THAT(Begin(limits, 1, "b"), IsOk());
  EXPECT_THAT(Begin(limits, 1, "a"), StatusIs(kExhausted, ::testing::_));
}

TEST_F(TenantQuotasTest, NewLimitsHoldAtOnce) {
  EXPECT_THAT(Begin({.requests_per_minute = 100}), IsOk());
  EXPECT_THAT(Begin({.requests_per_minute = 1}), IsOk());
  EXPECT_THAT(Begin({.requests_per_minute = 1}), StatusIs(kExhausted, ::testing::_));
  EXPECT_THAT(Begin({}), IsOk());
}

TEST_F(TenantQuotasTest, ForgetsTheIdleAndNoDebts) {
  const TenantLimits limits{.requests_per_minute = 60, .tokens_per_minute = 60};
  ASSERT_THAT(Begin(limits, 1, "busy"), IsOk());
  ASSERT_THAT(Begin(limits, 6000, "debtor"), IsOk());
  quotas_.End("debtor", limits);
  for (int i = 0; i < 100'000; ++i) {
    const std::string tenant = "t" + std::to_string(i);
    ASSERT_THAT(Begin(limits, 1, tenant), IsOk());
    quotas_.End(tenant, limits);
    now_ += absl::Milliseconds(10);
  }
  EXPECT_LT(quotas_.size(), 2100u);
  EXPECT_THAT(Begin(limits, 1, "debtor"), StatusIs(kExhausted, ::testing::_));
  quotas_.End("busy", limits);
}

TEST_F(TenantQuotasTest, WithoutLimitsNothingIsKept) {
  EXPECT_THAT(Begin({}, 1'000'000), IsOk());
  EXPECT_EQ(quotas_.size(), 0u);
}

}  // namespace
}  // namespace tlm
