#include "server/batching/request_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "model/base/error_details.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

TEST(RequestQueueTest, PushMovesWhenItReturnsOk) {
  RequestQueue queue({.requests = 1, .prompt_tokens = 100});
  Request request = GenerateRequest(Prompt(5), 1);
  ASSERT_TRUE(queue.Push(std::move(request), kNow + absl::Seconds(7)).ok());
  EXPECT_EQ(request.stream, nullptr);
  EXPECT_TRUE(request.prompt.empty());

  const std::vector<Request> taken = queue.Take();
  ASSERT_EQ(taken.size(), 1);
  EXPECT_EQ(taken[0].prompt, Prompt(5));
  EXPECT_EQ(taken[0].arrival, kNow + absl::Seconds(7));
}

TEST(RequestQueueTest, PushLeavesTheRequestAloneWhenItRefuses) {
  RequestQueue queue({.requests = 1, .prompt_tokens = 100});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(5), 1), kNow).ok());
  Request request = GenerateRequest(Prompt(6), 1);
  const auto stream = request.stream;
  EXPECT_FALSE(queue.Push(std::move(request), kNow).ok());
  EXPECT_EQ(request.stream, stream);
  EXPECT_EQ(request.prompt, Prompt(6));
  EXPECT_EQ(request.arrival, absl::InfinitePast());
}

TEST(RequestQueueTest, BoundsRequestsUntilTheyAreReleased) {
  RequestQueue queue({.requests = 2, .prompt_tokens = 100});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
  EXPECT_EQ(queue.Take().size(), 2);

  const absl::Status refused = queue.Push(GenerateRequest(Prompt(1), 1), kNow);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");

  queue.Release(1);
  EXPECT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
}

TEST(RequestQueueTest, BoundsPromptTokens) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(60), 1), kNow).ok());
  const absl::Status refused = queue.Push(GenerateRequest(Prompt(41), 1), kNow);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "QUEUED_TOKENS");
  EXPECT_TRUE(queue.Push(GenerateRequest(Prompt(40), 1), kNow).ok());
  EXPECT_EQ(queue.waiting().prompt_tokens, 100);
  EXPECT_EQ(queue.waiting().requests, 2);
}

TEST(RequestQueueTest, AnEmptyQueueTakesAPromptOfAnyLength) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  EXPECT_TRUE(queue.Push(GenerateRequest(Prompt(500), 1), kNow).ok());
  EXPECT_EQ(ReasonOf(queue.Push(GenerateRequest(Prompt(1), 1), kNow)), "QUEUED_TOKENS");
}

TEST(RequestQueueTest, RetryTimeComesFromTheDrainRate) {
  RequestQueue queue({.requests = 2, .prompt_tokens = 30});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(20), 1), kNow).ok());
  const auto tokens_retry = [&] {
    return RetryAfterOf(queue.Push(GenerateRequest(Prompt(20), 1), kNow));
  };
  EXPECT_EQ(tokens_retry(), absl::Seconds(1));  // a guess
  queue.SetDrainRate({.requests_per_second = 0.25, .prompt_tokens_per_second = 5});
  EXPECT_EQ(tokens_retry(), absl::Seconds(4));
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(10), 1), kNow).ok());
  EXPECT_EQ(RetryAfterOf(queue.Push(GenerateRequest(Prompt(1), 1), kNow)), absl::Seconds(8));
}

TEST(RequestQueueTest, RetryTimeStaysReasonable) {
  RequestQueue queue({.requests = 1, .prompt_tokens = 100});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
  queue.SetDrainRate({.requests_per_second = 1e-9});
  EXPECT_EQ(RetryAfterOf(queue.Push(GenerateRequest(Prompt(1), 1), kNow)), absl::Minutes(1));
  queue.SetDrainRate({.requests_per_second = 1e9});
  EXPECT_EQ(RetryAfterOf(queue.Push(GenerateRequest(Prompt(1), 1), kNow)), absl::Milliseconds(50));
}

TEST(RequestQueueTest, ClosedRefusesButKeepsWhatItHas) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
  queue.Close();
  queue.Close();
  Request request = GenerateRequest(Prompt(1), 1);
  const absl::Status refused = queue.Push(std::move(request), kNow);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "DRAINING");
  EXPECT_NE(request.stream, nullptr);
  EXPECT_EQ(queue.Take().size(), 1);
}

TEST(RequestQueueTest, TakeIsInOrderOfArrivalAndEmpties) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  for (int64_t tokens = 1; tokens <= 4; ++tokens) {
    ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(tokens), 1), kNow).ok());
  }
  const std::vector<Request> taken = queue.Take();
  ASSERT_EQ(taken.size(), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(taken[i].prompt.size(), i + 1);
  EXPECT_TRUE(queue.Take().empty());
}

TEST(RequestQueueTest, WaitEndsAtOnceWhenThereIsWorkOrNoTime) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  queue.WaitForWork(absl::ZeroDuration());
  queue.WaitForWork(-absl::InfiniteDuration());
  queue.Wake();
  queue.WaitForWork(absl::InfiniteDuration());
  queue.Take();
  ASSERT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
  queue.WaitForWork(absl::InfiniteDuration());
}

TEST(RequestQueueTest, PushAndWakeEndAWait) {
  RequestQueue queue({.requests = 10, .prompt_tokens = 100});
  for (const bool push : {true, false}) {
    std::thread other([&] {
      if (push) {
        EXPECT_TRUE(queue.Push(GenerateRequest(Prompt(1), 1), kNow).ok());
      } else {
        queue.Wake();
      }
    });
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
      queue.Release(static_cast<int64_t>(request.prompt.size()));
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
