// What may be planned of a sequence while rows are on their way.
#include <gtest/gtest.h>

#include <utility>

#include "server/batching/sequence.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 1000;

TEST(SequenceAheadTest, IsDecodingWhileItsTokenIsDrawn) {
  Sequence sequence(GenerateRequest(Prompt(10), 3, UnreadStream(5)), 0);
  sequence.set_running(true);
  sequence.MarkLaunched(4, kContext);
  EXPECT_EQ(sequence.remaining(), 6);
  EXPECT_EQ(sequence.Room(), 5);
  sequence.MarkLaunched(6, kContext);
  EXPECT_EQ(sequence.state(), SequenceState::kDecoding);
  EXPECT_EQ(sequence.computed(), 10);
  EXPECT_EQ(sequence.target(), 11);
  EXPECT_EQ(sequence.RowsWanted(1), 1);
  EXPECT_EQ(sequence.Room(), 4);
  EXPECT_EQ(sequence.tokens().size(), 10);
  sequence.Append(7, kContext);
  EXPECT_EQ(sequence.state(), SequenceState::kDecoding);
  EXPECT_EQ(sequence.target(), 11);
  EXPECT_EQ(sequence.Room(), 5);
}

TEST(SequenceAheadTest, HasNothingLeftToPlanWhileItsLastTokenIsDrawn) {
  for (const bool by_context : {false, true}) {
    Sequence sequence(GenerateRequest(Prompt(10), by_context ? 100 : 1), 0);
    sequence.set_running(true);
    sequence.MarkLaunched(10, by_context ? 11 : kContext);
    EXPECT_EQ(sequence.remaining(), 0);
    EXPECT_EQ(sequence.state(), SequenceState::kPrefilling);
    EXPECT_EQ(sequence.LongestChunk(100, 100), 0);
    EXPECT_TRUE(sequence.Append(7, by_context ? 11 : kContext).has_value());
  }
}

