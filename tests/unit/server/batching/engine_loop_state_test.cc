// A request that is ended from outside, in every state it can be in.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "model/base/errors.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

// A state that a sequence can be in, and how a request comes into it.
using Submit = std::function<void(Request, int64_t capacity)>;
struct State {
  const char* name;
  // Submits the request under test and steps until it is there; perhaps others before it.
  void (*bring)(LoopBench& bench, const Submit& submit);
  bool started = true;
  bool generates = true;
  int64_t others = 0;
  int64_t max_running_requests = 4;
};

constexpr int64_t kAny = TokenStream::kUnbounded;
Request Generate(int64_t prompt, int64_t tokens = 100) {
  return GenerateRequest(Prompt(prompt), tokens);
}
void Steps(LoopBench& bench, int count) {
  for (int i = 0; i < count; ++i) bench.Step();
}

const State kStates[] = {
    {"Arrived", [](LoopBench&, const Submit& submit) { submit(Generate(40), kAny); }, false},
    {"Waiting",
     [](LoopBench& bench, const Submit& submit) {
       bench.Submit(Generate(40));
       Steps(bench, 1);
       submit(Generate(40), kAny);
       Steps(bench, 1);
     },
     false, true, 1, 1},
    {"Prefilling",
     [](LoopBench& bench, const Submit& submit) {
       submit(Generate(120), kAny);
       Steps(bench, 1);
     }},
    {"Decoding",
     [](LoopBench& bench, const Submit& submit) {
       submit(Generate(40), kAny);
       Steps(bench, 2);
     }},
    {"Scoring",
     [](LoopBench& bench, const Submit& submit) {
       submit(ScoreRequestFor(Prompt(40), {2, 150, 3}), kAny);
       Steps(bench, 3);
     },
     true, false},
    {"Preempted",
     [](LoopBench& bench, const Submit& submit) {
       bench.Submit(Generate(20, 200));
       Steps(bench, 1);
       submit(Generate(50, 200), kAny);
       while (bench.stats.preemptions == 0) bench.Step();
     },
     true, true, 1},
    {"Parked",
     [](LoopBench& bench, const Submit& submit) {
       submit(Generate(40), /*capacity=*/3);
       bench.StepUntilNothingCanBeDone();
     }},
    {"ParkedForward",
     [](LoopBench& bench, const Submit& submit) {
       submit(ForwardRequest(Prompt(120), AllPositions(120), nullptr), /*capacity=*/3);
       bench.StepUntilNothingCanBeDone();
     },
     true, false},
};

// The request is ended from outside. With a model that takes two batches at a time, one of them
// computes meanwhile.
class EngineLoopStateTest : public ::testing::TestWithParam<std::tuple<State, int>> {
 protected:
  static const State& state() { return std::get<0>(GetParam()); }
  void Bring(absl::Duration timeout, absl::Duration soft_timeout = absl::InfiniteDuration()) {
    bench_.emplace(
        LoopSetup{.blocks = 4, .max_context = 256, .max_launched = std::get<1>(GetParam())}
            .With(&EngineOptions::max_batch_tokens, 50)
            .With(&EngineOptions::max_prefill_tokens, 50)
            .With(&EngineOptions::max_running_requests, state().max_running_requests));
    state().bring(*bench_, [&](Request request, int64_t capacity) {
      request.deadline = bench_->clock.Now() + timeout;
      request.soft_deadline = bench_->clock.Now() + soft_timeout;
      reader_ = bench_->Submit(std::move(request), capacity, /*paused=*/true);
    });
  }
  void Step() {
    bench_->Step();
    reader_->TakeNow();
  }
  void ExpectOthersUnharmed() {
    bench_->Finish(/*others=*/{reader_});
    EXPECT_EQ(bench_->ended, state().others + 1);
  }

  std::optional<LoopBench> bench_;
  Reader reader_;
};

TEST_P(EngineLoopStateTest, ADeadlineEndsItAtTheNextStep) {
  // Also with a soft limit that has passed since.
  for (const absl::Duration soft : {absl::InfiniteDuration(), absl::Hours(2)}) {
    Bring(absl::Hours(1), soft);
    bench_->clock.Advance(soft == absl::Hours(2) ? absl::Hours(3) : absl::Hours(1));
    Step();
    const StreamEnd end = OnlyEnd(*reader_);
    EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(ReasonOf(end.status), state().started ? "EXPIRED_RUNNING" : "EXPIRED_IN_QUEUE");
    EXPECT_EQ(reader_->collected().starts.empty(), !state().started) << "it is not begun in vain";
    ExpectOthersUnharmed();
  }
}

TEST_P(EngineLoopStateTest, AReaderThatLetsGoEndsItAtTheNextStep) {
  Bring(absl::InfiniteDuration());
  reader_->stream()->Detach();
  Step();
  EXPECT_EQ(OnlyEnd(*reader_).status.code(), absl::StatusCode::kCancelled);
  ExpectOthersUnharmed();
}

TEST_P(EngineLoopStateTest, LettingGoAfterTheEndChangesNothing) {
  Bring(absl::InfiniteDuration());
  reader_->Resume();
  bench_->Finish();
  reader_->stream()->Detach();
  EXPECT_FALSE(bench_->Step());
  bench_->Finish();
}

TEST_P(EngineLoopStateTest, ASoftLimitEndsAGenerationWell) {
  // It counts, too, if the deadline has passed since.
  for (const absl::Duration passed : {absl::Hours(1), absl::Hours(3)}) {
    Bring(absl::Hours(2), absl::Hours(1));
    reader_->TakeNow();
    const size_t tokens = reader_->collected().tokens.size();
    bench_->clock.Advance(passed);
    Step();
    if (!state().generates && passed < absl::Hours(2)) {
      EXPECT_TRUE(reader_->collected().ends.empty());
      reader_->Resume();
      bench_->Finish();
      continue;
    }
    const StreamEnd end = OnlyEnd(*reader_);
    EXPECT_EQ(end.status.ok(), state().generates);
    if (state().generates) {
      EXPECT_EQ(end.reason, FinishReason::kTimeLimit);
      EXPECT_EQ(reader_->collected().starts.size(), 1);
    }
    EXPECT_EQ(reader_->collected().tokens.size(), tokens);
    ExpectOthersUnharmed();
  }
}

INSTANTIATE_TEST_SUITE_P(States, EngineLoopStateTest,
                         ::testing::Combine(::testing::ValuesIn(kStates), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) > 1 ? "InFlight" : "");
                         });

}  // namespace
}  // namespace tlm
