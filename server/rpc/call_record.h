// What is known about a call when it ends: for the log and for the trailing metadata.
#ifndef TLM_SERVER_RPC_CALL_RECORD_H_
#define TLM_SERVER_RPC_CALL_RECORD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "tlm/v1/common.pb.h"

namespace tlm {

struct CallRecord {
  const char* rpc = "";
  Clock* clock = nullptr;
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();  // AnswerBy the call's own
  std::string request_id;                        // empty while the request has not been read
  bool started = false;                          // some of it was computed
  absl::Status status;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;
  absl::Duration queue_time;

  static CallRecord Begin(const char* rpc, Clock& clock) {
    CallRecord record;
    record.rpc = rpc;
    record.clock = &clock;
    record.arrival = clock.Now();
    return record;
  }
};

// One line: id, rpc, status, tokens, durations. Faults of the server are logged as errors with
// their message; the messages of others may hold what the client wrote and stay out.
void LogCall(const CallRecord& record);

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

#endif  // TLM_SERVER_RPC_CALL_RECORD_H_
