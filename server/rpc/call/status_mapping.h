// Maps an absl::Status to the gRPC status and its details; the only place that does.
#ifndef TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_
#define TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tlm {

// Keeps the code and the message, as OneLine and cut to kMaxStatusMessageBytes. The details of
// model/base/errors.h become a google.rpc.Status in `grpc-status-details-bin`: a field becomes a
// BadRequest, a reason an ErrorInfo of domain "tlm", a retry time a RetryInfo. Without details the
// metadata is absent.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The message limit; all trailing metadata must fit into 8 KiB, percent-encoded.
inline constexpr int kMaxStatusMessageBytes = 1024;

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_
