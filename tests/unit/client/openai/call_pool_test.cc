// The pool runs tasks on a bounded number of threads and queues a bounded number.
#include "client/openai/routes/call_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace tlm::openai {
namespace {

// Blocks tasks until it is opened, and counts those that have begun.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void WaitForBegun(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= count; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  bool open_ = false;
};

TEST(CallPoolTest, RefusesMoreThanItsThreadsAndItsQueueHold) {
  Gate gate;
  std::atomic<int> done{0};
  {
    CallPool pool(2, 3);
    const CallPool::Task task = [&] {
      gate.Pass();
      ++done;
    };
    EXPECT_FALSE(pool.Submit(std::vector<CallPool::Task>(6, task)));
    EXPECT_TRUE(pool.Submit({task, task}));
    gate.WaitForBegun(2);
    EXPECT_EQ(pool.running(), 2U);
    EXPECT_FALSE(pool.Submit(std::vector<CallPool::Task>(4, task)));
    EXPECT_TRUE(pool.Submit(std::vector<CallPool::Task>(3, task)));
    EXPECT_EQ(pool.queued(), 3U);
    EXPECT_FALSE(pool.Submit({task}));
    gate.Open();
  }
  EXPECT_EQ(done, 5);  // the destructor waits
}

TEST(CallPoolTest, AThreadRunsOneTaskAfterAnother) {
  std::atomic<int> done{0};
  {
    CallPool pool(1, 100);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.Submit({[&done] { ++done; }}));
  }
  EXPECT_EQ(done, 50);
}

}  // namespace
}  // namespace tlm::openai
