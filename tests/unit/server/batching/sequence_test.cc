#include "server/batching/sequence.h"

#include <gtest/gtest.h>

#include <utility>

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

TEST(SequenceTest, ForcedTokensTakeThePlaceOfADraftThatNoStepHasComputed) {
  Sequence sequence(GenerateRequest(Prompt(4), 20), 0);
  sequence.set_running(true);
  sequence.MarkComputed(4);
  EXPECT_FALSE(sequence.Append(1, kContext).has_value());
  sequence.SetDraft({2, 5, 6});
  EXPECT_FALSE(sequence.AppendForced(2, kContext).has_value());
  EXPECT_FALSE(sequence.AppendForced(3, kContext).has_value());
  EXPECT_TRUE(sequence.draft().empty());
  EXPECT_EQ(sequence.state(), SequenceState::kDecoding);
  EXPECT_EQ(sequence.remaining(), 3);
}

// Outputs of a prompt of ten tokens, and the index of the token that ends them.
struct Output {
  std::vector<int32_t> tokens;
  StopCriteria stop;
  int64_t max_context = kContext;
  std::optional<size_t> end = {};
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;
};

class OutputEndTest : public ::testing::TestWithParam<Output> {
 protected:
  static Request With(std::vector<int32_t> generated) {
    Request request = GenerateRequest(Prompt(10), 0);
    request.generate()->stop = GetParam().stop;
    request.generate()->generated = std::move(generated);
    return request;
  }
  static void ExpectEnd(const std::optional<Finish>& finish) {
    ASSERT_TRUE(finish.has_value());
    EXPECT_EQ(finish->reason, GetParam().reason);
    EXPECT_EQ(finish->matched_token, GetParam().matched_token);
  }
};

TEST_P(OutputEndTest, IsTheSameWhereverItsTokensWereDrawn) {
  const auto& [tokens, stop, max_context, end, reason, matched] = GetParam();
  EXPECT_EQ(EndOfGenerated(With(tokens), max_context), end);
  Sequence drawn(With({}), 0);
  EXPECT_FALSE(drawn.FinishedBefore(max_context).has_value());
  std::vector<int32_t> so_far;
  for (size_t i = 0; i < tokens.size(); ++i) {
    so_far.push_back(tokens[i]);
    const std::optional<Finish> finish = drawn.Append(tokens[i], max_context);
    const std::optional<Finish> resumed = Sequence(With(so_far), 0).FinishedBefore(max_context);
    if (end == i) {
      ExpectEnd(finish);
      return ExpectEnd(resumed);
    }
    EXPECT_FALSE(finish.has_value());
    EXPECT_FALSE(resumed.has_value());
  }
}

Output EndsAt(size_t end, std::vector<int32_t> tokens, StopCriteria stop, FinishReason reason,
              int32_t matched_token = -1, int64_t max_context = kContext) {
  return {std::move(tokens), std::move(stop), max_context, end, reason, matched_token};
}

std::vector<Output> Outputs() {
  using enum FinishReason;
  const auto up_to = [](int64_t length, EndingIds ids = {}, int64_t least = 0) {
    return StopCriteria{
        .max_new_tokens = length, .min_new_tokens = least, .ending_ids = std::move(ids)};
  };
  return {Output{{1, 2}, up_to(3)}, EndsAt(2, {1, 2, 3}, up_to(3), kLength),
          EndsAt(2, {1, 2, 3, 4}, up_to(3), kLength),
          EndsAt(1, {1, 2, 3}, up_to(9), kContextLength, -1, 12),
          EndsAt(0, {1}, up_to(9), kContextLength, -1, 10),
          EndsAt(1, {4, 5, 3}, up_to(9, EndingIds({5})), kEos, 5),
          EndsAt(1, {4, 7}, up_to(9, EndingIds({}, {6, 7})), kStopToken, 7),
          // An id ends nothing among the first min_new_tokens, and counts before the lengths.
          EndsAt(2, {1, 5, 5, 2}, up_to(9, EndingIds({5}), 2), kEos, 5),
          EndsAt(0, {5}, up_to(1, EndingIds({5})), kEos, 5, 11)};
}
INSTANTIATE_TEST_SUITE_P(Ends, OutputEndTest, ::testing::ValuesIn(Outputs()));

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

TEST(SequenceTest, PromptScoresAreRowsBeforeTheFirstDraw) {
  BlockPool pool(1);
  Request request = GenerateRequest(Prompt(10), 3);
  request.generate()->score_prompt = true;
  Sequence sequence(std::move(request), 0);
  ASSERT_TRUE(sequence.Grow(pool, 10));
  EXPECT_EQ(sequence.RowsWanted(10), 10);
  EXPECT_EQ(sequence.LongestChunk(100, 4), 4);
  sequence.MarkComputed(4);
  for (int64_t position = 0; position < 4; ++position) {
    EXPECT_EQ(sequence.WantedPosition(0), position);
    EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  }
  sequence.ReleaseBlocks(pool);  // preempted: none is asked for again
  EXPECT_EQ(sequence.RowsWanted(4), 0);
  EXPECT_EQ(sequence.RowsWanted(10), 6);
  EXPECT_EQ(sequence.WantedPosition(5), 9);
}

