#include "server/batching/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SchedulerTest, DecodesComeBeforePrefillsWhateverTheirPriority) {
  SchedulerBench bench(Wide());
  Sequence* const decoding = bench.Add(GenerateRequest(Prompt(10), 100));
  bench.Step();
  Sequence* const prefilling = bench.Add(WithPriority(9, GenerateRequest(Prompt(1000), 100)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(decoding, 1), Of(prefilling, 511)));
  const StepPlan plan = bench.Step();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(decoding, 1), Of(prefilling, 489)));
  EXPECT_EQ(plan.chunks[1].first_position, 511);
  EXPECT_EQ(plan.chunks[1].num_rows, 1);
}

TEST(SchedulerTest, HoldsBackLongPromptsAlone) {
  SchedulerBench bench(WideBut(&SchedulerLimits::short_prompt_tokens, 40));
  Sequence* const decoding = bench.Add(GenerateRequest(Prompt(40), 100));
  bench.Step();
  Sequence* const first = bench.Add(GenerateRequest(Prompt(41), 1));
  Sequence* const second = bench.Add(GenerateRequest(Prompt(41), 1));
  Sequence* const brief = bench.Add(GenerateRequest(Prompt(40), 1));
  EXPECT_THAT(Chunks(bench.Step(30)), ElementsAre(Of(decoding, 1), Of(first, 30), Of(brief, 40)));
  EXPECT_EQ(second->state(), SequenceState::kWaiting);
  // Its end is not short for being what is left.
  EXPECT_THAT(Chunks(bench.Step(5)), ElementsAre(Of(decoding, 1), Of(first, 5)));
  // A step of decodes alone is one.
  Sequence* const late = bench.Add(GenerateRequest(Prompt(2), 1));
  EXPECT_THAT(Chunks(bench.Step(0)), ElementsAre(Of(decoding, 1)));
  EXPECT_THAT(Chunks(bench.Step(10)),
              ElementsAre(Of(decoding, 1), Of(first, 6), Of(second, 4), Of(late, 2)));
}

TEST(SchedulerTest, PrefillsByPriorityThenDeadlineThenArrival) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_prefill_tokens, 64));
  const auto add = [&](int32_t priority, absl::Time deadline) {
    Request request = WithPriority(priority, GenerateRequest(Prompt(64), 1));
    request.deadline = deadline;
    return bench.Add(std::move(request));
  };
  Sequence* const last = add(-1, absl::UnixEpoch());
  Sequence* const fourth = add(0, absl::InfiniteFuture());
  Sequence* const fifth = add(0, absl::InfiniteFuture());
  Sequence* const third = add(0, absl::UnixEpoch() + absl::Seconds(2));
  Sequence* const second = add(0, absl::UnixEpoch() + absl::Seconds(1));
  Sequence* const first = add(1, absl::InfiniteFuture());
  for (Sequence* const expected : {first, second, third, fourth, fifth, last}) {
    EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(expected, 64)));
  }
}

TEST(SchedulerTest, AMoreUrgentArrivalOvertakesARunningPrefill) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_prefill_tokens, 64));
  Sequence* const slow = bench.Add(GenerateRequest(Prompt(128), 1));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(slow, 64)));
  Sequence* const fast = bench.Add(WithPriority(1, GenerateRequest(Prompt(64), 1)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fast, 64)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(slow, 64)));
}

TEST(SchedulerTest, RunsNoMoreThanCanAllDecodeInOneStep) {
  SchedulerLimits few_rows = Wide();
  few_rows.max_logits_rows = 3;
  SchedulerLimits few_tokens = Wide();
  few_tokens.max_batch_tokens = 3;
  for (const SchedulerLimits& limits : {few_rows, few_tokens}) {
    SchedulerBench bench(limits);
    for (int i = 0; i < 10; ++i) bench.Add(GenerateRequest(Prompt(1), 1000));
    for (int i = 0; i < 5; ++i) bench.Step();
    EXPECT_EQ(bench.scheduler.running(), 3);
    EXPECT_EQ(bench.Step().chunks.size(), 3);
  }
}

TEST(SchedulerTest, CutsAForwardChunkToTheRowsLeft) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_logits_rows, 10));
  Sequence* const decoding = bench.Add(GenerateRequest(Prompt(5), 100));
  bench.Step();
  Sequence* const forward =
      bench.Add(ForwardRequest(Prompt(30), AllPositions(30), UnreadStream(100)));
  const StepPlan plan = bench.Step();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(decoding, 1), Of(forward, 9)));
  EXPECT_EQ(plan.chunks[1].num_rows, 9);
}

