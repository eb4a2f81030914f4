#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Plans made while the step before them computes.
class SchedulerAheadTest : public ::testing::Test {
 protected:
  // Begins a step and plans the next one before the first one's results are there.
  StepPlan PlanAfter(const StepPlan& plan) {
    bench_.Launch(plan);
    StepPlan ahead = bench_.scheduler.Plan();
    bench_.TakeResults(plan);
    return ahead;
  }

  static SchedulerLimits Limits() {
    SchedulerLimits limits = Wide();
    limits.max_batch_tokens = 100;
    limits.max_prefill_tokens = 100;
    return limits;
  }
  SchedulerBench bench_{Limits(), /*blocks=*/40};
};

TEST_F(SchedulerAheadTest, PlansADecodeBehindTheDrawThatIsOnItsWay) {
  Sequence* const sequence = bench_.Add(GenerateRequest(Prompt(10), 100));
  const StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(sequence, 1)));
  EXPECT_EQ(ahead.chunks[0].first_position, 10);
  EXPECT_TRUE(ahead.chunks[0].decode);
}

TEST_F(SchedulerAheadTest, DoesNotPlanWhatEndsWithTheRowsOnTheirWay) {
  bench_.Add(GenerateRequest(Prompt(10), 1));
  bench_.Add(ForwardRequest(Prompt(20), {19}, UnreadStream()));
  const StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  EXPECT_THAT(Chunks(ahead), IsEmpty());
  EXPECT_EQ(bench_.scheduler.running(), 0);
}

TEST_F(SchedulerAheadTest, ATokenStreamIsFullWithTheRowsOnTheirWay) {
  const auto stream = UnreadStream(1);
  Sequence* const sequence = bench_.Add(GenerateRequest(Prompt(10), 100, stream));
  StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  EXPECT_THAT(Chunks(ahead), IsEmpty());
  EXPECT_EQ(bench_.scheduler.parked(), 1);
  stream->Take();
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(sequence, 1)));
}

TEST_F(SchedulerAheadTest, TopUpTakesOutWhatEndedMeanwhile) {
  Sequence* const ending = bench_.Add(GenerateRequest(Prompt(10), 100));
  Sequence* const other = bench_.Add(GenerateRequest(Prompt(10), 100));
  StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  EXPECT_EQ(ahead.decodes, 2);
  bench_.End(*ending);
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(other, 1)));
  EXPECT_EQ(ahead.decodes, 1);
  EXPECT_EQ(ahead.rows, 1);
}

TEST_F(SchedulerAheadTest, TopUpTakesOutAnAdmittedOneThatEnded) {
  Sequence* const first = bench_.Add(GenerateRequest(Prompt(10), 100));
  const StepPlan plan = bench_.scheduler.Plan();
  Sequence* const second = bench_.Add(GenerateRequest(Prompt(10), 100));
  StepPlan ahead = PlanAfter(plan);
  EXPECT_THAT(ahead.admitted, ElementsAre(second));
  bench_.End(*second);
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(ahead.admitted, IsEmpty());
  EXPECT_EQ(ahead.prefill_tokens, 0);
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(first, 1)));
}

TEST_F(SchedulerAheadTest, TopUpAddsArrivalsAsFarAsTheStepHasTokens) {
  Sequence* const decoding = bench_.Add(GenerateRequest(Prompt(10), 100));
  StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  Sequence* const first = bench_.Add(GenerateRequest(Prompt(60), 100));
  Sequence* const second = bench_.Add(GenerateRequest(Prompt(60), 100));
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(decoding, 1), Of(first, 60), Of(second, 39)));
  EXPECT_THAT(ahead.admitted, ElementsAre(first, second));
  bench_.scheduler.TopUp(ahead);  // nothing is left
  EXPECT_EQ(ahead.chunks.size(), 3);
}

TEST_F(SchedulerAheadTest, TopUpKeepsToThePrefillTokensThePlanWasGiven) {
  Sequence* const long_one = bench_.Add(GenerateRequest(Prompt(500), 100));
  StepPlan plan = bench_.scheduler.Plan(30);
  Sequence* const arrival = bench_.Add(GenerateRequest(Prompt(10), 100));
  bench_.scheduler.TopUp(plan);
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(long_one, 30)));
  bench_.End(*long_one);
  bench_.scheduler.TopUp(plan);
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(arrival, 10)));
}

TEST_F(SchedulerAheadTest, TopUpAddsTheDecodesOfNewBranches) {
  Request request = GenerateRequest(Prompt(10), 100);
  for (int i = 0; i < 2; ++i) request.branch_streams.push_back(UnreadStream());
  Sequence* const parent = bench_.Add(std::move(request));
  StepPlan ahead = PlanAfter(bench_.scheduler.Plan());
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(parent, 1)));
  const std::vector<Sequence*> branches = bench_.TakeNewBranches();
  ASSERT_EQ(branches.size(), 2);
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(Of(parent, 1), Of(branches[0], 1), Of(branches[1], 1)));
}

TEST_F(SchedulerAheadTest, TopUpPreemptsOnlyParkedOnes) {
  SchedulerBench bench(Wide(), /*blocks=*/4);
  const auto stream = UnreadStream(1);
  Sequence* const senior = bench.Add(WithPriority(9, GenerateRequest(Prompt(64), 1000, stream)));
  Sequence* const junior = bench.Add(GenerateRequest(Prompt(60), 1000));
  bench.Step();
  StepPlan plan = bench.scheduler.Plan();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(junior, 1)));
  std::vector<BlockId> taken;
  ASSERT_TRUE(bench.pool.Allocate(bench.pool.available_blocks(), &taken));
  stream->Take();
  bench.scheduler.TopUp(plan);  // the junior's block is in the step
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(junior, 1)));
  bench.CarryOut(plan);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(senior, 1)));
  EXPECT_EQ(junior->preemptions(), 1);
}

TEST_F(SchedulerAheadTest, ASequenceMayBePreemptedWithItsRowOnItsWay) {
  SchedulerBench bench(Wide(), /*blocks=*/3);
  Sequence* const senior = bench.Add(GenerateRequest(Prompt(60), 1000));
  Sequence* const junior = bench.Add(GenerateRequest(Prompt(50), 1000));
  bench.Step();
  while (senior->computed() < 63) bench.Step();
  std::vector<BlockId> taken;
  ASSERT_TRUE(bench.pool.Allocate(1, &taken));
  const StepPlan plan = bench.scheduler.Plan();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(senior, 1), Of(junior, 1)));
  bench.Launch(plan);
  EXPECT_THAT(Chunks(bench.scheduler.Plan()), ElementsAre(Of(senior, 1)));
  const int64_t generated = junior->generated_tokens();
  bench.TakeResults(plan);
  EXPECT_EQ(junior->preemptions(), 1);
  EXPECT_EQ(junior->generated_tokens(), generated + 1);
  bench.pool.Release(taken[0]);
  bench.End(*senior);
  EXPECT_THAT(Chunks(bench.scheduler.Plan()),
              ElementsAre(Of(junior, 50 + junior->generated_tokens())));
}

}  // namespace
}  // namespace tlm
