#include "server/rpc/call/call_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeCall : public AbortableCall {
 public:
  explicit FakeCall(std::function<void()> on_abort = [] {}) : on_abort_(std::move(on_abort)) {}

  bool Abort(const absl::Status& status) override {
    if (ended_.exchange(true)) return false;
    on_abort_();
    status_ = status;
    return true;
  }

  const absl::Status& status() const { return status_; }

 private:
  const std::function<void()> on_abort_;
  std::atomic<bool> ended_{false};
  absl::Status status_;
};

TEST(CallRegistryTest, EndsTheCallOfTheNameWithTheStatus) {
  CallRegistry registry;
  const auto a = std::make_shared<FakeCall>();
  const auto b = std::make_shared<FakeCall>();
  const CallRegistry::Registration first = registry.Register("t", "a", a);
  const CallRegistry::Registration second = registry.Register("t", "b", b);
  EXPECT_EQ(1, registry.Abort("a", std::nullopt, Aborted("enough")));
  EXPECT_THAT(a->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(b->status(), IsOk());
}

TEST(CallRegistryTest, EndsAllCallsOfOneName) {
  CallRegistry registry;
  const auto first = std::make_shared<FakeCall>();
  const auto second = std::make_shared<FakeCall>();
  const CallRegistry::Registration one = registry.Register("t", "a", first);
  {
    const CallRegistry::Registration two = registry.Register("t", "a", second);
    EXPECT_EQ(2, registry.Abort("a", std::nullopt, Aborted("enough")));
  }
  EXPECT_THAT(first->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(second->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  const auto third = std::make_shared<FakeCall>();
  const CallRegistry::Registration three = registry.Register("t", "a", third);
  EXPECT_THAT(registry.AbortAll(std::nullopt, Aborted("all")).request_ids, ElementsAre("a"));
  EXPECT_THAT(third->status(), StatusIs(absl::StatusCode::kAborted, "all"));
}

TEST(CallRegistryTest, DoesNotEndWhatIsUnknownOrHasEnded) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  const CallRegistry::Registration registration = registry.Register("t", "a", call);
  EXPECT_EQ(0, registry.Abort("b", std::nullopt, Aborted("")));
  EXPECT_EQ(1, registry.Abort("a", std::nullopt, Aborted("")));
  EXPECT_EQ(0, registry.Abort("a", std::nullopt, Aborted("")));
}

TEST(CallRegistryTest, ACallIsUnknownAfterItsRegistration) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  std::optional<CallRegistry::Registration> registration = registry.Register("t", "a", call);
  registration.reset();
  EXPECT_EQ(0, registry.Abort("a", std::nullopt, Aborted("")));
  EXPECT_THAT(registry.AbortAll(std::nullopt, Aborted("")).request_ids, IsEmpty());
}

TEST(CallRegistryTest, AMovedRegistrationEndsOnce) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  CallRegistry::Registration kept;
  {
    CallRegistry::Registration made = registry.Register("t", "a", call);
    kept = std::move(made);
  }
  EXPECT_EQ(1, registry.Abort("a", std::nullopt, Aborted("")));
}

TEST(CallRegistryTest, ACallThatIsGoneIsNotEnded) {
  CallRegistry registry;
  auto call = std::make_shared<FakeCall>();
  const CallRegistry::Registration registration = registry.Register("t", "a", call);
  call.reset();
  EXPECT_EQ(0, registry.Abort("a", std::nullopt, Aborted("")));
}

TEST(CallRegistryTest, TheEndOfAnEarlierCallLeavesTheLaterOneOfItsNameRegistered) {
  CallRegistry registry;
  const auto first = std::make_shared<FakeCall>();
  const auto second = std::make_shared<FakeCall>();
  std::optional<CallRegistry::Registration> earlier = registry.Register("t", "a", first);
  const CallRegistry::Registration later = registry.Register("t", "a", second);
  earlier.reset();
  EXPECT_EQ(1, registry.Abort("a", std::nullopt, Aborted("mine")));
  EXPECT_THAT(second->status(), StatusIs(absl::StatusCode::kAborted, "mine"));
}

