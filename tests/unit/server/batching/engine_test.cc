#include "server/batching/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/clock.h"
#include "model/base/error_details.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/fake_clock.h"
#include "tests/support/scripted_model.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 512;
constexpr BatchLimits kLimits{
    .max_tokens = 512, .max_sequences = 64, .max_logits_rows = 64, .max_context = kContext};

// Holds the engine thread inside Forward while closed.
class Gate {
 public:
  void PassThrough() {
    MutexLock lock(&mutex_);
    ++arrived_;
    changed_.NotifyAll();
    while (closed_) changed_.Wait(&mutex_);
  }
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    arrived_ = 0;
  }
  // Waits until the engine stands at the closed gate.
  void WaitForArrival() {
    MutexLock lock(&mutex_);
    while (arrived_ == 0) changed_.Wait(&mutex_);
  }
  void Open() {
    MutexLock lock(&mutex_);
    closed_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool closed_ = false;
  int arrived_ = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    model_.set_on_forward([this](const Batch&) { gate_.PassThrough(); });
  }
  ~EngineTest() override { gate_.Open(); }

  void Start(const EngineOptions& options = {}, Clock& clock = *Clock::Monotonic()) {
    auto engine = Engine::Start(model_, options, clock);
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }

  std::shared_ptr<CollectingReader> Submit(Request request,
                                           int64_t capacity = TokenStream::kUnbounded,
                                           bool paused = false) {
    auto reader = CollectingReader::Create(capacity, paused);
    request.stream = reader->stream();
    EXPECT_THAT(engine_->Submit(std::move(request)), IsOk());
    return reader;
  }

  Gate gate_;
  ScriptedModel model_{kLimits, 64};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, GeneratesWhatTheModelSays) {
  Start();
  const auto reader = Submit(GenerateRequest(Prompt(100), 20));
  const Collected collected = reader->WaitForEnd();
  EXPECT_EQ(collected.token_ids(), GenerateAlone(GenerateRequest(Prompt(100), 20), kContext));
  EXPECT_EQ(collected.starts.size(), 1);
  EXPECT_THAT(collected.ends[0].status, IsOk());
  EXPECT_GE(collected.ends[0].queue_time, absl::ZeroDuration());
}

