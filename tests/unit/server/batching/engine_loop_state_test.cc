// A request that is ended from outside, in every state it can be in.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

// Brings one request into each state a sequence can be in, then ends it from outside.
enum class Where {
  kArrived,
  kWaiting,
  kPrefilling,
  kDecoding,
  kScoring,
  kPreempted,
  kParked,
  kParkedForward
};

struct InState {
  std::unique_ptr<LoopBench> bench;
  std::shared_ptr<CollectingReader> reader;
  std::vector<std::shared_ptr<CollectingReader>> others;
};

// Of a model that takes `max_launched` batches at a time: with 2, one of them computes while the
// request is ended.
InState BringTo(Where where, int max_launched, absl::Duration timeout,
                absl::Duration soft_timeout = absl::InfiniteDuration()) {
  LoopSetup setup;
  setup.max_launched = max_launched;
  setup.blocks = 4;
  setup.max_context = 256;
  setup.options.max_batch_tokens = 50;
  setup.options.max_prefill_tokens = 50;
  setup.options.max_running_requests = where == Where::kWaiting ? 1 : 4;
  InState state;
  state.bench = std::make_unique<LoopBench>(setup);
  LoopBench& bench = *state.bench;
  const auto submit = [&](Request request, int64_t capacity = TokenStream::kUnbounded) {
    request.deadline = bench.clock.Now() + timeout;
    request.soft_deadline = bench.clock.Now() + soft_timeout;
    state.reader = bench.Submit(std::move(request), capacity, /*paused=*/true);
  };
  switch (where) {
    case Where::kArrived:
      submit(GenerateRequest(Prompt(40), 100));
      break;
    case Where::kWaiting:
      state.others.push_back(bench.Submit(GenerateRequest(Prompt(40), 100)));
      bench.Step();
      submit(GenerateRequest(Prompt(40), 100));
      bench.Step();
      break;
    case Where::kPrefilling:
      submit(GenerateRequest(Prompt(120), 100));
      bench.Step();
      break;
    case Where::kDecoding:
      submit(GenerateRequest(Prompt(40), 100));
      bench.Step();
      bench.Step();
      break;
    case Where::kScoring:
      submit(ScoreRequestFor(Prompt(40), {2, 150, 3}));
      for (int i = 0; i < 3; ++i) bench.Step();
      break;
    case Where::kPreempted:
      state.others.push_back(bench.Submit(GenerateRequest(Prompt(20), 200)));
      bench.Step();
      submit(GenerateRequest(Prompt(50), 200));
      while (bench.stats.preemptions == 0) bench.Step();
      break;
    case Where::kParked:
      submit(GenerateRequest(Prompt(40), 100), /*capacity=*/3);
      bench.StepUntilNothingCanBeDone();
      break;
    case Where::kParkedForward:
      submit(ForwardRequest(Prompt(120), AllPositions(120), nullptr), /*capacity=*/3);
      bench.StepUntilNothingCanBeDone();
      break;
  }
  return state;
}

class EngineLoopStateTest : public ::testing::TestWithParam<std::tuple<Where, int>> {
 protected:
  static Where where() { return std::get<0>(GetParam()); }
  static InState Bring(absl::Duration timeout,
                       absl::Duration soft_timeout = absl::InfiniteDuration()) {
    return BringTo(where(), std::get<1>(GetParam()), timeout, soft_timeout);
  }
  // The rest goes on to the right end, and no block is lost.
  static void ExpectOthersUnharmed(InState& state) {
    state.bench->StepUntilNothingCanBeDone();
    for (const auto& other : state.others) {
      const bool preempting = where() == Where::kPreempted;
      const Request alone =
          preempting ? GenerateRequest(Prompt(20), 200) : GenerateRequest(Prompt(40), 100);
      EXPECT_EQ(other->collected().token_ids(), GenerateAlone(alone, 256));
    }
    EXPECT_EQ(state.bench->stats.kv_blocks_used, 0);
    EXPECT_EQ(state.bench->queue->waiting().requests, 0);
    EXPECT_EQ(state.bench->ended, static_cast<int64_t>(state.others.size()) + 1);
  }
};

