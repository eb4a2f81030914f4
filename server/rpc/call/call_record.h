// Defines the record of a call, for the log, the metrics and the trailing metadata.
#ifndef TLM_SERVER_RPC_CALL_CALL_RECORD_H_
#define TLM_SERVER_RPC_CALL_CALL_RECORD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "server/auth/principal.h"
#include "server/observe/call_summary.h"
#include "server/observe/metrics.h"
#include "server/observe/trace_context.h"
#include "tlm/v1/common.pb.h"

namespace tlm {

class CallObserver;

// The parameters of a Generate call, with the defaults that apply.
struct GenerateFacts {
  bool streaming = false;
  std::optional<uint64_t> seed;  // nullopt: the request has none
  float temperature = 1;
  int64_t top_k = 0;  // 0: all
  float top_p = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int64_t max_new_tokens = 0;
  int64_t num_sequences = 1;
};

struct CallRecord {
  const char* rpc = "";
  Clock* clock = nullptr;
  Metrics* metrics = nullptr;
  CallObserver* observer = nullptr;  // null: no observer
  absl::Status access;               // OK, or why the credentials do not suffice
  Principal caller;                  // the principal of a call with access
  TraceContext trace;
  std::string peer;  // address without port
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();  // shortly before the call's own (AnswerBy)
  std::string request_id;                        // empty until the request has been read
  bool admitted = false;                         // see MarkAdmitted
  absl::Time queued;                             // if admitted: when the engine received it
  bool started = false;                          // true once some of it was computed
  absl::Status status;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;
  absl::Duration queue_time;                   // time from `queued` to the start, if started
  std::optional<absl::Time> first_token;       // of a Generate call
  std::optional<absl::Time> first_write;       // of a streaming call
  std::optional<absl::Duration> prefill_time;  // of a successful Generate call
  std::optional<absl::Duration> decode_time;
  std::optional<RegionCounts> regions;     // if a Generate call reports regions
  std::vector<std::string_view> finishes;  // how its outputs ended; see CallSummary
  std::string_view model;                  // model's name, if needed; outlives all calls
  // "text_completion" or "chat" for Generate, "forward", "score", "verify"; empty for a call
  // without model work.
  std::string_view operation;
  std::optional<GenerateFacts> generate;  // set if a Generate request is valid
};

// Observes the end of every call, in addition to the metrics and the log. Thread-safe; does not
// block. Outlives every call.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Returns whether to sample a trace that begins in this server.
  virtual bool Samples(const TraceContext& trace) const = 0;
  // Called once for each call, at its end.
  virtual void OnCallEnd(const CallRecord& record, const CallSummary& summary) = 0;
};

// Marks the call as admitted: the engine has accepted it. `queued` is when it was passed to the
// engine. Call once, under the call's lock.
void MarkAdmitted(CallRecord& record, absl::Time queued);
// Records that the first token of a Generate call was sampled.
void MarkFirstToken(CallRecord& record);

v1::Usage UsageOf(const CallRecord& record);

// Returns the status of a call whose deadline has passed: DEADLINE_EXCEEDED, reason
// EXPIRED_IN_QUEUE or, once the call has started, EXPIRED_RUNNING.
absl::Status ExpiredStatus(const CallRecord& record);
// Returns the status of a call that gRPC cancelled. gRPC also reports the deadline as a
// cancellation: ExpiredStatus after the deadline, otherwise CANCELLED.
absl::Status CancelledStatus(const CallRecord& record);

// Adds a failed call's usage to the trailers: `tlm-usage-bin`, a tlm.v1.Usage, and as text
// `tlm-prompt-tokens` and `tlm-completion-tokens`. Adds nothing when the request was never read.
void AddUsageTrailers(const CallRecord& record, grpc::ServerContextBase& context);

// A part of a call's time, for the log and for traces.
struct CallPhase {
  std::string_view name;  // "queue", "prefill", "decode", "compute", "write"
  std::string span_id;    // 16 hexadecimal digits, derived from the call's own
  absl::Time begin;       // on the call's clock
  absl::Duration length;
};

// Returns the phases of an admitted call that ended at `end`: queue; prefill and decode, or compute
// for calls without tokens; write, which overlaps the others. Empty for other calls.
std::vector<CallPhase> PhasesOf(const CallRecord& record, absl::Time end);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_RECORD_H_