TEST(CallRegistryTest, AbortAllNamesWhatItEndedInOrder) {
  CallRegistry registry;
  const auto a = std::make_shared<FakeCall>();
  const auto b = std::make_shared<FakeCall>();
  const auto c = std::make_shared<FakeCall>();
  const CallRegistry::Registration third = registry.Register("t", "c", c);
  const CallRegistry::Registration first = registry.Register("t", "a", a);
  const CallRegistry::Registration second = registry.Register("t", "b", b);
  EXPECT_EQ(1, registry.Abort("b", std::nullopt, Aborted("")));
  EXPECT_THAT(registry.AbortAll(std::nullopt, Aborted("")).request_ids, ElementsAre("a", "c"));
}

TEST(CallRegistryTest, EveryCallOfANameCounts) {
  CallRegistry registry;
  const auto mine = std::make_shared<FakeCall>();
  const auto theirs = std::make_shared<FakeCall>();
  const CallRegistry::Registration first = registry.Register("me", "a", mine);
  const CallRegistry::Registration second = registry.Register("them", "a", theirs);
  const CallRegistry::Ended ended = registry.AbortAll(std::nullopt, Aborted(""));
  EXPECT_THAT(ended.request_ids, ElementsAre("a"));
  EXPECT_EQ(ended.calls, 2);
}

TEST(CallRegistryTest, EndsTheCallsOfOneTenantAlone) {
  CallRegistry registry;
  std::vector<std::shared_ptr<FakeCall>> calls;
  std::vector<CallRegistry::Registration> registrations;
  for (const char* const tenant : {"me", "them", ""}) {
    for (const char* const id : {"a", "b"}) {
      calls.push_back(std::make_shared<FakeCall>());
      registrations.push_back(registry.Register(tenant, id, calls.back()));
    }
  }
  EXPECT_EQ(1, registry.Abort("a", "them", Aborted("")));
  EXPECT_EQ(0, registry.Abort("a", "them", Aborted("")));
  EXPECT_EQ(0, registry.Abort("a", "unknown", Aborted("")));
  const CallRegistry::Ended ended = registry.AbortAll("", Aborted(""));
  EXPECT_THAT(ended.request_ids, ElementsAre("a", "b"));
  EXPECT_EQ(ended.calls, 2);
  EXPECT_THAT(calls[0]->status(), IsOk());
  EXPECT_THAT(calls[1]->status(), IsOk());
  EXPECT_THAT(calls[3]->status(), IsOk());
  EXPECT_EQ(registry.AbortAll(std::nullopt, Aborted("")).calls, 3);
}

// A call lets go of its registration while it is being ended: with a lock held this would hang.
TEST(CallRegistryTest, ACallMayUnregisterWhileItIsEnded) {
  CallRegistry registry;
  CallRegistry::Registration registration;
  const auto call =
      std::make_shared<FakeCall>([&] { registration = CallRegistry::Registration(); });
  registration = registry.Register("t", "a", call);
  EXPECT_EQ(1, registry.Abort("a", std::nullopt, Aborted("")));
  EXPECT_EQ(0, registry.Abort("a", std::nullopt, Aborted("")));
}

// Calls come and go while others end them; every call is ended at most once, and those that were
// ended are those that were counted.
TEST(CallRegistryTest, CallsMayComeGoAndBeEndedAtOnce) {
  constexpr int kCalls = 2000;
  CallRegistry registry;
  std::atomic<int> ended{0};
  std::atomic<int> counted{0};
  std::atomic<int> running{2};
  const auto serve = [&](const std::string& prefix) {
    for (int i = 0; i < kCalls; ++i) {
      const auto call = std::make_shared<FakeCall>([&] { ++ended; });
      const CallRegistry::Registration registration =
          registry.Register(prefix, prefix + std::to_string(i % 7), call);
      if (i % 3 == 0 && call->Abort(absl::OkStatus())) ++counted;
    }
    --running;
  };
  std::vector<std::thread> threads;
  threads.emplace_back(serve, "a");
  threads.emplace_back(serve, "b");
  threads.emplace_back([&] {
    while (running > 0) {
      counted += static_cast<int>(registry.Abort("a3", std::nullopt, Aborted("")));
      counted += static_cast<int>(registry.AbortAll(std::nullopt, Aborted("")).calls);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, counted);
  EXPECT_GE(ended, 2 * kCalls / 3);
  EXPECT_THAT(registry.AbortAll(std::nullopt, Aborted("")).request_ids, IsEmpty());
}

}  // namespace
}  // namespace tlm
