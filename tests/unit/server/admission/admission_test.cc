#include "server/admission/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "model/base/errors.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

Principal Tenant(const std::string& name, const TenantLimits& limits = {}) {
  Principal caller;
  caller.tenant = name;
  caller.limits = limits;
  return caller;
}

class AdmissionTest : public ::testing::Test {
 protected:
  absl::StatusOr<Admission::Ticket> Admit(const std::string& id, int64_t tokens = 1) {
    return admission_.Admit({caller_, id, tokens});
  }

  const Principal caller_;
  FakeClock clock_;
  Admission admission_{{.max_calls = 2, .max_tokens = 100}, clock_};
};

TEST_F(AdmissionTest, RefusesWithRetryTimeWhileStartingAndDraining) {
  for (const char* const reason : {"STARTING", "DRAINING"}) {
    const absl::Status status = Admit("a").status();
    EXPECT_THAT(status, StatusIs(kUnavailable, _));
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_TRUE(RetryAfterOf(status).has_value());
    admission_.Drain();
    admission_.Open();  // late: it stays so
  }
}

TEST_F(AdmissionTest, IsOpenWhenACallWouldBeAdmitted) {
  EXPECT_EQ(ReasonOf(admission_.Enter(caller_)), "STARTING");
  admission_.Open();
  EXPECT_THAT(admission_.Enter(caller_), IsOk());
  const absl::StatusOr<Admission::Ticket> first = Admit("a");
  {
    const absl::StatusOr<Admission::Ticket> second = Admit("b");
    EXPECT_THAT(admission_.Enter(caller_), StatusIs(kExhausted, _));
    EXPECT_EQ(ReasonOf(admission_.Enter(caller_)), "QUEUE_FULL");
  }
  EXPECT_THAT(admission_.Enter(caller_), IsOk());
  admission_.Drain();
  EXPECT_EQ(ReasonOf(admission_.Enter(caller_)), "DRAINING");
}

TEST_F(AdmissionTest, ACallThatFindsTheQueueFullIsNotCharged) {
  absl::Status queue = ResourceExhausted("the queue is full");
  const Principal caller = Tenant("acme", {.requests_per_minute = 1});
  Admission admission({}, clock_, [&queue] { return queue; });
  EXPECT_EQ(ReasonOf(admission.Enter(caller)), "STARTING");
  admission.Open();
  EXPECT_EQ(admission.Enter(caller), queue);
  queue = absl::OkStatus();
  EXPECT_THAT(admission.Enter(caller), IsOk());
  EXPECT_EQ(ReasonOf(admission.Enter(caller)), "TENANT_QUOTA");
}

TEST_F(AdmissionTest, AdmitsAnIdAgainOnceItsTicketIsGone) {
  admission_.Open();
  std::optional<absl::StatusOr<Admission::Ticket>> first = Admit("a");
  ASSERT_THAT(*first, IsOk());
  const absl::Status duplicate = Admit("a").status();
  EXPECT_THAT(duplicate, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("request_id")));
  EXPECT_EQ(FieldOf(duplicate), "request_id");
  first.reset();
  EXPECT_THAT(Admit("a"), IsOk());
}

TEST_F(AdmissionTest, RefusesMoreCallsThanTheLimit) {
  admission_.Open();
  const auto a = Admit("a");
  auto b = Admit("b");
  const absl::Status third = Admit("c").status();
  EXPECT_THAT(third, StatusIs(kExhausted, HasSubstr("the limit is 2")));
  EXPECT_EQ(ReasonOf(third), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(third).has_value());
  b = absl::CancelledError();
  EXPECT_THAT(Admit("c"), IsOk());
}

TEST_F(AdmissionTest, RefusesMoreTokensThanTheLimit) {
  admission_.Open();
  auto a = Admit("a", 60);
  const absl::Status refused = Admit("b", 41).status();
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("the limit of 100")));
  EXPECT_EQ(ReasonOf(refused), "QUEUED_TOKENS");
  EXPECT_THAT(Admit("b", 40), IsOk());
  a = absl::CancelledError();
  EXPECT_THAT(Admit("c", 100), IsOk());
}

TEST_F(AdmissionTest, RefusedCallsLeaveNothingBehind) {
  admission_.Open();
  { const auto refused = Admit("a", 101); }
  EXPECT_EQ(admission_.active_calls(), 0);
  EXPECT_THAT(Admit("a", 100), IsOk());
}