TEST(SequenceTest, APromptOfOneTokenHasNothingToScore) {
  Request request = GenerateRequest(Prompt(1), 3);
  request.generate()->score_prompt = true;
  const Sequence sequence(std::move(request), 0);
  EXPECT_EQ(sequence.RowsWanted(1), 1);
  EXPECT_EQ(sequence.WantedPosition(0) + 1, sequence.target());
}

TEST(SequenceTest, CountsTokensForPenaltiesOnlyWhenThereAreAny) {
  for (const bool penalties : {true, false}) {
    Request request = GenerateRequest({3, 4, 3}, 5);
    request.generate()->sampling.presence_penalty = penalties ? 0.5f : 0.0f;
    Sequence sequence(std::move(request), 0);
    for (const int32_t token : {4, 5, 5}) sequence.Append(token, kContext);
    EXPECT_EQ(sequence.history().seen().size(), penalties ? 3 : 0);
    if (!penalties) continue;
    EXPECT_TRUE(sequence.history().seen().at(3).in_prompt);
    EXPECT_EQ(sequence.history().seen().at(4).in_output, 1);
    EXPECT_EQ(sequence.history().seen().at(5).in_output, 2);
  }
}

TEST(SequenceTest, ContinuationsFollowThePromptOneAfterTheOther) {
  BlockPool pool(4);
  Request request = ScoreRequestFor(Prompt(70), {1, 3, 1, 60});
  const auto continuations = request.score()->continuations;
  Sequence sequence(std::move(request), 0);
  EXPECT_EQ(sequence.target(), 70);
  EXPECT_EQ(sequence.cache_tokens(), 70 + 59);  // the last token of the longest is not computed
  EXPECT_EQ(sequence.input_tokens(), 70 + 65);
  ASSERT_TRUE(sequence.Grow(pool, sequence.cache_tokens()));
  sequence.set_running(true);
  EXPECT_EQ(sequence.RowsWanted(70), 1);
  sequence.MarkComputed(70);
  EXPECT_FALSE(sequence.MarkRowDelivered().has_value());

  EXPECT_EQ(sequence.continuation(), 1);
  EXPECT_EQ(sequence.computed(), 70);
  EXPECT_EQ(sequence.target(), 72);
  EXPECT_EQ(sequence.RowsWanted(2), 2);
  EXPECT_EQ(sequence.tokens()[71], continuations[1][1]);
  EXPECT_EQ(sequence.state(), SequenceState::kPrefilling);
  sequence.MarkComputed(2);
  EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  EXPECT_FALSE(sequence.MarkRowDelivered().has_value());

  EXPECT_EQ(sequence.continuation(), 3);
  EXPECT_EQ(sequence.target(), 129);
  sequence.MarkComputed(10);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  sequence.ReleaseBlocks(pool);  // preempted
  EXPECT_EQ(sequence.continuation(), 3);
  EXPECT_EQ(sequence.RowsWanted(80), 0);
  EXPECT_EQ(sequence.RowsWanted(129), 49);
  for (int i = 0; i < 48; ++i) EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  const auto finish = sequence.MarkRowDelivered();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kRowsComplete);
}

TEST(SequenceTest, ContinuationsOfOneTokenNeedThePromptAlone) {
  Sequence sequence(ScoreRequestFor(Prompt(70), {1, 1}), 0);
  EXPECT_EQ(sequence.cache_tokens(), 70);
  EXPECT_TRUE(sequence.MarkRowDelivered().has_value());
}

TEST(SequenceTest, BranchesAreTheFurtherOutputs) {
  Request request = ThreeOutputs(10);
  request.generate()->sampling.repetition_penalty = 1.5f;
  request.priority = 7;
  const auto streams = request.branch_streams;
  Sequence parent(std::move(request), 40);
  parent.MarkStarted(absl::UnixEpoch());
  EXPECT_EQ(parent.branches(), 2);
  const auto branches = parent.TakeBranches();
  EXPECT_EQ(parent.branches(), 0);
  ASSERT_EQ(branches.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const Sequence& branch = *branches[i];
    EXPECT_EQ(&branch.stream(), streams[i].get());
    EXPECT_EQ(branch.number(), 41 + static_cast<int64_t>(i));
    EXPECT_EQ(branch.request_number(), 40);
    EXPECT_EQ(branch.request().generate()->output_index, 6 + i);
    EXPECT_EQ(branch.request().priority, 7);
    EXPECT_EQ(branch.branches(), 0);
    EXPECT_TRUE(branch.started());
    EXPECT_FALSE(branch.queued());
    EXPECT_EQ(branch.history().seen().size(), parent.history().seen().size());
    EXPECT_EQ(std::vector(branch.tokens().begin(), branch.tokens().end()), Prompt(10));
  }
}