TEST(SchedulerTest, APrefillWithoutARowLeftWaitsWithItsLastToken) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_logits_rows, 4));
  bench.Add(ForwardRequest(Prompt(4), AllPositions(4), UnreadStream(100)));
  Sequence* const generate = bench.Add(GenerateRequest(Prompt(10), 100));
  const StepPlan plan = bench.Step();
  ASSERT_EQ(plan.chunks.size(), 2);
  EXPECT_EQ(plan.chunks[1].num_tokens, 9);
  EXPECT_EQ(plan.chunks[1].num_rows, 0);
  const StepPlan next = bench.Step();
  EXPECT_THAT(Chunks(next), ElementsAre(Of(generate, 1)));
  EXPECT_EQ(next.chunks[0].num_rows, 1);
}

TEST(SchedulerTest, ParksAGenerateWithAFullTokenStreamAndGoesOnWithOthers) {
  SchedulerBench bench(Wide());
  const auto stream = UnreadStream(2);
  Sequence* const slow = bench.Add(GenerateRequest(Prompt(20), 100, stream));
  Sequence* const other = bench.Add(GenerateRequest(Prompt(10), 100));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(slow, 20), Of(other, 10)));
  EXPECT_EQ(bench.scheduler.parked(), 0);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(slow, 1), Of(other, 1)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 1)));
  EXPECT_EQ(bench.scheduler.parked(), 1);
  EXPECT_EQ(bench.scheduler.running(), 2);
  stream->Take();
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(slow, 1), Of(other, 1)));
  EXPECT_EQ(bench.scheduler.parked(), 0);
}

TEST(SchedulerTest, TheCallerMayAskForLessPrefill) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_prefill_tokens, 50));
  Sequence* const decoding = bench.Add(GenerateRequest(Prompt(50), 100));
  bench.Step();
  Sequence* const first = bench.Add(GenerateRequest(Prompt(8), 100));
  Sequence* const second = bench.Add(GenerateRequest(Prompt(100), 100));
  EXPECT_THAT(Chunks(bench.Step(10)), ElementsAre(Of(decoding, 1), Of(first, 8), Of(second, 2)));
  EXPECT_THAT(Chunks(bench.Step(0)), ElementsAre(Of(decoding, 1), Of(first, 1)));
  EXPECT_THAT(Chunks(bench.Step(1000)), ElementsAre(Of(decoding, 1), Of(first, 1), Of(second, 50)));
  for (Sequence* const sequence : {decoding, first}) bench.End(*sequence);
  EXPECT_THAT(Chunks(bench.Step(0)), ElementsAre(Of(second, 48)));  // beside nothing
}

TEST(SchedulerTest, CountsWhatItPlans) {
  SchedulerBench bench(Wide());
  bench.Add(GenerateRequest(Prompt(50), 100));
  bench.Step();
  bench.Add(ForwardRequest(Prompt(30), {3, 20}, UnreadStream()));
  EXPECT_EQ(bench.scheduler.decoding(), 1);
  const StepPlan plan = bench.scheduler.Plan(25);
  EXPECT_EQ(plan.decodes, 1);
  EXPECT_EQ(plan.prefill_tokens, 21);
  EXPECT_EQ(plan.rows, 3);
}

TEST(SchedulerTest, ANewForwardWaitsForRoomInItsTokenStream) {
  SchedulerBench bench(Wide());
  const auto stream = UnreadStream(1);
  stream->PushRow({});
  Sequence* const forward = bench.Add(ForwardRequest(Prompt(20), {19}, stream));
  Sequence* const other = bench.Add(GenerateRequest(Prompt(10), 100));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 10)));
  EXPECT_EQ(forward->blocks().size(), 0);
  stream->Take();
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 1), Of(forward, 20)));
}