TEST_P(EngineLoopStateTest, ADeadlineEndsItAtTheNextStep) {
  InState state = Bring(absl::Hours(1));
  state.bench->clock.Advance(absl::Hours(1));
  state.bench->Step();
  state.reader->TakeNow();
  const StreamEnd end = OnlyEnd(*state.reader);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
  const bool queued = where() == Where::kArrived || where() == Where::kWaiting;
  EXPECT_EQ(ReasonOf(end.status), queued ? "EXPIRED_IN_QUEUE" : "EXPIRED_RUNNING");
  ExpectOthersUnharmed(state);
}

TEST_P(EngineLoopStateTest, AReaderThatLetsGoEndsItAtTheNextStep) {
  InState state = Bring(absl::InfiniteDuration());
  state.reader->stream()->Detach();
  state.bench->Step();
  state.reader->TakeNow();
  EXPECT_EQ(OnlyEnd(*state.reader).status.code(), absl::StatusCode::kCancelled);
  ExpectOthersUnharmed(state);
}

TEST_P(EngineLoopStateTest, LettingGoAfterTheEndChangesNothing) {
  InState state = Bring(absl::InfiniteDuration());
  state.reader->Resume();
  state.bench->StepUntilNothingCanBeDone();
  EXPECT_TRUE(OnlyEnd(*state.reader).status.ok());
  state.reader->stream()->Detach();
  EXPECT_FALSE(state.bench->Step());
  state.reader->TakeNow();
  EXPECT_TRUE(OnlyEnd(*state.reader).status.ok());
  ExpectOthersUnharmed(state);
}

TEST_P(EngineLoopStateTest, ASoftLimitEndsAGenerationWell) {
  InState state = Bring(absl::Hours(2), absl::Hours(1));
  state.reader->TakeNow();
  const size_t tokens = state.reader->collected().tokens.size();
  state.bench->clock.Advance(absl::Hours(1));
  state.bench->Step();
  state.reader->TakeNow();
  const bool generates = where() != Where::kScoring && where() != Where::kParkedForward;
  EXPECT_EQ(state.reader->collected().ends.size(), generates ? 1 : 0);
  if (!generates) {
    state.reader->Resume();
    state.bench->StepUntilNothingCanBeDone();
    EXPECT_EQ(OnlyEnd(*state.reader).reason, FinishReason::kRowsComplete);
    return;
  }
  EXPECT_TRUE(OnlyEnd(*state.reader).status.ok());
  EXPECT_EQ(OnlyEnd(*state.reader).reason, FinishReason::kTimeLimit);
  EXPECT_EQ(state.reader->collected().starts.size(), 1);
  EXPECT_EQ(state.reader->collected().tokens.size(), tokens);
  ExpectOthersUnharmed(state);
}

TEST_P(EngineLoopStateTest, AHardLimitThatComesFirstIsWhatEndsIt) {
  InState state = Bring(absl::Hours(1), absl::Hours(2));
  state.bench->clock.Advance(absl::Hours(3));
  state.bench->Step();
  state.reader->TakeNow();
  EXPECT_EQ(OnlyEnd(*state.reader).status.code(), absl::StatusCode::kDeadlineExceeded);
  ExpectOthersUnharmed(state);
}

std::string NameOf(Where where) {
  switch (where) {
    case Where::kArrived:
      return "Arrived";
    case Where::kWaiting:
      return "Waiting";
    case Where::kPrefilling:
      return "Prefilling";
    case Where::kDecoding:
      return "Decoding";
    case Where::kScoring:
      return "Scoring";
    case Where::kPreempted:
      return "Preempted";
    case Where::kParked:
      return "Parked";
    case Where::kParkedForward:
      return "ParkedForward";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(
    States, EngineLoopStateTest,
    ::testing::Combine(::testing::Values(Where::kArrived, Where::kWaiting, Where::kPrefilling,
                                         Where::kDecoding, Where::kScoring, Where::kPreempted,
                                         Where::kParked, Where::kParkedForward),
                       ::testing::Values(1, 2)),
    [](const auto& info) {
      return NameOf(std::get<0>(info.param)) + (std::get<1>(info.param) > 1 ? "InFlight" : "");
    });

}  // namespace
}  // namespace tlm
