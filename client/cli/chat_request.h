// The request of `tlm chat`.
#ifndef TLM_CLIENT_CLI_CHAT_REQUEST_H_
#define TLM_CLIENT_CLI_CHAT_REQUEST_H_

#include "absl/status/statusor.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

// What every turn's request has in common, from the flags: everything but the messages.
// INVALID_ARGUMENT when the flags contradict each other.
absl::StatusOr<v1::GenerateRequest> ChatRequestFromFlags();

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_REQUEST_H_