TEST(SequenceAheadTest, WantsNoRowTwiceThatIsOnItsWay) {
  Sequence sequence(ForwardRequest(Prompt(20), {3, 4, 9, 15}, UnreadStream(4)), 0);
  sequence.MarkLaunched(5, kContext);
  EXPECT_EQ(sequence.Room(), 2);
  EXPECT_EQ(sequence.RowsWanted(5), 1);
  EXPECT_EQ(sequence.LongestChunk(100, 1), 10);
  EXPECT_EQ(sequence.WantedPosition(0), 3);  // not delivered yet
  sequence.MarkLaunched(11, kContext);
  EXPECT_EQ(sequence.remaining(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  EXPECT_TRUE(sequence.MarkRowDelivered().has_value());
}

TEST(SequenceAheadTest, PreemptedWhileItsTokenIsDrawnItComputesThatTooLater) {
  BlockPool pool(2);
  Sequence sequence(GenerateRequest(Prompt(10), 3), 0);
  ASSERT_TRUE(sequence.Grow(pool, 10));
  sequence.MarkLaunched(10, kContext);
  sequence.ReleaseBlocks(pool);
  EXPECT_EQ(sequence.remaining(), 11);
  EXPECT_EQ(sequence.cache_tokens(), 11);
  EXPECT_EQ(sequence.RowsWanted(10), 0);
  EXPECT_EQ(sequence.RowsWanted(11), 1);
  sequence.Append(7, kContext);
  EXPECT_EQ(sequence.remaining(), 11);
  EXPECT_EQ(sequence.RowsWanted(11), 1);
}

TEST(SequenceAheadTest, PreemptedWhileItsLastRowsAreOnTheirWayItWantsNothing) {
  BlockPool pool(2);
  Sequence forward(ForwardRequest(Prompt(20), {3, 15}, UnreadStream(4)), 0);
  ASSERT_TRUE(forward.Grow(pool, 16));
  forward.MarkLaunched(16, kContext);
  forward.ReleaseBlocks(pool);
  EXPECT_EQ(forward.remaining(), 0);
}

TEST(SequenceAheadTest, TwoTokensMayBeOnTheirWay) {
  Sequence sequence(GenerateRequest(Prompt(10), 3, UnreadStream(5)), 0);
  sequence.set_running(true);
  EXPECT_EQ(sequence.tokens_in_flight(), 0);
  sequence.MarkLaunched(10, kContext);
  EXPECT_EQ(sequence.tokens_in_flight(), 1);
  sequence.MarkLaunched(1, kContext);
  EXPECT_EQ(sequence.tokens_in_flight(), 2);
  EXPECT_EQ(sequence.target(), 12);
  EXPECT_EQ(sequence.Room(), 3);
  EXPECT_EQ(sequence.WantedPosition(0), 9);
  EXPECT_EQ(sequence.UnplannedPosition(0), 11);
  EXPECT_FALSE(sequence.Append(7, kContext).has_value());
  EXPECT_EQ(sequence.tokens_in_flight(), 1);
  EXPECT_EQ(sequence.state(), SequenceState::kDecoding);
  sequence.MarkLaunched(1, kContext);  // the third, which is the last
  EXPECT_EQ(sequence.tokens_in_flight(), 2);
  EXPECT_EQ(sequence.remaining(), 0);
  EXPECT_FALSE(sequence.Append(8, kContext).has_value());
  EXPECT_EQ(sequence.remaining(), 0);
  EXPECT_EQ(sequence.WantedPosition(0), 11);
  EXPECT_TRUE(sequence.Append(9, kContext).has_value());
}

TEST(SequenceAheadTest, PromptScoresOnTheirWayAreNoTokens) {
  Request request = GenerateRequest(Prompt(10), 3);
  request.generate()->score_prompt = true;
  Sequence sequence(std::move(request), 0);
  sequence.MarkLaunched(9, kContext);
  EXPECT_EQ(sequence.tokens_in_flight(), 0);
  sequence.MarkLaunched(1, kContext);
  EXPECT_EQ(sequence.tokens_in_flight(), 1);
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(sequence.MarkRowDelivered().has_value());
  EXPECT_EQ(sequence.tokens_in_flight(), 1);
  EXPECT_EQ(sequence.WantedPosition(0), 9);
}

TEST(SequenceAheadTest, AStepThatHasNotEndedIsNotToldAtTheEnd) {
  Sequence sequence(GenerateRequest(Prompt(10), 5), 0);
  sequence.MarkLaunched(10, kContext);
  sequence.MarkLaunched(1, kContext);
  sequence.MarkStepEnded();
  EXPECT_TRUE(sequence.in_flight());
  EXPECT_EQ(sequence.End(absl::OkStatus(), Finish(), absl::UnixEpoch()).steps, 1);
  sequence.MarkStepEnded();
  EXPECT_FALSE(sequence.in_flight());
}

TEST(SequenceAheadTest, ABranchSharesNothingThatItsParentComputesAlready) {
  for (const int64_t prompt : {128, 130}) {
    BlockPool pool(5);
    Sequence parent(ThreeOutputs(prompt), 0);
    ASSERT_TRUE(parent.Grow(pool, prompt + 1));
    parent.MarkLaunched(prompt, kContext);
    parent.MarkLaunched(1, kContext);
    const auto branches = parent.TakeBranches();
    EXPECT_EQ(branches[0]->tokens_in_flight(), 0);
    EXPECT_FALSE(branches[0]->in_flight());
    ASSERT_TRUE(branches[0]->ShareBlocks(parent, pool));
    EXPECT_EQ(branches[0]->computed(), prompt);
    EXPECT_EQ(static_cast<int64_t>(branches[0]->blocks().size()), BlocksFor(prompt));
    branches[0]->ReleaseBlocks(pool);
    parent.ReleaseBlocks(pool);
  }
}

}  // namespace
}  // namespace tlm