TEST(SchedulerTest, AdmissionTakesBlocksForThePromptAndKeepsOneForEachThatRuns) {
  SchedulerBench bench(Wide(), /*blocks=*/6);
  Sequence* const first = bench.Add(GenerateRequest(Prompt(65), 1000));  // 2 blocks
  EXPECT_EQ(bench.Step().chunks.size(), 1);
  EXPECT_EQ(bench.pool.used_blocks(), 2);
  // 4 are free: 4 for the prompt and one for `first` would be needed.
  Sequence* const large = bench.Add(GenerateRequest(Prompt(200), 1));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(first, 1)));
  // What fits does not overtake what does not.
  Sequence* const small = bench.Add(GenerateRequest(Prompt(5), 1));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(first, 1)));
  bench.scheduler.Remove(*first);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(large, 200), Of(small, 5)));
}

TEST(SchedulerTest, PreemptsTheNewestOfTheLowestPriority) {
  SchedulerBench bench(Wide(), /*blocks=*/9);
  const auto add = [&](int32_t priority) {
    return bench.Add(WithPriority(priority, GenerateRequest(Prompt(60), 1000)));
  };
  Sequence* const old_low = add(0);
  Sequence* const high = add(5);
  Sequence* const new_low = add(0);
  Sequence* const middle = add(3);
  bench.Step();
  ASSERT_EQ(bench.scheduler.running(), 4);
  ASSERT_EQ(bench.pool.free_blocks(), 5);
  while (bench.pool.free_blocks() > 0) {  // 64 tokens each, then 128
    bench.Step();
    if (bench.pool.free_blocks() == 1) {
      std::vector<BlockId> taken;
      ASSERT_TRUE(bench.pool.Allocate(1, &taken));
    }
  }
  ASSERT_EQ(bench.scheduler.preemptions(), 0);
  while (bench.scheduler.preemptions() == 0) bench.Step();
  EXPECT_EQ(new_low->preemptions(), 1);
  EXPECT_EQ(new_low->state(), SequenceState::kWaiting);
  EXPECT_EQ(new_low->computed(), 0);
  EXPECT_EQ(new_low->blocks().size(), 0);
  EXPECT_GT(new_low->generated_tokens(), 0);
  for (Sequence* const sequence : {old_low, high, middle}) {
    EXPECT_EQ(sequence->preemptions(), 0);
  }
}

TEST(SchedulerTest, TheJuniorSitsOutInsteadOfPreemptingItsSeniors) {
  SchedulerBench bench(Wide(), /*blocks=*/3);
  Sequence* const senior = bench.Add(GenerateRequest(Prompt(10), 1000));
  bench.Step();
  Sequence* const junior = bench.Add(GenerateRequest(Prompt(64), 1000));
  bench.Step();
  std::vector<BlockId> taken;
  ASSERT_TRUE(bench.pool.Allocate(1, &taken));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(senior, 1)));
  EXPECT_EQ(junior->state(), SequenceState::kDecoding);
  bench.pool.Release(taken[0]);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(senior, 1), Of(junior, 1)));
  EXPECT_EQ(bench.scheduler.preemptions(), 0);
}

TEST(SchedulerTest, AParkedSequenceGivesItsBlocksToADecode) {
  SchedulerBench bench(Wide(), /*blocks=*/3);
  const auto stream = UnreadStream(4);
  Sequence* const parked =
      bench.Add(WithPriority(9, ForwardRequest(Prompt(80), AllPositions(80), stream)));
  bench.Step();
  Sequence* const decoding = bench.Add(GenerateRequest(Prompt(3), 1000));
  bench.scheduler.Plan();  // does not fit beside, but the parked one blocks no other
  while (decoding->tokens().size() < 64) bench.Step();
  EXPECT_EQ(parked->preemptions(), 0);
  bench.Step();
  bench.Step();
  EXPECT_EQ(parked->preemptions(), 1);
  EXPECT_EQ(decoding->preemptions(), 0);
  stream->Take();
  bench.scheduler.Remove(*decoding);
  // Computed anew, but no row is asked for twice.
  const StepPlan plan = bench.Step();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(parked, 8)));
  EXPECT_EQ(plan.chunks[0].first_position, 0);
  EXPECT_EQ(plan.chunks[0].num_rows, 4);
}

TEST(SchedulerTest, AParkedSequenceGivesItsPlaceToAWaitingOne) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_running_requests, 1));
  Sequence* const parked = bench.Add(ForwardRequest(Prompt(80), AllPositions(80), UnreadStream(4)));
  bench.Step();
  Sequence* const waiting = bench.Add(GenerateRequest(Prompt(3), 1000));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(waiting, 3)));
  EXPECT_EQ(parked->preemptions(), 1);
}

