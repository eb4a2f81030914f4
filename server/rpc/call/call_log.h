// Records the end of a call: its metrics, its span, and its one line in the log.
#ifndef TLM_SERVER_RPC_CALL_CALL_LOG_H_
#define TLM_SERVER_RPC_CALL_CALL_LOG_H_

#include "server/rpc/call/call_record.h"

namespace tlm {

// Call once at the end of every call. Counts it as ended if it was admitted, otherwise as refused;
// calls its observer; and writes its line to the log. A call that never needs the engine counts as
// admitted when it ends with OK.
//
// The line of a refused or failed call has its status reason and the path of the field at fault.
// Server errors are logged with their message; messages of other errors may contain client text and
// are left out. Calls without credentials get at most ten lines per second, because any client can
// make any number of them; the next line counts the omitted ones.
void EndCall(const CallRecord& record);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_LOG_H_
