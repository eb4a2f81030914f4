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

class CallRegistryTest : public ::testing::Test {
 protected:
  // A call that is registered until it is let go of.
  struct Registered {
    std::shared_ptr<FakeCall> call;
    CallRegistry::Registration registration;

    const absl::Status& status() const { return call->status(); }
  };
  Registered Register(const std::string& id, const std::string& tenant = "t") {
    Registered made;
    made.call = std::make_shared<FakeCall>();
    made.registration = registry_.Register(tenant, id, made.call);
    return made;
  }
  // How many calls that ends.
  int64_t Abort(const std::string& id, std::optional<std::string> tenant = std::nullopt) {
    return registry_.Abort(id, tenant, Aborted("enough"));
  }
  CallRegistry::Ended AbortAll(std::optional<std::string> tenant = std::nullopt) {
    return registry_.AbortAll(tenant, Aborted("all"));
  }

  CallRegistry registry_;
};

TEST_F(CallRegistryTest, EndsEveryCallOfTheNameWithTheStatus) {
  const Registered first = Register("a");
  const Registered other = Register("b");
  {
    const Registered second = Register("a");
    EXPECT_EQ(2, Abort("a"));
    EXPECT_THAT(second.status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  }
  EXPECT_THAT(first.status(), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(other.status(), IsOk());
  const Registered third = Register("a");
  EXPECT_THAT(AbortAll().request_ids, ElementsAre("a", "b"));
  EXPECT_THAT(third.status(), StatusIs(absl::StatusCode::kAborted, "all"));
}

TEST_F(CallRegistryTest, DoesNotEndWhatIsUnknownOrHasEnded) {
  const Registered call = Register("a");
  EXPECT_EQ(0, Abort("b"));
  EXPECT_EQ(1, Abort("a"));
  EXPECT_EQ(0, Abort("a"));
}

TEST_F(CallRegistryTest, ACallIsUnknownAfterItsRegistration) {
  std::optional<Registered> call = Register("a");
  Registered gone = Register("gone");
  gone.call.reset();
  call.reset();
  EXPECT_EQ(0, Abort("a"));
  EXPECT_EQ(0, Abort("gone"));
  EXPECT_THAT(AbortAll().request_ids, IsEmpty());
}

TEST_F(CallRegistryTest, AMovedRegistrationEndsOnce) {
  Registered kept;
  {
    Registered made = Register("a");
    kept = std::move(made);
  }
  EXPECT_EQ(1, Abort("a"));
}

TEST_F(CallRegistryTest, TheEndOfAnEarlierCallLeavesTheLaterOneOfItsNameRegistered) {
  std::optional<Registered> earlier = Register("a");
  const Registered later = Register("a");
  earlier.reset();
  EXPECT_EQ(1, Abort("a"));
  EXPECT_THAT(later.status(), StatusIs(absl::StatusCode::kAborted, "enough"));
}

TEST_F(CallRegistryTest, AbortAllNamesWhatItEndedInOrderAndCountsEveryCall) {
  const Registered c = Register("c");
  const Registered a = Register("a", "me");
  const Registered also_a = Register("a", "them");
  const Registered b = Register("b");
  EXPECT_EQ(1, Abort("b"));
  const CallRegistry::Ended ended = AbortAll();
  EXPECT_THAT(ended.request_ids, ElementsAre("a", "c"));
  EXPECT_EQ(ended.calls, 3);
}

TEST_F(CallRegistryTest, EndsTheCallsOfOneTenantAlone) {
  std::vector<Registered> calls;
  for (const char* const tenant : {"me", "them", ""}) {
    for (const char* const id : {"a", "b"}) calls.push_back(Register(id, tenant));
  }
  EXPECT_EQ(1, Abort("a", "them"));
  EXPECT_EQ(0, Abort("a", "them"));
  EXPECT_EQ(0, Abort("a", "unknown"));
  const CallRegistry::Ended ended = AbortAll("");
  EXPECT_THAT(ended.request_ids, ElementsAre("a", "b"));
  EXPECT_EQ(ended.calls, 2);
  for (const size_t spared : {0, 1, 3}) EXPECT_THAT(calls[spared].status(), IsOk());
  EXPECT_EQ(AbortAll().calls, 3);
}

// A call lets go of its registration while it is being ended: with a lock held this would hang.
TEST_F(CallRegistryTest, ACallMayUnregisterWhileItIsEnded) {
  CallRegistry::Registration registration;
  const auto call =
      std::make_shared<FakeCall>([&] { registration = CallRegistry::Registration(); });
  registration = registry_.Register("t", "a", call);
  EXPECT_EQ(1, Abort("a"));
  EXPECT_EQ(0, Abort("a"));
}

// Calls come and go while others end them; every call is ended at most once, and those that were
// ended are those that were counted.
TEST_F(CallRegistryTest, CallsMayComeGoAndBeEndedAtOnce) {
  constexpr int kCalls = 2000;
  std::atomic<int> ended{0};
  std::atomic<int> counted{0};
  std::atomic<int> running{2};
  const auto serve = [&](const std::string& prefix) {
    for (int i = 0; i < kCalls; ++i) {
      const auto call = std::make_shared<FakeCall>([&] { ++ended; });
      const CallRegistry::Registration registration =
          registry_.Register(prefix, prefix + std::to_string(i % 7), call);
      if (i % 3 == 0 && call->Abort(absl::OkStatus())) ++counted;
    }
    --running;
  };
  std::vector<std::thread> threads;
  threads.emplace_back(serve, "a");
  threads.emplace_back(serve, "b");
  threads.emplace_back([&] {
    while (running > 0) {
      counted += static_cast<int>(Abort("a3") + AbortAll().calls);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, counted);
  EXPECT_GE(ended, 2 * kCalls / 3);
  EXPECT_THAT(AbortAll().request_ids, IsEmpty());
}

}  // namespace
}  // namespace tlm
