// Makes the statuses with which several parts of the server refuse a request or give it up.
#ifndef TLM_SERVER_OBSERVE_REFUSALS_H_
#define TLM_SERVER_OBSERVE_REFUSALS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/errors.h"

namespace tlm {

// Returns RESOURCE_EXHAUSTED, reason QUEUE_FULL, with the time after which to retry.
template <typename... Args>
absl::Status QueueFull(absl::Duration retry_after, fmt::format_string<Args...> format,
                       Args&&... args) {
  return WithRetryAfter(
      WithReason(ResourceExhausted(format, std::forward<Args>(args)...), "QUEUE_FULL"),
      retry_after);
}

enum class RequestStage { kArriving, kQueued, kRunning };

// Returns the DEADLINE_EXCEEDED of a request whose deadline passed at this stage: reason
// EXPIRED_RUNNING once it runs, before that EXPIRED_IN_QUEUE.
inline absl::Status Expired(RequestStage stage) {
  if (stage == RequestStage::kRunning) {
    return WithReason(DeadlineExceeded("the deadline passed while the request was running"),
                      "EXPIRED_RUNNING");
  }
  return WithReason(DeadlineExceeded("the deadline passed {} the request was queued",
                                     stage == RequestStage::kArriving ? "before" : "while"),
                    "EXPIRED_IN_QUEUE");
}

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_REFUSALS_H_
