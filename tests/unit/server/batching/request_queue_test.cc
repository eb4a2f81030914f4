#include "server/batching/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kNow = absl::UnixEpoch();

// Of requests with 100 prompt tokens.
void RecordDrain(double requests_per_second, ServiceRates* rates) {
  const double seconds = std::max(10.0, 1 / requests_per_second);
  const auto requests = static_cast<int64_t>(std::lround(seconds * requests_per_second));
  rates->RecordDrain({}, /*waiting=*/1, absl::ZeroDuration());
  rates->RecordDrain({requests, 100 * requests}, 1, absl::Seconds(seconds));
}

// What a queue knows that was drained at this pace.
ServiceEstimates DrainedAt(double requests_per_second) {
  ServiceRates rates(512);
  RecordDrain(requests_per_second, &rates);
  return rates.Estimates();
}

// And whose engine prefills 1000 tokens in a second and decodes in steps of 10 ms, outputs being as
// long as they may.
ServiceEstimates Measured(double requests_per_second) {
  ServiceRates rates(512);
  for (int i = 0; i < 10; ++i) {
    rates.RecordStep({.prefill_tokens = 512, .elapsed = absl::Milliseconds(512)}, kNow);
    rates.RecordStep({.decode_tokens = 1, .elapsed = absl::Milliseconds(10)}, kNow);
  }
  rates.RecordOutput(100, 100);
  RecordDrain(requests_per_second, &rates);
  return rates.Estimates();
}

Request WithDeadline(absl::Duration in, int64_t max_new_tokens = 1) {
  Request request = GenerateRequest(Prompt(100), max_new_tokens);
  request.deadline = kNow + in;
  return request;
}

// Pushes a request whose prompt has `tokens` tokens.
absl::Status Push(RequestQueue& queue, int64_t tokens, absl::Time now = kNow) {
  return queue.Push(GenerateRequest(Prompt(tokens), 1), now);
}
void Fill(RequestQueue& queue, int requests, int64_t tokens) {
  for (int i = 0; i < requests; ++i) ASSERT_THAT(Push(queue, tokens), IsOk());
}
void ExpectRefused(const absl::Status& status, absl::StatusCode code, const char* reason) {
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(ReasonOf(status), reason);
}
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

class MeasuredQueueTest : public ::testing::Test {
 protected:
  MeasuredQueueTest() { queue_.SetEstimates(Measured(2)); }

  absl::Status Push(Request request, int64_t cached_tokens = 0) {
    return queue_.Push(std::move(request), kNow, cached_tokens);
  }

  RequestQueue queue_{{.requests = 100, .prompt_tokens = 1 << 20}};
};

TEST(RequestQueueTest, PushMovesIfAndOnlyIfItReturnsOk) {
  RequestQueue queue({.requests = 1, .prompt_tokens = 100});
  Request request = GenerateRequest(Prompt(5), 1);
  ASSERT_TRUE(queue.Push(std::move(request), kNow + absl::Seconds(7)).ok());
  EXPECT_EQ(request.stream, nullptr);
  EXPECT_TRUE(request.prompt.empty());
  Request refused = GenerateRequest(Prompt(6), 1);
  const auto stream = refused.stream;
  EXPECT_FALSE(queue.Push(std::move(refused), kNow).ok());
  EXPECT_EQ(refused.stream, stream);
  EXPECT_EQ(refused.prompt, Prompt(6));
  EXPECT_EQ(refused.arrival, absl::InfinitePast());
  const std::vector<Request> taken = queue.Take();
  ASSERT_EQ(taken.size(), 1);
  EXPECT_EQ(taken[0].prompt, Prompt(5));
  EXPECT_EQ(taken[0].arrival, kNow + absl::Seconds(7));
}

TEST(RequestQueueTest, BoundsRequestsUntilTheyAreReleased) {
  RequestQueue queue({.requests = 2, .prompt_tokens = 100});
  Fill(queue, 2, 1);
  EXPECT_EQ(queue.Take().size(), 2);
  ExpectRefused(Push(queue, 1), kExhausted, "QUEUE_FULL");
  queue.Release(GenerateRequest({}, 1), 1);
  EXPECT_THAT(Push(queue, 1), IsOk());
}

