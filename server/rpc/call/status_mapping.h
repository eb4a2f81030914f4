// The one place where an absl::Status becomes what a gRPC client sees.
#ifndef TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_
#define TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tlm {

// The same code and message (cut to kMaxStatusMessageBytes). The details of
// model/base/error_details.h become a google.rpc.Status in `grpc-status-details-bin`: a field a
// BadRequest, a reason an ErrorInfo of domain "tlm", a retry time a RetryInfo. Without any detail
// the metadata is absent.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Trailing metadata has to fit into 8 KiB together, percent-encoded.
inline constexpr int kMaxStatusMessageBytes = 1024;

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_STATUS_MAPPING_H_
