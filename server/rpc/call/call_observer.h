// What sees every call end, besides the metrics and the log.
#ifndef TLM_SERVER_RPC_CALL_CALL_OBSERVER_H_
#define TLM_SERVER_RPC_CALL_CALL_OBSERVER_H_

#include "server/observe/call_summary.h"
#include "server/observe/trace_context.h"

namespace tlm {

struct CallRecord;

// Thread-safe; does not block. Outlives every call.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Whether to sample a trace that begins here.
  virtual bool Samples(const TraceContext& trace) const = 0;
  // Once for each call, at its end.
  virtual void OnCallEnd(const CallRecord& record, const CallSummary& summary) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_OBSERVER_H_
