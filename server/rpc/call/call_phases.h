// The parts of a call's time, for the log and for traces.
#ifndef TLM_SERVER_RPC_CALL_CALL_PHASES_H_
#define TLM_SERVER_RPC_CALL_CALL_PHASES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/call/call_record.h"

namespace tlm {

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

#endif  // TLM_SERVER_RPC_CALL_CALL_PHASES_H_
