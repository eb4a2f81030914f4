// What is known about a call when it ends: for the log, the metrics and the trailing metadata.
#ifndef TLM_SERVER_RPC_CALL_CALL_RECORD_H_
#define TLM_SERVER_RPC_CALL_CALL_RECORD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "server/auth/principal.h"
#include "server/observe/metrics.h"
#include "server/observe/trace_context.h"
#include "tlm/v1/common.pb.h"

namespace tlm {

struct CallRecord {
  const char* rpc = "";
  Clock* clock = nullptr;
  Metrics* metrics = nullptr;
  absl::Status access;  // why the credentials are not enough; OK: they are
  Principal caller;     // of a call with access
  TraceContext trace;
  std::string peer;  // address without port
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();  // AnswerBy the call's own
  std::string request_id;                        // empty while the request has not been read
  bool admitted = false;                         // see MarkAdmitted
  absl::Time queued;                             // of an admitted call: when the engine took it
  bool started = false;                          // some of it was computed
  absl::Status status;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;
  absl::Duration queue_time;                   // from `queued`, of a call that was started
  std::optional<absl::Time> first_token;       // of Generate
  std::optional<absl::Time> first_write;       // of a streaming call
  std::optional<absl::Duration> prefill_time;  // of Generate that ended well, as decode_time
  std::optional<absl::Duration> decode_time;
  std::string_view finish;  // how the first output of Generate ended, as CallSummary's
};

// The engine has taken the call on: from now on it is admitted. Once, under the call's lock.
void MarkAdmitted(CallRecord& record);
// The first token of a Generate call is here.
void MarkFirstToken(CallRecord& record);

v1::Usage UsageOf(const CallRecord& record);

// The call's time is up: DEADLINE_EXCEEDED, reason EXPIRED_IN_QUEUE or, once it has started,
// EXPIRED_RUNNING.
absl::Status ExpiredStatus(const CallRecord& record);
// Why gRPC cancelled the call: ExpiredStatus once the deadline has passed, of which it tells as of
// any cancellation; CANCELLED before.
absl::Status CancelledStatus(const CallRecord& record);

// What a failed call has used: `tlm-usage-bin`, a tlm.v1.Usage, and for people
// `tlm-prompt-tokens` and `tlm-completion-tokens`. Nothing when the request was never read.
void AddUsageTrailers(const CallRecord& record, grpc::ServerContextBase& context);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_RECORD_H_
