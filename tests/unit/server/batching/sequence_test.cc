#include "server/batching/sequence.h"

#include <gtest/gtest.h>

#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 1000;

TEST(SequenceTest, ComputesThePromptThenOneTokenAfterTheOther) {
  Sequence sequence(GenerateRequest(Prompt(10), 3), 0);
  EXPECT_EQ(sequence.state(), SequenceState::kWaiting);
  sequence.set_running(true);
  EXPECT_EQ(sequence.state(), SequenceState::kPrefilling);
  EXPECT_EQ(sequence.remaining(), 10);
  EXPECT_EQ(sequence.RowsWanted(9), 0);
  EXPECT_EQ(sequence.RowsWanted(10), 1);

  sequence.MarkComputed(10);
  EXPECT_FALSE(sequence.Append(7, kContext).has_value());
  EXPECT_EQ(sequence.state(), SequenceState::kDecoding);
  EXPECT_EQ(sequence.target(), 11);
  EXPECT_EQ(sequence.tokens().back(), 7);
  EXPECT_EQ(sequence.generated_tokens(), 1);
}

TEST(SequenceTest, EndsWithTheLastTokenAskedFor) {
  Sequence sequence(GenerateRequest(Prompt(4), 2), 0);
  EXPECT_FALSE(sequence.Append(1, kContext).has_value());
  const auto finish = sequence.Append(2, kContext);
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kLength);
  EXPECT_EQ(finish->matched_token, -1);
}

TEST(SequenceTest, EndsWhenPromptAndOutputFillTheContext) {
  Sequence sequence(GenerateRequest(Prompt(4), 100), 0);
  EXPECT_FALSE(sequence.Append(1, 6).has_value());
  const auto finish = sequence.Append(2, 6);
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kContextLength);
}

TEST(SequenceTest, EosAndStopIdsEndItWithTheTokenThatMatched) {
  for (const bool eos : {true, false}) {
    Request request = GenerateRequest(Prompt(4), 100);
    request.generate->stop.eos_token_ids = {5};
    request.generate->stop.stop_token_ids = {6, 7};
    Sequence sequence(std::move(request), 0);
    EXPECT_FALSE(sequence.Append(4, kContext).has_value());
    const auto finish = sequence.Append(eos ? 5 : 7, kContext);
    ASSERT_TRUE(finish.has_value());
    EXPECT_EQ(finish->reason, eos ? FinishReason::kEos : FinishReason::kStopToken);
    EXPECT_EQ(finish->matched_token, eos ? 5 : 7);
  }
}

TEST(SequenceTest, NoIdEndsItAmongTheFirstMinNewTokens) {
  Request request = GenerateRequest(Prompt(4), 100);
  request.generate->stop.min_new_tokens = 2;
  request.generate->stop.eos_token_ids = {5};
  Sequence sequence(std::move(request), 0);
  EXPECT_FALSE(sequence.Append(5, kContext).has_value());
  EXPECT_FALSE(sequence.Append(5, kContext).has_value());
  const auto finish = sequence.Append(5, kContext);
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kEos);
}

TEST(SequenceTest, AMatchCountsBeforeTheLength) {
  Request request = GenerateRequest(Prompt(4), 1);
  request.generate->stop.eos_token_ids = {5};
  Sequence sequence(std::move(request), 0);
  EXPECT_EQ(sequence.Append(5, 5)->reason, FinishReason::kEos);
}

TEST(SequenceTest, AChunkWithoutARowStopsBeforeTheLastToken) {
  Sequence sequence(GenerateRequest(Prompt(10), 3), 0);
  EXPECT_EQ(sequence.LongestChunk(100, 1), 10);
  EXPECT_EQ(sequence.LongestChunk(100, 0), 9);
  EXPECT_EQ(sequence.LongestChunk(6, 0), 6);
  sequence.MarkComputed(9);
  EXPECT_EQ(sequence.LongestChunk(100, 0), 0);
}

