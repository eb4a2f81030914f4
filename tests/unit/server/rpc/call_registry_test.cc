#include "server/rpc/call_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  const CallRegistry::Registration first = registry.Register("a", a);
  const CallRegistry::Registration second = registry.Register("b", b);
  EXPECT_TRUE(registry.Abort("a", Aborted("enough")));
  EXPECT_THAT(a->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(b->status(), IsOk());
}

TEST(CallRegistryTest, EndsAllCallsOfOneName) {
  CallRegistry registry;
  const auto first = std::make_shared<FakeCall>();
  const auto second = std::make_shared<FakeCall>();
  const CallRegistry::Registration one = registry.Register("a", first);
  {
    const CallRegistry::Registration two = registry.Register("a", second);
    EXPECT_TRUE(registry.Abort("a", Aborted("enough")));
  }
  EXPECT_THAT(first->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(second->status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  const auto third = std::make_shared<FakeCall>();
  const CallRegistry::Registration three = registry.Register("a", third);
  EXPECT_THAT(registry.AbortAll(Aborted("all")), ElementsAre("a"));
  EXPECT_THAT(third->status(), StatusIs(absl::StatusCode::kAborted, "all"));
}

TEST(CallRegistryTest, DoesNotEndWhatIsUnknownOrHasEnded) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  const CallRegistry::Registration registration = registry.Register("a", call);
  EXPECT_FALSE(registry.Abort("b", Aborted("")));
  EXPECT_TRUE(registry.Abort("a", Aborted("")));
  EXPECT_FALSE(registry.Abort("a", Aborted("")));
}

TEST(CallRegistryTest, ACallIsUnknownAfterItsRegistration) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  std::optional<CallRegistry::Registration> registration = registry.Register("a", call);
  registration.reset();
  EXPECT_FALSE(registry.Abort("a", Aborted("")));
  EXPECT_THAT(registry.AbortAll(Aborted("")), IsEmpty());
}

TEST(CallRegistryTest, AMovedRegistrationEndsOnce) {
  CallRegistry registry;
  const auto call = std::make_shared<FakeCall>();
  CallRegistry::Registration kept;
  {
    CallRegistry::Registration made = registry.Register("a", call);
    kept = std::move(made);
  }
  EXPECT_TRUE(registry.Abort("a", Aborted("")));
}

TEST(CallRegistryTest, ACallThatIsGoneIsNotEnded) {
  CallRegistry registry;
  auto call = std::make_shared<FakeCall>();
  const CallRegistry::Registration registration = registry.Register("a", call);
  call.reset();
  EXPECT_FALSE(registry.Abort("a", Aborted("")));
}

TEST(CallRegistryTest, TheEndOfAnEarlierCallLeavesTheLaterOneOfItsNameRegistered) {
  CallRegistry registry;
  const auto first = std::make_shared<FakeCall>();
  const auto second = std::make_shared<FakeCall>();
  std::optional<CallRegistry::Registration> earlier = registry.Register("a", first);
  const CallRegistry::Registration later = registry.Register("a", second);
  earlier.reset();
  EXPECT_TRUE(registry.Abort("a", Aborted("mine")));
  EXPECT_THAT(second->status(), StatusIs(absl::StatusCode::kAborted, "mine"));
}

TEST(CallRegistryTest, AbortAllNamesWhatItEndedInOrder) {
  CallRegistry registry;
  const auto a = std::make_shared<FakeCall>();
  const auto b = std::make_shared<FakeCall>();
  const auto c = std::make_shared<FakeCall>();
  const CallRegistry::Registration third = registry.Register("c", c);
  const CallRegistry::Registration first = registry.Register("a", a);
  const CallRegistry::Registration second = registry.Register("b", b);
  EXPECT_TRUE(registry.Abort("b", Aborted("")));
  EXPECT_THAT(registry.AbortAll(Aborted("")), ElementsAre("a", "c"));
}

// A call lets go of its registration while it is being ended: with a lock held this would hang.
TEST(CallRegistryTest, ACallMayUnregisterWhileItIsEnded) {
  CallRegistry registry;
  CallRegistry::Registration registration;
  const auto call =
      std::make_shared<FakeCall>([&] { registration = CallRegistry::Registration(); });
  registration = registry.Register("a", call);
  EXPECT_TRUE(registry.Abort("a", Aborted("")));
  EXPECT_FALSE(registry.Abort("a", Aborted("")));
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
          registry.Register(prefix + std::to_string(i % 7), call);
      if (i % 3 == 0 && call->Abort(absl::OkStatus())) ++counted;
    }
    --running;
  };
  std::vector<std::thread> threads;
  threads.emplace_back(serve, "a");
  threads.emplace_back(serve, "b");
  threads.emplace_back([&] {
    while (running > 0) {
      if (registry.Abort("a3", Aborted(""))) ++counted;
      counted += static_cast<int>(registry.AbortAll(Aborted("")).size());
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, counted);
  EXPECT_GE(ended, 2 * kCalls / 3);
  EXPECT_THAT(registry.AbortAll(Aborted("")), IsEmpty());
}

}  // namespace
}  // namespace tlm
