// Abort as other protocols have it: a caller ends calls of its own.
#ifndef TLM_SERVER_RPC_FACADES_ABORT_H_
#define TLM_SERVER_RPC_FACADES_ABORT_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/principal.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// What calls that their own client ends end with: ABORTED, reason ABORTED_BY_CLIENT.
absl::Status AbortedByClient();

// Ends the calls of the caller's tenant with these ids, and returns their number; an id that is not
// active is no error. INVALID_ARGUMENT, and nothing is ended, for more than 1,024 ids or one
// longer than a request id may be.
absl::StatusOr<int64_t> AbortOwnCalls(
    const RpcContext& rpc, const Principal& caller,
    const google::protobuf::RepeatedPtrField<std::string>& request_ids);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_ABORT_H_