TEST(SequenceTest, ForwardIsCutWhereItsRowsNoLongerFit) {
  Sequence sequence(ForwardRequest(Prompt(20), {3, 4, 9, 15}, UnreadStream(4)), 0);
  EXPECT_EQ(sequence.target(), 16);  // what follows the last wanted row is not computed
  EXPECT_EQ(sequence.LongestChunk(100, 4), 16);
  EXPECT_EQ(sequence.LongestChunk(100, 3), 15);
  EXPECT_EQ(sequence.LongestChunk(100, 2), 9);
  EXPECT_EQ(sequence.LongestChunk(100, 1), 4);
  EXPECT_EQ(sequence.LongestChunk(100, 0), 3);
  EXPECT_EQ(sequence.LongestChunk(7, 4), 7);
  EXPECT_EQ(sequence.RowsWanted(3), 0);
  EXPECT_EQ(sequence.RowsWanted(4), 1);
  EXPECT_EQ(sequence.RowsWanted(16), 4);
}

TEST(SequenceTest, ForwardEndsWithItsLastRowAndAsksForNoneTwice) {
  BlockPool pool(1);
  Sequence sequence(ForwardRequest(Prompt(20), {3, 9}, UnreadStream(2)), 0);
  ASSERT_TRUE(sequence.Grow(pool, 10));
  sequence.MarkComputed(4);
  EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  sequence.ReleaseBlocks(pool);  // preempted
  EXPECT_EQ(sequence.computed(), 0);
  EXPECT_EQ(sequence.RowsWanted(9), 0);
  EXPECT_EQ(sequence.RowsWanted(10), 1);
  const auto finish = sequence.MarkRowDelivered();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kRowsComplete);
}

TEST(SequenceTest, GrowsByWholeBlocksOrNotAtAll) {
  BlockPool pool(3);
  Sequence sequence(GenerateRequest(Prompt(65), 3), 0);
  EXPECT_FALSE(sequence.Grow(pool, 3 * 64 + 1));
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_FALSE(sequence.admitted());
  ASSERT_TRUE(sequence.Grow(pool, 65));
  EXPECT_EQ(sequence.blocks().size(), 2);
  ASSERT_TRUE(sequence.Grow(pool, 128));
  EXPECT_EQ(pool.free_blocks(), 1);
  sequence.ReleaseBlocks(pool);
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_TRUE(sequence.admitted());
}

TEST(SequenceTest, TheEndTellsWhereTheTimeWent) {
  const absl::Time arrival = absl::UnixEpoch();
  Request request = GenerateRequest(Prompt(70), 3);
  request.arrival = arrival;
  BlockPool pool(2);
  Sequence sequence(std::move(request), 0);
  ASSERT_TRUE(sequence.Grow(pool, 70));
  EXPECT_EQ(sequence.MarkStarted(arrival + absl::Seconds(1)), absl::Seconds(1));
  sequence.MarkComputed(70);
  sequence.MarkFirstToken(arrival + absl::Seconds(3));
  sequence.CountPreemption();
  const StreamEnd end =
      sequence.End(absl::OkStatus(), {.reason = FinishReason::kLength}, arrival + absl::Seconds(7));
  EXPECT_EQ(end.queue_time, absl::Seconds(1));
  EXPECT_EQ(end.prefill_time, absl::Seconds(2));
  EXPECT_EQ(end.decode_time, absl::Seconds(4));
  EXPECT_EQ(end.computed_prompt_tokens, 70);
  EXPECT_EQ(end.kv_blocks_peak, 2);
  EXPECT_EQ(end.preemptions, 1);
  EXPECT_EQ(sequence.state(), SequenceState::kFinished);
}

TEST(SequenceTest, AnEndBeforeTheStartIsAllQueueTime) {
  Request request = GenerateRequest(Prompt(70), 3);
  request.arrival = absl::UnixEpoch();
  Sequence sequence(std::move(request), 0);
  const StreamEnd end =
      sequence.End(absl::CancelledError(), Finish(), absl::UnixEpoch() + absl::Seconds(2));
  EXPECT_EQ(end.queue_time, absl::Seconds(2));
  EXPECT_EQ(end.prefill_time, absl::ZeroDuration());
  EXPECT_EQ(end.decode_time, absl::ZeroDuration());
  EXPECT_EQ(end.computed_prompt_tokens, 0);
}

}  // namespace
}  // namespace tlm
