// Checks of foreign requests.
#ifndef TLM_SERVER_RPC_FACADES_FIELD_CHECK_H_
#define TLM_SERVER_RPC_FACADES_FIELD_CHECK_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace tlm {

// INVALID_ARGUMENT names the first field, in `message` or the messages in it, that the server's
// copy of the protocol does not know: a newer client must not believe that it was honoured.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message);

// UNIMPLEMENTED as INVALID_ARGUMENT, with its message and details; other statuses as they are. For
// routers that hold every other status against the server instead of the request.
absl::Status HeldAgainstRequest(absl::Status status);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_FIELD_CHECK_H_