Request WithOutputs(Request request, int64_t outputs) {
  for (int64_t i = 1; i < outputs; ++i) request.branch_streams.push_back(UnreadStream());
  return request;
}

TEST(SchedulerTest, KeepsPlacesForBranches) {
  SchedulerLimits limits = Wide();
  limits.max_running_requests = 4;
  limits.max_prefill_tokens = 10;
  SchedulerBench bench(limits);
  Sequence* const parent = bench.Add(WithOutputs(GenerateRequest(Prompt(20), 100), 3));
  Sequence* const small = bench.Add(GenerateRequest(Prompt(5), 100));
  bench.Add(GenerateRequest(Prompt(5), 100));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 10)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 10)));
  const std::vector<Sequence*> branches = bench.TakeNewBranches();
  ASSERT_EQ(branches.size(), 2);
  EXPECT_EQ(bench.scheduler.running(), 3);
  EXPECT_THAT(Chunks(bench.Step()),
              ElementsAre(Of(parent, 1), Of(branches[0], 1), Of(branches[1], 1), Of(small, 5)));
  EXPECT_EQ(bench.scheduler.running(), 4);
  EXPECT_EQ(bench.scheduler.waiting(), 1);
}

TEST(SchedulerTest, ARequestForMoreOutputsThanPlacesIsAdmittedAllTheSame) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_logits_rows, 2));
  Sequence* const other = bench.Add(GenerateRequest(Prompt(5), 2));
  Sequence* const parent = bench.Add(WithOutputs(GenerateRequest(Prompt(20), 4), 4));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 5)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 1)));  // it waits for all the places
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 20)));
  const std::vector<Sequence*> branches = bench.TakeNewBranches();
  EXPECT_EQ(bench.scheduler.running(), 2);
  EXPECT_EQ(bench.scheduler.waiting(), 2);
  for (int i = 0; i < 2; ++i) bench.Step();
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 1), Of(branches[0], 1)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(branches[1], 21), Of(branches[2], 21)));
}

TEST(SchedulerTest, AdmissionKeepsABlockForEachBranch) {
  SchedulerBench bench(Wide(), /*blocks=*/6);
  Sequence* const other = bench.Add(GenerateRequest(Prompt(5), 100));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 5)));
  // 5 are free; 3 for the prompt, 2 for branches and one for `other` would be needed.
  Sequence* const parent = bench.Add(WithOutputs(GenerateRequest(Prompt(130), 2), 3));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(other, 1)));
  bench.scheduler.Remove(*other);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 130)));
  EXPECT_EQ(bench.scheduler.running(), 3);
  EXPECT_EQ(bench.pool.used_blocks(), 5);
}

TEST(SchedulerTest, ABranchWithoutABlockWaitsInThePlaceOfItsArrival) {
  SchedulerBench bench(WideBut(&SchedulerLimits::max_prefill_tokens, 64), /*blocks=*/2);
  Sequence* const parent = bench.Add(WithOutputs(GenerateRequest(Prompt(80), 2), 2));
  bench.Step();
  Sequence* const later = bench.Add(GenerateRequest(Prompt(5), 2));
  bench.Step();
  const std::vector<Sequence*> branches = bench.TakeNewBranches();
  EXPECT_EQ(branches[0]->state(), SequenceState::kWaiting);
  EXPECT_TRUE(bench.copies().empty());
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(parent, 1)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(branches[0], 64)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(branches[0], 17)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(later, 5)));
}

TEST(SchedulerTest, AdmitsAScoreWithTheBlocksOfItsLongestContinuation) {
  SchedulerBench bench(Wide(), /*blocks=*/3);
  Sequence* const scored = bench.Add(ScoreRequestFor(Prompt(64), {2, 130, 3}));
  EXPECT_THAT(Chunks(bench.Step()), IsEmpty());
  EXPECT_EQ(bench.scheduler.waiting(), 1);
  bench.scheduler.Remove(*scored);
  Sequence* const fits = bench.Add(ScoreRequestFor(Prompt(64), {2, 129, 3}));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fits, 64)));
  EXPECT_EQ(bench.pool.used_blocks(), 3);
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fits, 1)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fits, 64)));  // as many rows as a step has
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fits, 64)));
  EXPECT_THAT(Chunks(bench.Step()), ElementsAre(Of(fits, 2)));
  EXPECT_EQ(bench.pool.used_blocks(), 0);
}

}  // namespace
}  // namespace tlm
