#include "model/ops/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

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

}  // namespace
}  // namespace tlm