TEST(RequestQueueTest, BoundsPromptTokens) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  Fill(queue, 1, 60);
  ExpectRefused(Push(queue, 41), kExhausted, "QUEUED_TOKENS");
  EXPECT_THAT(Push(queue, 40), IsOk());
  EXPECT_EQ(queue.waiting().prompt_tokens, 100);
  EXPECT_EQ(queue.waiting().requests, 2);
}

TEST(RequestQueueTest, AnEmptyQueueTakesAPromptOfAnyLength) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  EXPECT_THAT(Push(queue, 500), IsOk());
  EXPECT_EQ(ReasonOf(Push(queue, 1)), "QUEUED_TOKENS");
}

TEST(RequestQueueTest, RetryTimeIsWhenThereIsRoomAgain) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 1 << 20});
  Fill(queue, 10, 100);
  const auto retry = [&](absl::Time now) { return RetryAfterOf(Push(queue, 100, now)); };
  EXPECT_EQ(retry(kNow), absl::Seconds(1));  // a guess
  queue.SetEstimates(DrainedAt(2));
  // The first of the refused has the next place, the second that after it.
  EXPECT_EQ(retry(kNow), absl::Milliseconds(500));
  EXPECT_EQ(retry(kNow), absl::Milliseconds(1000));
  EXPECT_EQ(retry(kNow + absl::Milliseconds(250)), absl::Milliseconds(1250));
  // No retry delay is longer than the time that all waiting requests take.
  for (int i = 0; i < 100; ++i) retry(kNow);
  EXPECT_EQ(retry(kNow), absl::Seconds(5));
  // What was promised passes.
  EXPECT_EQ(retry(kNow + absl::Minutes(1)), absl::Milliseconds(500));
}

TEST(RequestQueueTest, RetryTimeForTokensIsWhenTheyHaveRoom) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 1000});
  queue.SetEstimates(DrainedAt(2));  // 200 tokens a second
  Fill(queue, 9, 100);
  EXPECT_EQ(RetryAfterOf(Push(queue, 300)), absl::Seconds(1));       // 200 too many
  EXPECT_EQ(RetryAfterOf(Push(queue, 100000)), absl::Seconds(4.5));  // when nothing waits
  EXPECT_THAT(Push(queue, 100), IsOk());
}

TEST(RequestQueueTest, RetryTimeStaysReasonable) {
  RequestQueue queue({.requests = 1, .prompt_tokens = 100});
  Fill(queue, 1, 1);
  queue.SetEstimates(DrainedAt(1e-3));
  EXPECT_EQ(RetryAfterOf(Push(queue, 1)), absl::Minutes(1));
  queue.SetEstimates(DrainedAt(1e6));
  EXPECT_EQ(RetryAfterOf(Push(queue, 1, kNow + absl::Hours(1))), absl::Milliseconds(50));
}

TEST(RequestQueueTest, CheckOpenSaysWhatTheSmallestRequestWouldHear) {
  RequestQueue queue({.requests = 2, .prompt_tokens = 100}, /*max_time=*/absl::Seconds(1));
  queue.SetEstimates(DrainedAt(2));
  for (const int64_t tokens : {99, 1}) {
    EXPECT_THAT(queue.CheckOpen(kNow), IsOk());
    Fill(queue, 1, tokens);
  }
  const absl::Status full = queue.CheckOpen(kNow);
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  EXPECT_EQ(RetryAfterOf(full), absl::Milliseconds(500));
  for (const Request& request : queue.Take()) queue.Release(request, InputTokens(request));
  Fill(queue, 1, 100);
  EXPECT_EQ(ReasonOf(queue.CheckOpen(kNow)), "QUEUED_TOKENS");
  queue.Close();
  EXPECT_EQ(ReasonOf(queue.CheckOpen(kNow)), "DRAINING");
  EXPECT_TRUE(RetryAfterOf(queue.CheckOpen(kNow)).has_value());
}

