#include "model/weights/parallel_pieces.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace tlm {

void ForEachPiece(int64_t pieces, int threads, absl::FunctionRef<void(int64_t)> work) {
  constexpr int kMaxThreads = 32;
  if (threads <= 0) {
    threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  }
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t i = next++; i < pieces; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  try {
    while (static_cast<int64_t>(others.size()) + 1 < std::min<int64_t>(threads, pieces)) {
      others.emplace_back(run);
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: the existing threads do the work.
  }
  run();
}

}  // namespace tlm