TEST_F(AdmissionTest, RefusesACallAfterItsDeadline) {
  admission_.Open();
  clock_.Advance(absl::Seconds(10));
  const absl::Status status = admission_.Admit({caller_, "a", 1, clock_.Now()}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_EQ(ReasonOf(status), "EXPIRED_IN_QUEUE");
  EXPECT_THAT(admission_.Admit({caller_, "a", 1, clock_.Now() + absl::Nanoseconds(1)}), IsOk());
}

TEST_F(AdmissionTest, MovedTicketsAreGivenBackOnce) {
  admission_.Open();
  {
    Admission::Ticket outer;
    {
      Admission::Ticket inner = *Admit("a", 10);
      outer = std::move(inner);
    }
    EXPECT_EQ(admission_.active_calls(), 1);
    Admission::Ticket last(std::move(outer));
    EXPECT_EQ(admission_.active_calls(), 1);
  }
  EXPECT_EQ(admission_.active_calls(), 0);
  EXPECT_THAT(Admit("b", 100), IsOk());
}

TEST_F(AdmissionTest, AnIdMayBeFreeBeforeItsCallIsCountedOut) {
  admission_.Open();
  {
    Admission::Ticket first = *Admit("a", 10);
    EXPECT_THAT(Admit("a"), StatusIs(absl::StatusCode::kAlreadyExists, _));
    first.FreeRequestId();
    first.FreeRequestId();
    EXPECT_EQ(admission_.active_calls(), 1);
    const Admission::Ticket second = *Admit("a");
    EXPECT_EQ(admission_.active_calls(), 2);
    first = Admission::Ticket();
    EXPECT_EQ(admission_.active_calls(), 1);
    EXPECT_THAT(Admit("a"), StatusIs(absl::StatusCode::kAlreadyExists, _));
  }
  EXPECT_EQ(admission_.active_calls(), 0);
}

TEST_F(AdmissionTest, TenantsDoNotSeeEachOthersIds) {
  admission_.Open();
  const Principal acme = Tenant("acme");
  const auto first = admission_.Admit({acme, "a", 1});
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(admission_.Admit({acme, "a", 1}), StatusIs(absl::StatusCode::kAlreadyExists, _));
  EXPECT_THAT(admission_.Admit({Tenant("other"), "a", 1}), IsOk());
}

TEST_F(AdmissionTest, HoldsATenantToItsLimits) {
  admission_.Open();
  const Principal acme = Tenant("acme", {.tokens_per_minute = 50});
  {
    Admission::Ticket ticket = *admission_.Admit({acme, "a", 10});
    EXPECT_THAT(admission_.Admit({acme, "a", 10}), StatusIs(absl::StatusCode::kAlreadyExists, _));
    ticket.ChargeOutput(30);
  }
  { Admission::Ticket ticket = *admission_.Admit({acme, "b", 10}); }
  const absl::Status refused = admission_.Admit({acme, "c", 1}).status();
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("50 tokens per minute")));
  EXPECT_EQ(ReasonOf(refused), "TENANT_QUOTA");
  EXPECT_EQ(ReasonOf(admission_.Enter(acme)), "TENANT_QUOTA");
  EXPECT_THAT(admission_.Enter(caller_), IsOk());
  clock_.Advance(*RetryAfterOf(refused));
  {
    Admission::Ticket ticket = *admission_.Admit({acme, "c", 1});
    ticket.Refund();
  }
  EXPECT_THAT(admission_.Admit({acme, "d", 1}), IsOk());
}

TEST_F(AdmissionTest, ComingInIsARequestWhateverBecomesOfIt) {
  admission_.Open();
  const Principal acme = Tenant("acme", {.requests_per_minute = 3});
  EXPECT_THAT(admission_.Enter(acme), IsOk());  // and is never admitted
  EXPECT_THAT(admission_.CountRequest(acme), IsOk());
  EXPECT_THAT(admission_.Enter(acme), IsOk());
  {
    Admission::Ticket ticket = *admission_.Admit({acme, "a", 1});
    ticket.Refund();
  }
  EXPECT_EQ(ReasonOf(admission_.CountRequest(acme)), "TENANT_QUOTA");
  const absl::Status refused = admission_.Enter(acme);
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("3 requests per minute")));
  clock_.Advance(*RetryAfterOf(refused));
  EXPECT_THAT(admission_.Enter(acme), IsOk());
  EXPECT_THAT(admission_.Enter(caller_), IsOk());
}

TEST_F(AdmissionTest, NoCallIsAboveItsTenantsPriority) {
  admission_.Open();
  const Principal acme = Tenant("acme", {.max_priority = 3});
  const absl::Status refused =
      admission_.Admit({.caller = acme, .request_id = "a", .priority = 4}).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kPermissionDenied,
                                HasSubstr("priority is 4, the limit of this tenant is 3")));
  EXPECT_EQ(ReasonOf(refused), "TENANT_PRIORITY");
  EXPECT_THAT(admission_.Admit({.caller = acme, .request_id = "a", .priority = 3}), IsOk());
  EXPECT_THAT(admission_.Admit({.caller = acme, .request_id = "b", .priority = -kMaxPriority}),
              IsOk());
  EXPECT_THAT(admission_.Admit({.caller = caller_, .request_id = "c", .priority = kMaxPriority}),
              IsOk());
}

TEST_F(AdmissionTest, WaitsUntilTheLastTicketIsBack) {
  admission_.Open();
  std::optional<Admission::Ticket> ticket = *Admit("a");
  EXPECT_FALSE(admission_.WaitUntilEmpty(absl::Milliseconds(1)));
  std::thread returner([&] { ticket.reset(); });
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  returner.join();
}

TEST_F(AdmissionTest, InterruptEndsTheWait) {
  admission_.Open();
  const Admission::Ticket ticket = *Admit("a");
  std::thread interrupter([&] { admission_.Interrupt(); });
  EXPECT_FALSE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  interrupter.join();
}

}  // namespace
}  // namespace tlm
