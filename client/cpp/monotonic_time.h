// The time that deadlines and pauses are measured with.
#ifndef TLM_CLIENT_CPP_MONOTONIC_TIME_H_
#define TLM_CLIENT_CPP_MONOTONIC_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace tlm::client {

// Of the monotonic clock, which no one sets; only differences mean anything.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_MONOTONIC_TIME_H_
