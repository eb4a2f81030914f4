// The end of a call: what it adds to the metrics, and its one line in the log.
#ifndef TLM_SERVER_RPC_CALL_CALL_LOG_H_
#define TLM_SERVER_RPC_CALL_CALL_LOG_H_

#include "server/rpc/call/call_record.h"

namespace tlm {

// The call is over, for good: once, whatever its end. Counts it, as ended when it was admitted and
// as refused otherwise, and writes its line to the log. A call that never needs the engine is
// admitted when it ends well.
//
// Faults of the server are logged as errors with their message; messages of other errors may hold
// text of the client and stay out. Calls without credentials get at most ten lines a second, as
// any client can make as many as it likes; the next line says how many were left out.
void EndCall(const CallRecord& record);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_LOG_H_
