#include "model/ops/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "model/ops/cpu/processors.h"

namespace tlm {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnceInManyLoopsOfManySizes) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int loop = 0; loop < 2000; ++loop) {
      const int64_t tasks = loop % 37;
      std::vector<std::atomic<int>> runs(37);
      pool.ParallelFor(tasks, [&runs](int64_t task) { runs[task].fetch_add(1); });
      for (int64_t task = 0; task < 37; ++task) {
        ASSERT_EQ(runs[task].load(), task < tasks ? 1 : 0) << "loop " << loop;
      }
    }
  }
}

TEST(ThreadPoolTest, WritesOfTheTasksAreSeenByTheCaller) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000);
  for (int64_t loop = 1; loop <= 200; ++loop) {
    pool.ParallelFor(1000, [&](int64_t task) { values[task] += task * loop; });
  }
  for (int64_t task = 0; task < 1000; ++task) ASSERT_EQ(values[task], task * 200 * 201 / 2);
}

TEST(ThreadPoolTest, ManySmallLoopsFollowEachOtherAtOnce) {
  ThreadPool pool(2);
  int64_t sums[2] = {};  // each task's own: a loop that overlapped the next would race
  for (int64_t loop = 0; loop < 100'000; ++loop) {
    pool.ParallelFor(2, [&](int64_t task) { sums[task] += loop; });
  }
  EXPECT_EQ(sums[0], int64_t{100'000} * 99'999 / 2);
  EXPECT_EQ(sums[1], sums[0]);
}

TEST(ThreadPoolTest, TasksOfOneWorkerNeverOverlap) {
  ThreadPool pool(4);
  std::vector<int64_t> scratch(4);  // not atomic: what a worker keeps for itself
  for (int loop = 0; loop < 500; ++loop) {
    pool.ParallelFor(97, [&](int64_t, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, 4);
      ++scratch[worker];
    });
  }
  EXPECT_EQ(scratch[0] + scratch[1] + scratch[2] + scratch[3], 500 * 97);
}

TEST(ThreadPoolTest, TheCallerIsWorkerZero) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const std::thread::id caller = std::this_thread::get_id();
    for (int loop = 0; loop < 200; ++loop) {
      pool.ParallelFor(loop % 7, [&](int64_t, int worker) {
        EXPECT_EQ(worker == 0, std::this_thread::get_id() == caller);
      });
    }
  }
}

TEST(ThreadPoolTest, ACallerBeginsWithItsShareInOrder) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 200; ++loop) {
    std::vector<int64_t> order;
    pool.ParallelFor(30, [&](int64_t task, int worker) {
      if (worker == 0) order.push_back(task);
    });
    // It may have been helped with its share, and have helped with others'.
    int64_t previous = -1;
    for (const int64_t task : order) {
      if (task >= 10) break;
      ASSERT_GT(task, previous);
      previous = task;
    }
  }
}

TEST(ThreadPoolTest, MoreThreadsThanProcessorsFinishTheirLoops) {
  ThreadPool pool(64);
  std::atomic<int64_t> runs = 0;
  for (int loop = 0; loop < 300; ++loop) {
    pool.ParallelFor(loop % 130, [&](int64_t) { runs.fetch_add(1, std::memory_order_relaxed); });
  }
  int64_t expected = 0;
  for (int loop = 0; loop < 300; ++loop) expected += loop % 130;
  EXPECT_EQ(runs.load(), expected);
}

TEST(ThreadPoolTest, AnyThreadMayCallOneAfterTheOther) {
  ThreadPool pool(2);
  int64_t sum = 0;
  std::vector<int64_t> values(64);
  for (int turn = 0; turn < 50; ++turn) {
    std::thread([&] { pool.ParallelFor(64, [&](int64_t task) { ++values[task]; }); }).join();
  }
  for (const int64_t value : values) sum += value;
  EXPECT_EQ(sum, 50 * 64);
}

TEST(ThreadPoolDeathTest, ALoopWithinALoopIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.ParallelFor(1, [&](int64_t) { pool.ParallelFor(1, [](int64_t) {}); });
      },
      "");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(8, [&](int64_t) { pool.ParallelFor(8, [](int64_t) {}); });
      },
      "");
}

TEST(PinningTest, EveryWorkerHasAProcessorOfItsOwnAndTheCallerIsFreeAfterwards) {
  const std::vector<int> processors = UsableProcessors();
  if (processors.size() < 2) GTEST_SKIP() << "this process may use one processor";
  const auto threads = static_cast<int>(processors.size());
  ThreadPool pool(threads, /*pinned=*/true);
  EXPECT_TRUE(pool.pinned());
  EXPECT_EQ(UsableProcessors(), processors);
  pool.AdoptCaller();
  pool.AdoptCaller();
  for (int loop = 0; loop < 100; ++loop) {
    pool.ParallelFor(4 * threads, [&](int64_t, int worker) {
      ASSERT_EQ(UsableProcessors(), std::vector<int>{processors[worker]});
    });
  }
  pool.ReleaseCaller();
  EXPECT_EQ(UsableProcessors(), processors);
}

TEST(PinningTest, APoolsEndFreesItsCaller) {
  const std::vector<int> processors = UsableProcessors();
  auto pool = std::make_unique<ThreadPool>(static_cast<int>(processors.size()), /*pinned=*/true);
  pool->AdoptCaller();
  pool.reset();
  EXPECT_EQ(UsableProcessors(), processors);
}

TEST(PinningTest, ReleaseCallerFromAThreadThatIsNotPinnedChangesNothing) {
  const std::vector<int> processors = UsableProcessors();
  ThreadPool pool(static_cast<int>(processors.size()), /*pinned=*/true);
  std::thread([&pool] { pool.AdoptCaller(); }).join();
  pool.ReleaseCaller();
  EXPECT_EQ(UsableProcessors(), processors);
  pool.AdoptCaller();
  EXPECT_EQ(UsableProcessors().size(), pool.pinned() ? 1 : processors.size());
  pool.ReleaseCaller();
  EXPECT_EQ(UsableProcessors(), processors);
}

TEST(PinningTest, IsOnlyDoneWhereThreadsAndProcessorsAreAsMany) {
  const std::vector<int> processors = UsableProcessors();
  const auto count = static_cast<int>(processors.size());
  for (const int threads : {1, count - 1, count + 1}) {
    if (threads < 1) continue;
    ThreadPool pool(threads, /*pinned=*/true);
    EXPECT_FALSE(pool.pinned() && threads != count) << threads;
    pool.AdoptCaller();
    pool.ParallelFor(4 * threads, [&](int64_t) { EXPECT_EQ(UsableProcessors(), processors); });
    pool.ReleaseCaller();
  }
  EXPECT_FALSE(ThreadPool(count).pinned());
}

}  // namespace
}  // namespace tlm