TEST_F(EngineTest, RefusesOptionsTheModelCannotServe) {
  const auto start = [this](EngineOptions options) {
    return Engine::Start(model_, options, *Clock::Monotonic()).status();
  };
  EXPECT_THAT(start({.max_batch_tokens = 513}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_batch_tokens is 513, the model's batches have at most 512")));
  EXPECT_THAT(start({.max_batch_tokens = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_batch_tokens is 0")));
  EXPECT_THAT(start({.max_prefill_tokens = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_prefill_tokens")));
  EXPECT_THAT(start({.max_running_requests = 65}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 64 sequences")));
  EXPECT_THAT(start({.max_queued_requests = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_queued_requests")));
  EXPECT_THAT(start({.max_queue_time = absl::ZeroDuration()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_queue_time is 0")));
  EXPECT_THAT(start({.max_decode_stretch = 0.5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_decode_stretch is 0.5")));
  ScriptedModel small(kLimits, 7);
  EXPECT_THAT(Engine::Start(small, {}, *Clock::Monotonic()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("7 blocks of 64 tokens, one sequence of max_context 512")));
}

TEST_F(EngineTest, RefusesWhatItCannotRun) {
  Start();
  const auto submit = [this](Request request) { return engine_->Submit(std::move(request)); };
  const auto invalid = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(submit(GenerateRequest({}, 1)), invalid("no tokens"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(513), 1)), invalid("513 tokens, the limit is 512"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(5), 0)), invalid("max_new_tokens is 0"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {}, UnreadStream(1))), invalid("no position"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {2, 2}, UnreadStream(1))), invalid("not ascend"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {5}, UnreadStream(1))), invalid("length 5"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {4}, UnreadStream(0))), invalid("no rows"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(5), 1, UnreadStream(0))), invalid("no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {1}, UnreadStream(9))), invalid("bounded"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {})), invalid("no continuation"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {2, 0})), invalid("continuation 1 has no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor({}, {2})), invalid("no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(500), {12, 13})),
              invalid("the prompt and continuation 1 have 513 tokens, the limit is 512"));
  Request many = GenerateRequest(Prompt(5), 1);
  for (int i = 0; i < 64; ++i) many.branch_streams.push_back(UnreadStream());
  EXPECT_THAT(submit(std::move(many)),
              invalid("65 outputs are wanted of one prompt, max_running_requests is 64"));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::ZeroDuration()));
}

TEST_F(EngineTest, SubmitMovesIfAndOnlyIfItReturnsOk) {
  Start({.max_running_requests = 1, .max_queued_requests = 1});
  EXPECT_THAT(engine_->CheckOpen(), IsOk());
  gate_.Close();
  Submit(GenerateRequest(Prompt(5), 2));
  gate_.WaitForArrival();  // admitted
  EXPECT_THAT(engine_->CheckOpen(), IsOk());
  Request second = GenerateRequest(Prompt(6), 2);
  EXPECT_THAT(engine_->Submit(std::move(second)), IsOk());
  EXPECT_EQ(second.stream, nullptr);

  Request third = GenerateRequest(Prompt(7), 2);
  const absl::Status full = engine_->Submit(std::move(third));
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(full).has_value());
  EXPECT_EQ(ReasonOf(engine_->CheckOpen()), "QUEUE_FULL");
  EXPECT_EQ(third.prompt, Prompt(7));
  EXPECT_NE(third.stream, nullptr);

  third.deadline = Clock::Monotonic()->Now() - absl::Seconds(1);
  const absl::Status late = engine_->Submit(std::move(third));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(late), "EXPIRED_IN_QUEUE");
  EXPECT_NE(third.stream, nullptr);
}

TEST_F(EngineTest, DrainRefusesNewWorkAndFinishesTheOld) {
  Start({.max_running_requests = 1});
  gate_.Close();
  const auto running = Submit(GenerateRequest(Prompt(5), 10));
  const auto queued = Submit(GenerateRequest(Prompt(6), 10));
  gate_.WaitForArrival();
  EXPECT_FALSE(engine_->Stats().draining);
  engine_->Drain();
  engine_->Drain();
  EXPECT_TRUE(engine_->Stats().draining);
  EXPECT_EQ(ReasonOf(engine_->CheckOpen()), "DRAINING");
  const absl::Status refused = engine_->Submit(GenerateRequest(Prompt(5), 10));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "DRAINING");
  EXPECT_FALSE(engine_->WaitUntilIdle(absl::Milliseconds(1)));
  gate_.Open();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::InfiniteDuration()));
  EXPECT_THAT(running->WaitForEnd().ends[0].status, IsOk());
  EXPECT_THAT(queued->WaitForEnd().ends[0].status, IsOk());
  EXPECT_EQ(engine_->Stats().finished_requests, 2);
}

TEST_F(EngineTest, StopEndsEverythingInFlightOnce) {
  Start({.max_running_requests = 3});
  gate_.Close();
  std::vector<std::shared_ptr<CollectingReader>> readers;
  for (uint32_t i = 0; i < 10; ++i) readers.push_back(Submit(GenerateRequest(Prompt(50, i), 400)));
  readers.push_back(Submit(ForwardRequest(Prompt(50), AllPositions(50), nullptr), 2, true));
  gate_.WaitForArrival();
  engine_->Drain();  // nothing submitted from here on can make Stop's work less
  std::thread stopper([this] { engine_->Stop(); });
  gate_.Open();
  stopper.join();
  engine_->Stop();
  for (const auto& reader : readers) {
    reader->TakeNow();
    const Collected collected = reader->collected();
    ASSERT_EQ(collected.ends.size(), 1);
    const absl::Status& status = collected.ends[0].status;
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kUnavailable) << status;
  }
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::ZeroDuration()));
  EXPECT_EQ(engine_->Stats().kv_blocks_used, 0);
  EXPECT_EQ(engine_->Stats().waiting_requests, 0);
  EXPECT_EQ(engine_->Stats().finished_requests, 11);
  EXPECT_EQ(engine_->Submit(GenerateRequest(Prompt(5), 1)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, StopIsUnavailableForWhatRuns) {
  Start();
  gate_.Close();
  const auto running = Submit(GenerateRequest(Prompt(5), 400));
  gate_.WaitForArrival();
  const auto queued = Submit(GenerateRequest(Prompt(5), 400));
  std::thread stopper([this] { engine_->Stop(); });
  // Stop has begun once new work is refused; the queue takes some until then.
  while (engine_->Submit(GenerateRequest(Prompt(5), 400)).code() !=
         absl::StatusCode::kUnavailable) {
    std::this_thread::yield();
  }
  gate_.Open();
  stopper.join();
  EXPECT_EQ(queued->WaitForEnd().ends[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(running->WaitForEnd().ends[0].status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, AnIdleEngineStopsAndStreamsOutliveIt) {
  Start();
  const auto reader = Submit(GenerateRequest(Prompt(5), 1));
  reader->WaitForEnd();
  engine_.reset();
  reader->stream()->Take();
  reader->stream()->Detach();
  EXPECT_EQ(reader->collected().tokens.size(), 1);
}

TEST_F(EngineTest, StopIsNoticedWhereverTheEngineThreadIs) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Start();
    if (i % 4 == 0) Submit(GenerateRequest(Prompt(5), 2));
    // Spread over the time in which the thread starts, looks around and falls asleep.
    const absl::Time stop_at = absl::Now() + absl::Nanoseconds(random() % 150000);
    while (absl::Now() < stop_at) {
    }
    engine_.reset();
  }
}

// Every engine below has nothing to compute when it must notice something.

TEST_F(EngineTest, AParkedForwardGoesOnWhenItsReaderTakes) {
  Start();
  const auto reader = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  for (size_t rows = 20; rows <= 60; rows += 20) {
    reader->WaitForCalls(static_cast<int64_t>(rows) / 20);
    reader->TakeNow();
    EXPECT_EQ(reader->collected().rows.size(), rows);
  }
  EXPECT_THAT(reader->collected().ends[0].status, IsOk());
}

TEST_F(EngineTest, AParkedForwardEndsWhenItsReaderLetsGo) {
  Start();
  const auto reader = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  reader->WaitForCalls(1);
  reader->stream()->Detach();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  reader->TakeNow();
  EXPECT_EQ(reader->collected().ends[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_->Stats().kv_blocks_used, 0);
}

TEST_F(EngineTest, AParkedForwardEndsAtItsDeadline) {
  FakeClock clock;
  Start({}, clock);
  Request request = ForwardRequest(Prompt(60), AllPositions(60), nullptr);
  request.deadline = clock.Now() + absl::Milliseconds(20);
  const auto reader = Submit(std::move(request), /*capacity=*/1, /*paused=*/true);
  reader->WaitForCalls(1);
  clock.Advance(absl::Milliseconds(20));  // nobody is told: the engine wakes by itself
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  reader->TakeNow();
  EXPECT_EQ(reader->collected().ends[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  engine_.reset();
}

TEST_F(EngineTest, AParkedForwardDoesNotKeepOthersWaiting) {
  Start({.max_running_requests = 1});
  const auto parked = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  parked->WaitForCalls(1);
  const auto other = Submit(GenerateRequest(Prompt(60), 10));
  EXPECT_THAT(other->WaitForEnd().ends[0].status, IsOk());
  parked->Resume();
  EXPECT_EQ(parked->WaitForEnd().rows.size(), 60);
}

TEST_F(EngineTest, StatsTellWhatIsGoingOn) {
  Start({.max_running_requests = 1});
  EXPECT_EQ(engine_->Stats().kv_blocks_total, 64);
  gate_.Close();
  Submit(GenerateRequest(Prompt(70), 2));
  gate_.WaitForArrival();
  Submit(GenerateRequest(Prompt(30), 2));
  const EngineStats stuck = engine_->Stats();
  EXPECT_TRUE(stuck.busy);
  EXPECT_LE(stuck.last_progress, Clock::Monotonic()->Now());
  EXPECT_EQ(stuck.waiting_requests, 1);
  EXPECT_EQ(stuck.waiting_tokens, 30);
  EXPECT_EQ(engine_->Stats().last_progress, stuck.last_progress);
  gate_.Open();
  ASSERT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  const EngineStats after = engine_->Stats();
  EXPECT_GT(after.last_progress, stuck.last_progress);
  EXPECT_EQ(after.finished_requests, 2);
  EXPECT_EQ(after.prefill_tokens, 100);
  EXPECT_EQ(after.decode_tokens, 2);
  EXPECT_EQ(after.waiting_tokens, 0);
  EXPECT_THAT(after.fault, IsOk());
}

TEST_F(EngineTest, AFaultIsRecordedAndTheEngineGoesOn) {
  Start();
  model_.FailOnce(absl::InternalError("lost"));
  const auto failed = Submit(GenerateRequest(Prompt(5), 5));
  EXPECT_EQ(failed->WaitForEnd().ends[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine_->Stats().fault.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine_->Stats().consecutive_faults, 1);
  const auto next = Submit(GenerateRequest(Prompt(5), 5));
  EXPECT_EQ(next->WaitForEnd().token_ids(), GenerateAlone(GenerateRequest(Prompt(5), 5), kContext));
}

TEST_F(EngineTest, AGoodStepEndsAFault) {
  Start();
  model_.FailOnce(absl::InternalError("lost"));
  Submit(GenerateRequest(Prompt(5), 5))->WaitForEnd();
  Submit(GenerateRequest(Prompt(5), 5))->WaitForEnd();
  EXPECT_THAT(engine_->Stats().fault, IsOk());
  EXPECT_EQ(engine_->Stats().consecutive_faults, 0);
}

TEST_F(EngineTest, RefusesAResumedOutputThatGoesOnBehindItsEnd) {
  Start();
  const auto resumed = [](std::vector<int32_t> generated) {
    Request request = GenerateRequest(Prompt(5), 4);
    request.generate()->stop.eos_token_ids = {7};
    request.generate()->generated = std::move(generated);
    return request;
  };
  const auto invalid = [this](Request request, const char* message) {
    EXPECT_THAT(engine_->Submit(std::move(request)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  invalid(resumed({1, 7, 2}), "ends at index 1 and has 3 tokens");
  invalid(resumed({1, 2, 3, 4, 5}), "ends at index 3 and has 5 tokens");
  Request full = resumed({1, 2});
  full.prompt = Prompt(kContext - 1);
  invalid(std::move(full), "513 tokens, the limit is 512");
  Request branches = resumed({1});
  branches.branch_streams = {UnreadStream()};
  invalid(std::move(branches), "several outputs");
  EXPECT_THAT(Submit(resumed({1, 2}))->WaitForEnd().ends[0].status, IsOk());
  // Whole already: nothing is missing but the end.
  const Collected whole = Submit(resumed({1, 7}))->WaitForEnd();
  EXPECT_EQ(whole.ends[0].reason, FinishReason::kEos);
  EXPECT_TRUE(whole.tokens.empty());
}

// Counts the answers to FlushPrefixCache, and keeps the last.
class FlushAnswers {
 public:
  std::function<void(int64_t)> Callback() {
    return [this](int64_t freed) {
      MutexLock lock(&mutex_);
      ++answers_;
      freed_ = freed;
      changed_.NotifyAll();
    };
  }
  int64_t WaitFor(int answers) {
    MutexLock lock(&mutex_);
    while (answers_ < answers) changed_.Wait(&mutex_);
    EXPECT_EQ(answers_, answers);
    return freed_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int answers_ = 0;
  int64_t freed_ = 0;
};

TEST_F(EngineTest, FlushEmptiesThePrefixCacheOfAnIdleEngine) {
  Start();
  Submit(GenerateRequest(Prompt(200), 10))->WaitForEnd();
  ASSERT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_EQ(engine_->Stats().kv_blocks_cached, 3);
  FlushAnswers answers;
  engine_->FlushPrefixCache(answers.Callback());
  EXPECT_EQ(answers.WaitFor(1), 3);
  EXPECT_EQ(engine_->Stats().kv_blocks_cached, 0);
  engine_->FlushPrefixCache(answers.Callback());
  EXPECT_EQ(answers.WaitFor(2), 0);
}

TEST_F(EngineTest, FlushWaitsForTheStepAndDisturbsNobody) {
  Start();
  gate_.Close();
  const auto running = Submit(GenerateRequest(Prompt(200), 100));
  gate_.WaitForArrival();
  FlushAnswers answers;
  engine_->FlushPrefixCache(answers.Callback());
  gate_.Open();
  answers.WaitFor(1);
  EXPECT_EQ(running->WaitForEnd().token_ids(),
            GenerateAlone(GenerateRequest(Prompt(200), 100), kContext));
}

TEST_F(EngineTest, AStoppedEngineHasNothingToFlush) {
  Start();
  engine_->Stop();
  FlushAnswers answers;
  engine_->FlushPrefixCache(answers.Callback());
  EXPECT_EQ(answers.WaitFor(1), 0);
}

TEST_F(EngineTest, EveryFlushIsAnsweredOnceWhateverStopDoes) {
  for (int i = 0; i < 300; ++i) {
    Start();
    FlushAnswers answers;
    std::thread flusher([&] {
      for (int k = 0; k < 20; ++k) engine_->FlushPrefixCache(answers.Callback());
    });
    if (i % 2 == 0) Submit(GenerateRequest(Prompt(70), 1));
    engine_->Stop();
    flusher.join();
    answers.WaitFor(20);
    engine_.reset();
  }
}

// An engine whose steps take a millisecond for every token.
class TimedEngineTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options) {
    model_.set_on_forward([this](const Batch& batch) {
      clock_.Advance(absl::Milliseconds(1) * static_cast<int64_t>(batch.token_ids.size()));
    });
    auto engine = Engine::Start(model_, options, clock_);
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }
  Collected Run(Request request) {
    const auto reader = CollectingReader::Create();
    request.stream = reader->stream();
    EXPECT_THAT(engine_->Submit(std::move(request)), IsOk());
    const Collected collected = reader->WaitForEnd();
    EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
    return collected;
  }
  Request Within(absl::Duration time, Request request) {
    request.deadline = clock_.Now() + time;
    return request;
  }

  FakeClock clock_;
  ScriptedModel model_{kLimits, 64};
  std::unique_ptr<Engine> engine_;
};

TEST_F(TimedEngineTest, RefusesWhatTheMeasuredRatesCannotReach) {
  Start({});
  const auto unreachable = [this](absl::Duration time, Request request) {
    return ReasonOf(engine_->Submit(Within(time, std::move(request)))) == "INFEASIBLE";
  };
  const absl::Duration tight = absl::Milliseconds(150);
  EXPECT_THAT(Run(GenerateRequest(Prompt(400, 1), 30)).ends[0].status, IsOk());
  for (uint32_t seed = 2; seed < 5; ++seed) Run(GenerateRequest(Prompt(400, seed), 2));
  // 400 ms for the prompt, unless it may lie in the cache: then the engine looks.
  Request bypassing = GenerateRequest(Prompt(400, 9), 1);
  bypassing.cache.bypass = true;
  EXPECT_TRUE(unreachable(tight, bypassing));
  EXPECT_FALSE(unreachable(absl::Milliseconds(250), bypassing));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_THAT(Run(Within(tight, GenerateRequest(Prompt(400, 1), 1))).ends[0].status, IsOk());
  EXPECT_EQ(ReasonOf(Run(Within(tight, GenerateRequest(Prompt(400, 9), 1))).ends[0].status),
            "INFEASIBLE");
  // A millisecond for each of 400 tokens.
  Request long_output = GenerateRequest(Prompt(4), 400);
  EXPECT_FALSE(unreachable(tight, long_output));
  long_output.generate()->stop.min_new_tokens = 400;
  EXPECT_TRUE(unreachable(tight, long_output));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
}

TEST_F(TimedEngineTest, StatsTellThePace) {
  Start({.prefix_cache = false});
  for (uint32_t seed = 0; seed < 4; ++seed) Run(GenerateRequest(Prompt(100, seed), 101));
  const EngineStats stats = engine_->Stats();
  EXPECT_NEAR(stats.prefill_tokens_per_second, 500, 100);
  EXPECT_NEAR(stats.decode_tokens_per_second, 500, 100);
  EXPECT_EQ(stats.estimated_queue_time, absl::ZeroDuration());
  clock_.Advance(absl::Minutes(5));
  EXPECT_LT(engine_->Stats().decode_tokens_per_second, 1);
}

TEST_F(EngineTest, IsIdleWhenTheLastOutputHasEnded) {
  Start();
  gate_.Close();
  Request request = GenerateRequest(Prompt(100), 20);
  request.generate()->sampling.temperature = 1;
  const Request copy = request;
  std::vector<std::shared_ptr<CollectingReader>> branches;
  for (int i = 0; i < 40; ++i) {
    branches.push_back(CollectingReader::Create());
    request.branch_streams.push_back(branches.back()->stream());
  }
  const auto first = Submit(std::move(request));
  gate_.WaitForArrival();
  EXPECT_FALSE(engine_->WaitUntilIdle(absl::ZeroDuration()));
  gate_.Open();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_EQ(engine_->Stats().finished_requests, 1);
  EXPECT_EQ(engine_->Stats().prefill_tokens, 100);
  EXPECT_EQ(first->WaitForEnd().token_ids(), GenerateAlone(copy, kContext));
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(branches[i]->WaitForEnd().token_ids(),
              GenerateAlone(OnlyOutput(copy, i + 1), kContext));
  }
}

TEST_F(EngineTest, ScoresContinuations) {
  Start();
  const Request request = ScoreRequestFor(Prompt(100), {3, 1, 20});
  const Collected collected = Submit(request)->WaitForEnd();
  EXPECT_THAT(collected.ends[0].status, IsOk());
  const auto expected = ContinuationScoresAlone(request);
  for (size_t i = 0; i < 3; ++i) {
    ExpectScores(EntriesOf(collected.scored, static_cast<int64_t>(i)), expected[i]);
  }
}

TEST_F(EngineTest, ManyCancelledRequestsLeaveNothingBehind) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 500;
  ScriptedModel scarce(kLimits, 12);
  auto engine = Engine::Start(scarce, {.max_batch_tokens = 100, .max_running_requests = 16},
                              *Clock::Monotonic());
  ASSERT_THAT(engine, IsOk());
  std::vector<std::shared_ptr<CollectingReader>> readers(kThreads * kRequests);
  std::atomic<int> accepted{0};
  std::vector<std::thread> callers;
  for (int thread = 0; thread < kThreads; ++thread) {
    callers.emplace_back([&, thread] {
      std::mt19937 random(static_cast<uint32_t>(thread));
      for (int i = 0; i < kRequests; ++i) {
        auto reader = CollectingReader::Create(4);
        const int64_t prompt = 1 + static_cast<int64_t>(random() % 90);
        Request request = GenerateRequest(Prompt(prompt), 1 + static_cast<int64_t>(random() % 30),
                                          reader->stream());
        const uint32_t kind = random() % 6;
        if (kind == 0) {
          request = ForwardRequest(Prompt(prompt), AllPositions(prompt), reader->stream());
        } else if (kind == 1) {
          request = ScoreRequestFor(Prompt(prompt), {1, 9, 20}, reader->stream());
        } else if (kind == 2) {
          request.branch_streams = {UnreadStream(), UnreadStream()};
          if (random() % 2 == 0) request.branch_streams[0]->Detach();
        }
        if (random() % 10 == 0)
          request.deadline = Clock::Monotonic()->Now() + absl::Milliseconds(random() % 20);
        if (!(*engine)->Submit(std::move(request)).ok()) continue;
        ++accepted;
        readers[static_cast<size_t>(thread * kRequests + i)] = reader;
        const size_t victim = static_cast<size_t>(thread * kRequests) + random() % (i + 1);
        if (random() % 3 == 0 && readers[victim] != nullptr) readers[victim]->stream()->Detach();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  ASSERT_TRUE((*engine)->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_EQ((*engine)->Stats().kv_blocks_used, 0);
  EXPECT_EQ((*engine)->Stats().finished_requests, accepted);
  (*engine)->Stop();
  int ended = 0;
  for (const auto& reader : readers) {
    if (reader == nullptr) continue;
    EXPECT_EQ(reader->collected().ends.size(), 1);
    ++ended;
  }
  EXPECT_EQ(ended, accepted);
}

}  // namespace
}  // namespace tlm
