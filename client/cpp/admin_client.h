// The client of a tlm server's admin port. Link and include it like client.h.
#ifndef TLM_CLIENT_CPP_ADMIN_CLIENT_H_
#define TLM_CLIENT_CPP_ADMIN_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"
#include "tlm/v1/admin.grpc.pb.h"

namespace tlm::client {

// Connects to one server. Failed calls return the server's code and message, like the calls of
// Client. Thread-safe.
class AdminClient {
 public:
  // Errors of MakeChannel.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& target,
                                                              const ClientOptions& options = {});

  absl::StatusOr<v1::GetLoadResponse> GetLoad(const CallOptions& options = {});
  absl::StatusOr<v1::AbortResponse> Abort(const v1::AbortRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::DrainResponse> Drain(const v1::DrainRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::FlushPrefixCacheResponse> FlushPrefixCache(const CallOptions& options = {});
  absl::StatusOr<v1::GetConfigResponse> GetConfig(const CallOptions& options = {});

 private:
  AdminClient(const std::shared_ptr<grpc::Channel>& channel, std::string authorization);

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                                const Request& request, const CallOptions& options) const;

  const std::string authorization_;  // metadata value; empty = none
  const std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_ADMIN_CLIENT_H_
