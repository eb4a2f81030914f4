// What must end well from outside the engine's thread: draining, stopping, flushing, cancelling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "model/base/errors.h"
#include "tests/unit/server/batching/engine_fixture.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using EngineStopTest = EngineTest;

TEST_F(EngineStopTest, DrainRefusesNewWorkAndFinishesTheOld) {
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

TEST_F(EngineStopTest, StopIsUnavailableForWhatRuns) {
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

TEST_F(EngineStopTest, AnIdleEngineStopsAndStreamsOutliveIt) {
  Start();
  const auto reader = Submit(GenerateRequest(Prompt(5), 1));
  reader->WaitForEnd();
  engine_.reset();
  reader->stream()->Take();
  reader->stream()->Detach();
  EXPECT_EQ(reader->collected().tokens.size(), 1);
}

TEST_F(EngineStopTest, StopIsNoticedWhereverTheEngineThreadIs) {
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

TEST_F(EngineStopTest, FlushEmptiesThePrefixCacheOfAnIdleEngine) {
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

TEST_F(EngineStopTest, FlushWaitsForTheStepAndDisturbsNobody) {
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

TEST_F(EngineStopTest, EveryFlushIsAnsweredOnceWhateverStopDoes) {
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

TEST_F(EngineStopTest, ManyCancelledRequestsLeaveNothingBehind) {
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
