// Where requests are read.
#ifndef TLM_SERVER_RPC_CALL_TEXT_POOLS_H_
#define TLM_SERVER_RPC_CALL_TEXT_POOLS_H_

#include <algorithm>
#include <cstdint>
#include <thread>

#include "server/admission/fair_pool.h"

namespace tlm {

// gRPC has few threads, and each is every call's: they read only what takes less time than a call
// does anyway. A pool each for short and for long texts, so that no prompt waits for a book.
// Thread-safe, but for the end.
class TextPools {
 public:
  // The most that is read at once, and the most that is short.
  static constexpr int64_t kAtOnceBytes = int64_t{4} << 10;
  static constexpr int64_t kShortBytes = int64_t{128} << 10;
  static constexpr int kLeastThreads = 2;

  // The pool for a request of so many bytes; null: it is read at once.
  FairPool* For(int64_t bytes) {
    if (bytes <= kAtOnceBytes) return nullptr;
    return bytes <= kShortBytes ? &short_ : &long_;
  }
  // As FairPool's.
  void Stop() {
    short_.Stop();
    long_.Stop();
  }
  int64_t waiting_bytes() const { return short_.waiting_bytes() + long_.waiting_bytes(); }

 private:
  static int LongThreads() {
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
  }

  FairPool short_{{.threads = 1}};
  FairPool long_{{.threads = LongThreads()}};
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_TEXT_POOLS_H_