TEST(RequestQueueTest, RefusesWhatWouldWaitTooLong) {
  RequestQueue queue({.requests = 100, .prompt_tokens = 1 << 20}, absl::Seconds(3));
  queue.SetEstimates(DrainedAt(2));
  Fill(queue, 7, 100);
  const absl::Status refused = Push(queue, 100);
  ExpectRefused(refused, kExhausted, "QUEUE_FULL");
  EXPECT_EQ(refused.message(), "the queue takes about 3.5s, the limit is 3s");
  EXPECT_EQ(RetryAfterOf(refused), absl::Milliseconds(500));
  // Those that go before the others wait less.
  EXPECT_THAT(queue.Push(WithPriority(1, GenerateRequest(Prompt(100), 1)), kNow), IsOk());
}

TEST(RequestQueueTest, AnEmptyQueueRefusesNothingForItsWait) {
  RequestQueue queue({.requests = 100, .prompt_tokens = 1 << 20}, absl::Milliseconds(1));
  queue.SetEstimates(DrainedAt(1e-3));
  EXPECT_TRUE(queue.Push(WithDeadline(absl::Milliseconds(1)), kNow).ok());
}

TEST_F(MeasuredQueueTest, RefusesWhatCannotBeDoneInTime) {
  Request request = GenerateRequest(Prompt(4000), 300);
  request.generate()->stop.min_new_tokens = 201;
  request.deadline = kNow + absl::Milliseconds(2900);  // of six seconds
  const absl::Status refused = queue_.Push(std::move(request), kNow);
  ExpectRefused(refused, absl::StatusCode::kDeadlineExceeded, "INFEASIBLE");
  EXPECT_EQ(refused.message(),
            "2.9s are left until the deadline; by the measured rates the least that is asked for "
            "takes 6s, and the queue before it 0");
  EXPECT_EQ(RetryAfterOf(refused), std::nullopt);
  EXPECT_NE(request.stream, nullptr);
  // What may be in the cache need not be computed.
  EXPECT_TRUE(queue_.Push(std::move(request), kNow, /*cached_tokens=*/3900).ok());
}

TEST_F(MeasuredQueueTest, TheTimeInTheQueueCountsToo) {
  for (int i = 0; i <= 20; ++i) ASSERT_THAT(Push(WithDeadline(absl::Seconds(60))), IsOk());
  // Behind all of them, and with as little time as if it were before them.
  EXPECT_EQ(ReasonOf(Push(WithPriority(-1, WithDeadline(absl::Seconds(5))))), "INFEASIBLE");
}

TEST_F(MeasuredQueueTest, EarlierDeadlinesDoNotWaitForLaterOnes) {
  for (int i = 0; i < 20; ++i) ASSERT_THAT(Push(WithDeadline(absl::Seconds(60))), IsOk());
  EXPECT_THAT(Push(WithDeadline(absl::Seconds(1))), IsOk());
}

TEST_F(MeasuredQueueTest, RefusesWhatWouldProbablyBeBegunInVain) {
  // Four seconds to run, and half a second to wait for each of the others.
  absl::Status status;
  while (status.ok()) status = Push(WithDeadline(absl::Seconds(12), 390));
  EXPECT_EQ(queue_.waiting().requests, 12);
  ExpectRefused(status, kExhausted, "QUEUE_FULL");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("12s are left until the deadline, the queue takes about 6s and the"));
  EXPECT_TRUE(RetryAfterOf(status).has_value());
  EXPECT_THAT(Push(WithDeadline(absl::Seconds(14), 390)), IsOk());
}

TEST_F(MeasuredQueueTest, TheLengthOfARequestAloneIsNoReasonToRefuseIt) {
  // An hour's worth of tokens, with a deadline that cuts them off.
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Push(WithDeadline(absl::Seconds(30), 1 << 20)), IsOk());
}

