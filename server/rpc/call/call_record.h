// The record of a call, for the log, the metrics and the trailing metadata.
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

// What a Generate call asks for, with the defaults that are in effect.
struct GenerateFacts {
  bool streaming = false;
  std::optional<uint64_t> seed;  // if the request has one
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
  CallObserver* observer = nullptr;  // null: none
  absl::Status access;               // OK, or why the credentials do not suffice
  Principal caller;                  // of a call with access
  TraceContext trace;
  std::string peer;  // address without port
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();  // AnswerBy the call's own
  std::string request_id;                        // empty while the request has not been read
  bool admitted = false;                         // see MarkAdmitted
  absl::Time queued;     // of an admitted call: when the engine was given it
  bool started = false;  // some of it was computed
  absl::Status status;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;
  absl::Duration queue_time;                   // from `queued`, of a call that was started
  std::optional<absl::Time> first_token;       // of Generate
  std::optional<absl::Time> first_write;       // of a streaming call
  std::optional<absl::Duration> prefill_time;  // of a successful Generate, as decode_time
  std::optional<absl::Duration> decode_time;
  std::optional<RegionCounts> regions;     // of one that told regions
  std::vector<std::string_view> finishes;  // of the outputs of Generate, as CallSummary's
  std::string_view model;                  // its name, of calls that need it; outlives them
  // "text_completion" or "chat" of Generate, "forward", "score", "verify"; empty: none of the
  // model's.
  std::string_view operation;
  std::optional<GenerateFacts> generate;  // of a Generate call with a valid request
};

// What sees every call end, besides the metrics and the log. Thread-safe; does not block. Outlives
// every call.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Whether to sample a trace that begins here.
  virtual bool Samples(const TraceContext& trace) const = 0;
  // Once for each call, at its end.
  virtual void OnCallEnd(const CallRecord& record, const CallSummary& summary) = 0;
};

// The engine has accepted the call, which was passed to it at `queued`: it is admitted. Once, under
// the call's lock.
void MarkAdmitted(CallRecord& record, absl::Time queued);
// The first token of a Generate call was sampled.
void MarkFirstToken(CallRecord& record);

v1::Usage UsageOf(const CallRecord& record);

// The status after the deadline: DEADLINE_EXCEEDED, reason EXPIRED_IN_QUEUE or, once the call has
// started, EXPIRED_RUNNING.
absl::Status ExpiredStatus(const CallRecord& record);
// The reason of a cancellation by gRPC, which also reports the deadline as one: ExpiredStatus after
// the deadline, otherwise CANCELLED.
absl::Status CancelledStatus(const CallRecord& record);

// Adds the usage of a failed call: `tlm-usage-bin`, a tlm.v1.Usage, and as text
// `tlm-prompt-tokens` and `tlm-completion-tokens`. Nothing when the request was never read.
void AddUsageTrailers(const CallRecord& record, grpc::ServerContextBase& context);

// A part of a call's time, for the log and for traces.
struct CallPhase {
  std::string_view name;  // "queue", "prefill", "decode", "compute", "write"
  std::string span_id;    // 16 hexadecimal digits, a function of the call's own
  absl::Time begin;       // by the call's clock
  absl::Duration length;
};

// Of an admitted call that ended at `end`, none of others: queue; prefill and decode, or compute
// for calls without tokens; write, which overlaps the others.
std::vector<CallPhase> PhasesOf(const CallRecord& record, absl::Time end);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_RECORD_H_
