// The gRPC context of a call and the clock of its deadline.
#ifndef TLM_CLIENT_CPP_CLIENT_CONTEXT_H_
#define TLM_CLIENT_CPP_CLIENT_CONTEXT_H_

#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"

namespace tlm::client {

// Returns the time of the monotonic clock; only differences are meaningful.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Returns the value of the `authorization` metadata; empty without an API key.
std::string AuthorizationOf(const ClientOptions& options);

// Makes a context with deadline, metadata and wait_for_ready of `options`. The caller registers the
// CancelToken.
std::unique_ptr<grpc::ClientContext> MakeContext(const CallOptions& options,
                                                 const std::string& authorization);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CLIENT_CONTEXT_H_