TEST(SequenceTest, ABranchWhoseTokenStreamWasTakenIsLeftOut) {
  Request request = ThreeOutputs(10);
  const auto streams = request.branch_streams;
  Sequence parent(std::move(request), 0);
  EXPECT_EQ(parent.TakeBranchStream(0), streams[0]);
  EXPECT_EQ(parent.branches(), 1);
  const auto branches = parent.TakeBranches();
  ASSERT_EQ(branches.size(), 1);
  EXPECT_EQ(branches[0]->request().generate()->output_index, 7);
  EXPECT_EQ(branches[0]->number(), 2);
}

TEST(SequenceTest, ABranchSharesFullBlocksAndOwnsTheRest) {
  BlockPool pool(4);
  Sequence parent(ThreeOutputs(130), 0);
  ASSERT_TRUE(parent.Grow(pool, 130));
  parent.MarkComputed(130);
  const auto branches = parent.TakeBranches();
  ASSERT_TRUE(branches[0]->ShareBlocks(parent, pool));
  EXPECT_EQ(branches[0]->computed(), 130);
  EXPECT_EQ(branches[0]->blocks()[0], parent.blocks()[0]);
  EXPECT_EQ(branches[0]->blocks()[1], parent.blocks()[1]);
  EXPECT_NE(branches[0]->blocks()[2], parent.blocks()[2]);
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_FALSE(branches[1]->ShareBlocks(parent, pool));
  EXPECT_EQ(branches[1]->blocks().size(), 0);
  EXPECT_EQ(branches[1]->computed(), 0);
  parent.ReleaseBlocks(pool);
  EXPECT_EQ(pool.free_blocks(), 1);
  branches[0]->ReleaseBlocks(pool);
  EXPECT_EQ(pool.free_blocks(), 4);
  const StreamEnd end = branches[0]->End(absl::OkStatus(), Finish(), absl::UnixEpoch());
  EXPECT_EQ(end.kv_blocks_peak, 1);
  EXPECT_EQ(end.computed_prompt_tokens, 0);
  EXPECT_EQ(end.steps, 0);
}

TEST(SequenceTest, ABranchOfWholeBlocksTakesNone) {
  BlockPool pool(3);
  Sequence parent(ThreeOutputs(128), 0);
  ASSERT_TRUE(parent.Grow(pool, 128));
  parent.MarkComputed(128);
  const auto branches = parent.TakeBranches();
  for (const auto& branch : branches) ASSERT_TRUE(branch->ShareBlocks(parent, pool));
  EXPECT_EQ(pool.free_blocks(), 1);
  branches[0]->Append(1, kContext);
  EXPECT_TRUE(branches[0]->Grow(pool, 129));
  EXPECT_FALSE(branches[1]->Grow(pool, 129));
  for (const auto& branch : branches) branch->ReleaseBlocks(pool);
  parent.ReleaseBlocks(pool);
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_EQ(branches[0]->End(absl::OkStatus(), Finish(), absl::UnixEpoch()).kv_blocks_peak, 1);
}

TEST(SequenceTest, TokensThatAnotherReplicaDrewCountAsGenerated) {
  Request request = GenerateRequest(Prompt(10), 5);
  request.generate()->generated = {7, 8, 7};
  request.generate()->stop.ending_ids = EndingIds({5});
  request.generate()->sampling.presence_penalty = 1;
  request.generate()->stop.min_new_tokens = 4;
  Sequence sequence(std::move(request), 0);
  EXPECT_EQ(sequence.prompt_tokens(), 10);
  EXPECT_EQ(sequence.generated_tokens(), 3);
  EXPECT_EQ(sequence.target(), 13);
  EXPECT_EQ(sequence.RowsWanted(12), 0);
  EXPECT_EQ(sequence.RowsWanted(13), 1);
  EXPECT_EQ(sequence.history().seen().at(7).in_output, 2);
  EXPECT_EQ(sequence.BannedTokens(13).size(), 1);
  EXPECT_TRUE(sequence.BannedTokens(14).empty());
  EXPECT_FALSE(sequence.FinishedBefore(kContext).has_value());
  EXPECT_FALSE(sequence.Append(9, kContext).has_value());
  EXPECT_EQ(sequence.Append(9, kContext)->reason, FinishReason::kLength);
}

TEST(SequenceTest, GrowsByWholeBlocksOrNotAtAll) {
  BlockPool pool(3);
  Sequence sequence(GenerateRequest(Prompt(65), 3), 0);
  EXPECT_FALSE(sequence.Grow(pool, 3 * 64 + 1));
  EXPECT_EQ(pool.free_blocks(), 3);
  for (const int64_t tokens : {65, 128}) {
    ASSERT_TRUE(sequence.Grow(pool, tokens));
    EXPECT_EQ(sequence.blocks().size(), 2);
    EXPECT_EQ(pool.free_blocks(), 1);
  }
  sequence.ReleaseBlocks(pool);
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_EQ(sequence.blocks().size(), 0);
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
