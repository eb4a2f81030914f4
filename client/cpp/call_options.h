// Options of a call in addition to its request.
#ifndef TLM_CLIENT_CPP_CALL_OPTIONS_H_
#define TLM_CLIENT_CPP_CALL_OPTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/cancel_token.h"

namespace tlm::client {

// How a Generate call continues when its replica dies. Replicas are the client's targets, including
// a target that comes back: a single target that restarts is enough.
struct ResumePolicy {
  // The maximum number of times that one stream is continued. 0 = never: the request goes to one
  // target and its events are passed on unchanged.
  int max_resumes = 8;
  // Timeout of each search for a replica to continue on. Before the first event it bounds only the
  // wait for replicas that gave a retry time.
  absl::Duration timeout = absl::Seconds(10);
  // The pause after all targets were tried, doubled each time, with a jitter of up to one half.
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(1);
};

struct CallOptions {
  // Sets the deadline of the call, which the server sees too: DEADLINE_EXCEEDED after it.
  absl::Duration timeout = absl::InfiniteDuration();
  // Cancels the call from another thread. May be null; otherwise it must outlive the call.
  CancelToken* cancel = nullptr;
  // Wait for the server (within the timeout) instead of failing with UNAVAILABLE.
  bool wait_for_ready = false;
  // Further request metadata: {"traceparent", "00-..."}; lower-case keys.
  std::vector<std::pair<std::string, std::string>> metadata;
  // For Generate only.
  ResumePolicy resume;
  // For Generate with Balance::kPrefixAffinity only: calls with the same key go to the same target.
  // It is for applications that know what requests have in common: a session, a document.
  std::string affinity_key;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CALL_OPTIONS_H_
