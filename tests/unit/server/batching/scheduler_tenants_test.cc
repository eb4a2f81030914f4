#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Request Of(const std::string& tenant, Request request) {
  request.tenant = tenant;
  return request;
}

SchedulerLimits Narrow() {
  SchedulerLimits limits = Wide();
  limits.max_prefill_tokens = 64;
  return limits;
}

// Prefill tokens of each tenant's chunks.
void CountPrefill(const StepPlan& plan, std::map<std::string, int64_t>* tokens) {
  for (const Chunk& chunk : plan.chunks) {
    if (!chunk.decode) (*tokens)[chunk.sequence->request().tenant] += chunk.num_tokens;
  }
}

TEST(SchedulerTenantsTest, AFloodOfOneTenantDelaysAnotherByNoMoreThanItsShare) {
  SchedulerBench bench(Narrow());
  for (int i = 0; i < 50; ++i) bench.Add(Of("flood", GenerateRequest(Prompt(64), 1)));
  bench.Step();
  Sequence* const other = bench.Add(Of("other", GenerateRequest(Prompt(64), 1)));
  bench.Step();
  bench.Step();
  EXPECT_EQ(other->generated_tokens(), 1);
}

TEST(SchedulerTenantsTest, TenantsThatAlwaysWantMoreGetTheSameWhateverTheirSizes) {
  SchedulerBench bench(Narrow());
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 3000; ++i) bench.Add(Of("small", GenerateRequest(Prompt(7), 1)));
  for (int i = 0; i < 60; ++i) bench.Add(Of("large", GenerateRequest(Prompt(500), 1)));
  for (int step = 0; step < 300; ++step) {
    CountPrefill(bench.Step(), &tokens);
    EXPECT_LE(std::abs(tokens["small"] - tokens["large"]), 2 * 64);
  }
  EXPECT_EQ(tokens["small"] + tokens["large"], 300 * 64);
}

TEST(SchedulerTenantsTest, DecodesCountToo) {
  SchedulerBench bench(Narrow());
  for (int i = 0; i < 10; ++i) bench.Add(Of("decodes", GenerateRequest(Prompt(6), 1000)));
  bench.Step();
  for (int i = 0; i < 100; ++i) bench.Step();
  // Both want prefill now; the one that decodes pays for it with every step.
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 5; ++i) {
    bench.Add(Of("decodes", GenerateRequest(Prompt(1000), 1)));
    bench.Add(Of("prefills", GenerateRequest(Prompt(1000), 1)));
  }
  for (int i = 0; i < 60; ++i) CountPrefill(bench.Step(), &tokens);
  const int64_t decoded = 60 * 10 * TenantCounters::kDecodeWeight;
  EXPECT_NEAR(static_cast<double>(tokens["prefills"]),
              static_cast<double>(tokens["decodes"] + decoded), 2 * 64);
}

TEST(SchedulerTenantsTest, ATenantThatWasAwayHasNoCredit) {
  SchedulerBench bench(Narrow());
  bench.Add(Of("away", GenerateRequest(Prompt(64), 1)));
  for (int i = 0; i < 200; ++i) bench.Add(Of("busy", GenerateRequest(Prompt(64), 1)));
  for (int i = 0; i < 100; ++i) bench.Step();
  for (int i = 0; i < 50; ++i) bench.Add(Of("away", GenerateRequest(Prompt(64), 1)));
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 20; ++i) CountPrefill(bench.Step(), &tokens);
  EXPECT_NEAR(static_cast<double>(tokens["away"]), static_cast<double>(tokens["busy"]), 64);
}

TEST(SchedulerTenantsTest, AParkedSequenceKeepsNoTenantInTheRace) {
  SchedulerBench bench(Narrow());
  // Its counter stays small for ever; newcomers must not begin there.
  bench.Add(Of("parked", ForwardRequest(Prompt(60), AllPositions(60), UnreadStream(1))));
  bench.Step();
  for (int i = 0; i < 200; ++i) bench.Add(Of("busy", GenerateRequest(Prompt(64), 1)));
  for (int i = 0; i < 100; ++i) bench.Step();
  for (int i = 0; i < 50; ++i) bench.Add(Of("new", GenerateRequest(Prompt(64), 1)));
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 20; ++i) CountPrefill(bench.Step(), &tokens);
  EXPECT_NEAR(static_cast<double>(tokens["new"]), static_cast<double>(tokens["busy"]), 64);
}

