#include "model/weights/parallel_pieces.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace tlm {
namespace {

TEST(ForEachPieceTest, CallsOnceForEveryPiece) {
  for (const int threads : {0, 1, 3, 100}) {
    for (const int64_t pieces : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(pieces);
      ForEachPiece(pieces, threads, [&](int64_t i) { ++calls[i]; });
      for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ForEachPieceTest, TakesNoMoreThreadsThanAskedFor) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  ForEachPiece(1000, 2, [&](int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_LE(seen.size(), 2u);
  const std::thread::id caller = std::this_thread::get_id();
  ForEachPiece(1000, 1, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

}  // namespace
}  // namespace tlm
