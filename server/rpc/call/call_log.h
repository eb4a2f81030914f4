// The one line that every call leaves in the log.
#ifndef TLM_SERVER_RPC_CALL_CALL_LOG_H_
#define TLM_SERVER_RPC_CALL_CALL_LOG_H_

#include "server/observe/call_summary.h"
#include "server/rpc/call/call_record.h"

namespace tlm {

// As EndCall says; `summary` is of the same call. Calls without credentials, which anybody can make
// as many of as they like, get at most ten lines a second; the next line says how many had none.
void LogCall(const CallRecord& record, const CallSummary& summary);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_LOG_H_