TEST(SchedulerTenantsTest, PriorityComesBeforeFairness) {
  SchedulerBench bench(Narrow());
  for (int i = 0; i < 10; ++i) {
    Request request = GenerateRequest(Prompt(64), 1);
    request.priority = 1;
    bench.Add(Of("urgent", std::move(request)));
    bench.Add(Of("fair", GenerateRequest(Prompt(64), 1)));
  }
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 10; ++i) CountPrefill(bench.Step(), &tokens);
  EXPECT_EQ(tokens["urgent"], 640);
  EXPECT_EQ(tokens["fair"], 0);
}

TEST(SchedulerTenantsTest, WithinATenantTheEarliestDeadlineGoesFirst) {
  SchedulerBench bench(Narrow());
  const auto add = [&](const std::string& tenant, int64_t seconds) {
    Request request = GenerateRequest(Prompt(64), 1);
    request.deadline = absl::UnixEpoch() + absl::Seconds(seconds);
    return bench.Add(Of(tenant, std::move(request)));
  };
  Sequence* const a_late = add("a", 9);
  Sequence* const a_early = add("a", 5);
  Sequence* const b_late = add("b", 7);
  Sequence* const b_early = add("b", 6);
  for (Sequence* const expected : {a_early, b_early, b_late, a_late}) {
    EXPECT_THAT(bench.Step().admitted, ElementsAre(expected));
  }
}

// The door: a request that does not fit beside what runs.
class SchedulerDoorTest : public ::testing::Test {
 protected:
  SchedulerBench bench_{Wide(), /*blocks=*/10};
  // 2 blocks, and none for longer than the test.
  Sequence* const running_ = bench_.Add(Of("first", GenerateRequest(Prompt(65), 60)));
};

TEST_F(SchedulerDoorTest, SmallOnesOfOthersDoNotStarveOneThatDoesNotFit) {
  bench_.Step();
  Sequence* const huge = bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));  // all 10
  int64_t others = 0;
  for (int i = 0; huge->generated_tokens() == 0; ++i) {
    ASSERT_LT(i, 100);
    // Of tenants that have had nothing, and in a hurry.
    Request request = GenerateRequest(Prompt(5), 30);
    request.deadline = absl::UnixEpoch();
    bench_.Add(Of("tenant " + std::to_string(i), std::move(request)));
    for (const Sequence* admitted : bench_.Step().admitted) others += admitted != huge;
  }
  EXPECT_LE(others, 1);
}

TEST_F(SchedulerDoorTest, HigherPriorityAndTheTenantsOwnUrgencyStillGoFirst) {
  bench_.Step();
  bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
  Request urgent = Of("huge", GenerateRequest(Prompt(5), 1));
  urgent.deadline = absl::UnixEpoch();
  Sequence* const own = bench_.Add(std::move(urgent));
  Request high = Of("other", GenerateRequest(Prompt(5), 1));
  high.priority = 1;
  Sequence* const higher = bench_.Add(std::move(high));
  bench_.Add(Of("other", GenerateRequest(Prompt(5), 1)));
  EXPECT_THAT(bench_.Step().admitted, ElementsAre(higher, own));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
}

TEST_F(SchedulerDoorTest, TheDoorIsOpenAgainWhenItsHolderIsRemoved) {
  bench_.Step();
  Sequence* const huge = bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  bench_.Step();
  Sequence* const other = bench_.Add(Of("other", GenerateRequest(Prompt(5), 1)));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
  bench_.End(*huge);
  EXPECT_THAT(bench_.Step().admitted, ElementsAre(other));
}

TEST_F(SchedulerDoorTest, PrefillsGoOnBehindAClosedDoor) {
  bench_.Step();
  Sequence* const slow = bench_.Add(Of("slow", GenerateRequest(Prompt(100), 1)));
  EXPECT_THAT(Chunks(bench_.Step(64)), ElementsAre(std::pair(running_, 1), std::pair(slow, 64)));
  bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  EXPECT_THAT(Chunks(bench_.Step(64)), ElementsAre(std::pair(running_, 1), std::pair(slow, 36)));
}

}  // namespace
}  // namespace tlm
