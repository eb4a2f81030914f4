// Owns the thread pools that parse and tokenize long requests.
#ifndef TLM_SERVER_RPC_CALL_TEXT_POOLS_H_
#define TLM_SERVER_RPC_CALL_TEXT_POOLS_H_

#include <algorithm>
#include <cstdint>
#include <thread>

#include "server/admission/fair_pool.h"

namespace tlm {

// gRPC has few threads, shared by all calls: they parse only requests that take less time to parse
// than the rest of the call takes. Short and long texts have separate pools, so that no short
// prompt waits for a very long one. Thread-safe, except for destruction.
class TextPools {
 public:
  // The largest request that gRPC's threads parse, and the largest one in the short pool.
  static constexpr int64_t kAtOnceBytes = int64_t{4} << 10;
  static constexpr int64_t kShortBytes = int64_t{128} << 10;
  static constexpr int kMinThreads = 2;

  // Returns the pool for a request of this many bytes; null: gRPC's thread parses it.
  FairPool* For(int64_t bytes) {
    if (bytes <= kAtOnceBytes) return nullptr;
    return bytes <= kShortBytes ? &short_ : &long_;
  }
  // Calls FairPool::Stop of both pools.
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
