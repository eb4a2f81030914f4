// The gRPC context of a call.
#ifndef TLM_CLIENT_CPP_CLIENT_CONTEXT_H_
#define TLM_CLIENT_CPP_CLIENT_CONTEXT_H_

#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"

namespace tlm::client {

// The value of the `authorization` metadata; empty = none.
std::string AuthorizationOf(const ClientOptions& options);

// Deadline, metadata and wait_for_ready of `options`; cancelling is the caller's business
// (CancelToken::Registration).
std::unique_ptr<grpc::ClientContext> MakeContext(const CallOptions& options,
                                                 const std::string& authorization);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CLIENT_CONTEXT_H_
