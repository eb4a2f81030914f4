#include "server/batching/tenant_queues.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tlm {
namespace {

using Counter = TenantCounters::Counter;

// Gives `tokens` to whichever has had least.
Counter* Serve(TenantCounters& counters, const std::vector<Counter*>& wanting, int64_t tokens) {
  counters.BeginStep(wanting);
  Counter* const next = *std::min_element(
      wanting.begin(), wanting.end(),
      [](const Counter* a, const Counter* b) { return a->tokens() < b->tokens(); });
  next->Charge(tokens, 0);
  return next;
}

TEST(TenantCountersTest, WeighsDecodesTwiceAsMuchAsPrefill) {
  TenantCounters counters;
  Counter& counter = counters.Hold("a");
  counter.Charge(10, 3);
  EXPECT_EQ(counter.tokens(), 16);
}

TEST(TenantCountersTest, TenantsThatAlwaysWantMoreStayWithinATurn) {
  TenantCounters counters;
  const std::vector<Counter*> all = {&counters.Hold("a"), &counters.Hold("b"), &counters.Hold("c")};
  for (int i = 0; i < 1000; ++i) {
    Serve(counters, all, 1 + i * 37 % 100);
    const auto [least, most] = std::minmax({all[0]->tokens(), all[1]->tokens(), all[2]->tokens()});
    ASSERT_LE(most - least, 100);
  }
}

TEST(TenantCountersTest, ANewTenantBeginsWhereTheOthersAre) {
  TenantCounters counters;
  Counter& a = counters.Hold("a");
  Counter& b = counters.Hold("b");
  for (int i = 0; i < 100; ++i) Serve(counters, {&a, &b}, 10);
  Counter& late = counters.Hold("late");
  counters.BeginStep(std::vector<Counter*>{&a, &b, &late});
  EXPECT_EQ(late.tokens(), std::min(a.tokens(), b.tokens()));
}

TEST(TenantCountersTest, ATenantThatWantedNothingForAWhileHasNoCredit) {
  TenantCounters counters;
  Counter& a = counters.Hold("a");
  Counter& b = counters.Hold("b");
  Serve(counters, {&a, &b}, 10);
  for (int i = 0; i < 100; ++i) Serve(counters, {&a}, 10);
  int64_t to_b = 0;
  for (int i = 0; i < 100; ++i) to_b += Serve(counters, {&a, &b}, 10) == &b;
  EXPECT_NEAR(static_cast<double>(to_b), 50, 1);
}

TEST(TenantCountersTest, WhatIsHadInLeisureIsNotHeldAgainstTheOthers) {
  TenantCounters counters;
  Counter& a = counters.Hold("a");
  counters.BeginStep(std::vector<Counter*>{&a});
  a.Charge(0, 1000);  // decodes on, and no tenant wants prefill
  Counter& b = counters.Hold("b");
  counters.BeginStep(std::vector<Counter*>{&b});
  EXPECT_EQ(b.tokens(), a.tokens());
}

TEST(TenantCountersTest, ComingBackDoesNotErase) {
  TenantCounters counters;
  Counter* const a = &counters.Hold("a");
  Counter& b = counters.Hold("b");
  Serve(counters, {a, &b}, 10);
  a->Charge(500, 0);
  const int64_t before = a->tokens();
  counters.Release("a");
  Serve(counters, {&b}, 10);
  EXPECT_EQ(counters.Hold("a").tokens(), before);
}

TEST(TenantCountersTest, StepsWithoutDemandChangeNothing) {
  TenantCounters counters;
  Counter& a = counters.Hold("a");
  Serve(counters, {&a}, 100);
  for (int i = 0; i < 10; ++i) counters.BeginStep({});
  Counter& b = counters.Hold("b");
  counters.BeginStep(std::vector<Counter*>{&a, &b});
  EXPECT_EQ(b.tokens(), 100);
}

TEST(TenantCountersTest, RemembersABoundedNumberOfIdleTenants) {
  TenantCounters counters;
  Counter& a = counters.Hold("a");
  for (size_t i = 0; i < 3 * TenantCounters::kMaxIdle; ++i) {
    const std::string tenant = std::to_string(i);
    Serve(counters, {&a, &counters.Hold(tenant)}, 10);
    counters.Release(tenant);
  }
  EXPECT_EQ(counters.size(), TenantCounters::kMaxIdle + 1);
}

}  // namespace
}  // namespace tlm
