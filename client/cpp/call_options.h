// What a caller may say about a call besides its request.
#ifndef TLM_CLIENT_CPP_CALL_OPTIONS_H_
#define TLM_CLIENT_CPP_CALL_OPTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/cancel_token.h"

namespace tlm::client {

// How a Generate call goes on when the replica that serves it dies. Replicas are the client's
// targets; one that comes back counts too, so that a single target that restarts is enough.
struct ResumePolicy {
  // How often one stream is continued, at the most. 0 = never: the request goes to one target and
  // its events come as they are.
  int max_resumes = 8;
  // How long a replica to continue on is looked for, each time. Before anything was received it
  // only bounds the waiting for replicas that say when to come back.
  absl::Duration patience = absl::Seconds(10);
  // The pause after all targets were tried, doubled each time; randomly shortened by up to a half.
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(1);
};

struct CallOptions {
  // Becomes the deadline of the call, which the server knows too: DEADLINE_EXCEEDED after it.
  absl::Duration timeout = absl::InfiniteDuration();
  // Cancels the call from another thread. May be null; else outlives the call.
  CancelToken* cancel = nullptr;
  // Wait for the server to come up (within the timeout) instead of failing with UNAVAILABLE.
  bool wait_for_ready = false;
  // Further request metadata: {"traceparent", "00-..."}; lower-case keys.
  std::vector<std::pair<std::string, std::string>> metadata;
  // Of Generate alone.
  ResumePolicy resume;
  // Of Generate alone, with Balance::kPrefixAffinity: calls with the same key go to the same
  // target. For those who know better than balance.h what requests have in common: a session, a
  // document.
  std::string affinity_key;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CALL_OPTIONS_H_