TEST_F(MeasuredQueueTest, KeepsTheChanceOfThoseThatWait) {
  while (queue_.Push(WithDeadline(absl::Seconds(10)), kNow).ok()) {
  }
  const int64_t taken = queue_.waiting().requests;
  EXPECT_GE(taken, 10);
  EXPECT_LE(taken, 20);
  EXPECT_EQ(ReasonOf(Push(WithDeadline(absl::Seconds(5)))), "QUEUE_FULL");
  // They have gained time since.
  for (Request& request : queue_.Take()) {
    if (queue_.waiting().requests > taken / 2) queue_.Release(request, InputTokens(request));
  }
  EXPECT_THAT(Push(WithDeadline(absl::Seconds(5))), IsOk());
}

TEST_F(MeasuredQueueTest, TenantsDoNotWaitForEachOthersDeadlines) {
  while (queue_.Push(WithDeadline(absl::Seconds(10)), kNow).ok()) {
  }
  Request other = WithDeadline(absl::Seconds(2));
  other.tenant = "other";
  EXPECT_TRUE(queue_.Push(std::move(other), kNow).ok());
}

TEST_F(MeasuredQueueTest, ASoftDeadlineIsAlwaysMet) {
  Request request = GenerateRequest(Prompt(4000), 300);
  request.generate()->stop.min_new_tokens = 300;
  request.deadline = kNow + absl::Milliseconds(200);
  request.soft_deadline = kNow + absl::Milliseconds(100);
  EXPECT_TRUE(queue_.Push(std::move(request), kNow).ok());
}

TEST(RequestQueueTest, ClosedRefusesButKeepsWhatItHas) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  Fill(queue, 1, 1);
  queue.Close();
  queue.Close();
  Request request = GenerateRequest(Prompt(1), 1);
  ExpectRefused(queue.Push(std::move(request), kNow), absl::StatusCode::kUnavailable, "DRAINING");
  EXPECT_NE(request.stream, nullptr);
  EXPECT_EQ(queue.Take().size(), 1);
}

TEST(RequestQueueTest, TakeIsInOrderOfArrivalAndEmpties) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  for (int64_t tokens = 1; tokens <= 4; ++tokens) Fill(queue, 1, tokens);
  const std::vector<Request> taken = queue.Take();
  ASSERT_EQ(taken.size(), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(taken[i].prompt.size(), i + 1);
  EXPECT_TRUE(queue.Take().empty());
}

TEST(RequestQueueTest, WorkAWakeAndNoTimeEndAWait) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  queue.WaitForWork(absl::ZeroDuration());
  queue.WaitForWork(-absl::InfiniteDuration());
  for (const bool push : {true, false}) {
    const auto end = [&] {
      if (!push) return queue.Wake();
      EXPECT_THAT(Push(queue, 1), IsOk());
    };
    end();  // before the wait
    queue.WaitForWork(absl::InfiniteDuration());
    queue.Take();
    std::thread other(end);
    queue.WaitForWork(absl::InfiniteDuration());
    other.join();
    EXPECT_EQ(queue.Take().size(), push ? 1 : 0);
  }
}

TEST(RequestQueueTest, NothingIsLostOrMadeUpBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 2000;
  RequestQueue queue({.requests = 50, .prompt_tokens = 120});
  std::atomic<int> accepted{0};
  std::atomic<int> running{kThreads};
  std::vector<std::thread> producers;
  for (int thread = 0; thread < kThreads; ++thread) {
    producers.emplace_back([&] {
      for (int i = 0; i < kRequests; ++i) {
        Request request = GenerateRequest(Prompt(1 + i % 5), 1);
        const bool ok = queue.Push(std::move(request), kNow).ok();
        if (ok) ++accepted;
        EXPECT_EQ(ok, request.stream == nullptr);
      }
      --running;
      queue.Wake();
    });
  }
  int taken = 0;
  while (running > 0 || queue.waiting().requests > 0) {
    queue.WaitForWork(running > 0 ? absl::InfiniteDuration() : absl::ZeroDuration());
    for (const Request& request : queue.Take()) {
      EXPECT_LE(queue.waiting().requests, 50);
      ++taken;
      queue.Release(request, InputTokens(request));
    }
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(taken, accepted);
  EXPECT_GT(taken, 0);
  EXPECT_EQ(queue.waiting().requests, 0);
  EXPECT_EQ(queue.waiting().prompt_tokens, 0);
}

}  // namespace
}  // namespace tlm
