#include "server/admission/fair_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMaxWaiting = 1000;
constexpr int64_t kMaxHeld = 500;

// A pool whose only thread is busy until Open(): what is added meanwhile waits.
class FairPoolTest : public ::testing::Test {
 protected:
  FairPoolTest() {
    std::promise<void> begun;
    const auto turn = pool_->Add("a blocker", 1, [this, &begun](const absl::Status&) {
      begun.set_value();
      open_.get_future().wait();
    });
    EXPECT_THAT(turn, IsOk());
    begun.get_future().wait();
  }

  // A job that leaves its name.
  absl::Status Add(const std::string& tenant, int64_t bytes, const std::string& name) {
    absl::StatusOr<FairPool::Undo> turn =
        pool_->Add(tenant, bytes, [this, name](const absl::Status& status) {
          MutexLock lock(&mutex_);
          (status.ok() ? done_ : lost_).push_back(name);
          if (!status.ok()) lost_status_ = status;
          changed_.NotifyAll();
        });
    if (turn.ok()) turns_.push_back(*std::move(turn));
    return turn.status();
  }
  void Open() { open_.set_value(); }
  // The names of the first `count` jobs, in the order they were done.
  std::vector<std::string> WaitForJobs(size_t count) {
    MutexLock lock(&mutex_);
    while (done_.size() < count) changed_.Wait(&mutex_);
    return done_;
  }
  std::vector<std::string> lost() {
    MutexLock lock(&mutex_);
    return lost_;
  }
  absl::Status lost_status() {
    MutexLock lock(&mutex_);
    return lost_status_;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> done_ TLM_GUARDED_BY(mutex_);
  std::vector<std::string> lost_ TLM_GUARDED_BY(mutex_);
  absl::Status lost_status_ TLM_GUARDED_BY(mutex_);
  std::promise<void> open_;
  std::unique_ptr<FairPool> pool_ = std::make_unique<FairPool>(
      FairPoolLimits{.threads = 1, .max_waiting_bytes = kMaxWaiting, .max_held_bytes = kMaxHeld});
  std::vector<FairPool::Undo> turns_;  // of the jobs that were added
};

TEST_F(FairPoolTest, OneTenantsJobsAreDoneInTheOrderTheyCome) {
  for (const char* const name : {"1", "2", "3"}) EXPECT_THAT(Add("a", 10, name), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(3), ElementsAre("1", "2", "3"));
  EXPECT_EQ(pool_->waiting_bytes(), 0);
}

TEST_F(FairPoolTest, TenantsTakeTurns) {
  for (const char* const name : {"a1", "a2", "a3"}) EXPECT_THAT(Add("a", 10, name), IsOk());
  for (const char* const name : {"b1", "b2"}) EXPECT_THAT(Add("b", 10, name), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(5), ElementsAre("a1", "b1", "a2", "b2", "a3"));
}

TEST_F(FairPoolTest, TurnsAreOfBytesRatherThanOfJobs) {
  for (const char* const name : {"a1", "a2"}) EXPECT_THAT(Add("a", 300, name), IsOk());
  for (const char* const name : {"b1", "b2", "b3", "b4"}) EXPECT_THAT(Add("b", 100, name), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(6), ElementsAre("a1", "b1", "b2", "b3", "a2", "b4"));
}

TEST_F(FairPoolTest, TheTenantWithTheLeastServiceIsNext) {
  EXPECT_THAT(Add("a", 300, "a1"), IsOk());
  EXPECT_THAT(Add("b", 300, "b1"), IsOk());
  EXPECT_THAT(Add("b", 300, "b2"), IsOk());
  EXPECT_THAT(Add("c", 50, "c1"), IsOk());
  EXPECT_THAT(Add("c", 50, "c2"), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(5), ElementsAre("a1", "b1", "c1", "c2", "b2"));
}

TEST_F(FairPoolTest, ATenantThatFillsThePoolIsRefusedMore) {
  EXPECT_THAT(Add("a", kMaxWaiting, "a1"), IsOk());
  const absl::Status refused = Add("a", 1, "a2");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(refused).has_value());
  EXPECT_EQ(pool_->waiting_bytes(), kMaxWaiting);
  Open();
  WaitForJobs(1);
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(FairPoolTest, AnotherTenantTakesTheRoomOfItsLatestJobs) {
  for (const char* const name : {"a1", "a2", "a3"}) EXPECT_THAT(Add("a", 300, name), IsOk());
  EXPECT_THAT(Add("b", 200, "b1"), IsOk());
  EXPECT_THAT(lost(), ElementsAre("a3"));
  EXPECT_EQ(ReasonOf(lost_status()), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(lost_status()).has_value());
  EXPECT_THAT(Add("a", 300, "a4"), StatusIs(absl::StatusCode::kResourceExhausted, _))
      << "more than half would be a's";
  Open();
  EXPECT_THAT(WaitForJobs(3), ElementsAre("a1", "b1", "a2"));
}

TEST_F(FairPoolTest, AJobThatIsWithdrawnMakesRoomAndIsNotCalled) {
  EXPECT_THAT(Add("a", kMaxWaiting, "a1"), IsOk());
  turns_.clear();
  EXPECT_EQ(pool_->waiting_bytes(), 0);
  EXPECT_THAT(Add("a", kMaxWaiting, "a2"), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(1), ElementsAre("a2"));
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(FairPoolTest, ATenantWithUnreadResultsWaitsAlone) {
  std::optional<FairPool::Undo> held = pool_->Hold("a", kMaxHeld + 1);
  EXPECT_THAT(Add("a", 10, "a1"), IsOk());
  EXPECT_THAT(Add("b", 10, "b1"), IsOk());
  EXPECT_THAT(Add("b", 10, "b2"), IsOk());
  Open();
  EXPECT_THAT(WaitForJobs(2), ElementsAre("b1", "b2"));
  EXPECT_EQ(pool_->waiting_bytes(), 10);
  held.reset();
  EXPECT_THAT(WaitForJobs(3), ElementsAre("b1", "b2", "a1"));
}

TEST_F(FairPoolTest, WhatWaitsAtTheEndIsToldSo) {
  EXPECT_THAT(Add("a", 10, "a1"), IsOk());
  auto stopped = std::async(std::launch::async, [this] { pool_->Stop(); });
  {
    MutexLock lock(&mutex_);
    while (lost_.empty()) changed_.Wait(&mutex_);
  }
  EXPECT_THAT(lost(), ElementsAre("a1"));
  EXPECT_THAT(lost_status(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_EQ(ReasonOf(lost_status()), "DRAINING");
  Open();
  stopped.get();
  EXPECT_THAT(Add("a", 10, "a2"), StatusIs(absl::StatusCode::kUnavailable, _));
}

TEST_F(FairPoolTest, ManyThreadsAddWithdrawAndLoseJobs) {
  Open();
  std::vector<std::future<void>> adders;
  for (const char* const tenant : {"a", "b", "c", "d"}) {
    adders.push_back(std::async(std::launch::async, [this, tenant] {
      for (int i = 0; i < 2000; ++i) {
        auto called = std::make_shared<std::promise<void>>();
        absl::StatusOr<FairPool::Undo> turn =
            pool_->Add(tenant, 1 + i % 400, [called](const absl::Status&) { called->set_value(); });
        if (turn.ok() && i % 3 == 0) called->get_future().wait();
      }
    }));
  }
  for (std::future<void>& adder : adders) adder.get();
  pool_->Stop();
  EXPECT_EQ(pool_->waiting_bytes(), 0);
}

}  // namespace
}  // namespace tlm
