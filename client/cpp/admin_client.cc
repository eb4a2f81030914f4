#include "client/cpp/admin_client.h"

#include <utility>

#include "client/cpp/client_context.h"
#include "client/cpp/status.h"

namespace tlm::client {

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& target,
                                                                  const ClientOptions& options) {
  const auto channel = MakeChannel(target, options);
  if (!channel.ok()) return channel.status();
  // The constructor is private, and make_unique cannot call it.
  return std::unique_ptr<AdminClient>(new AdminClient(*channel, AuthorizationOf(options)));
}

AdminClient::AdminClient(const std::shared_ptr<grpc::Channel>& channel, std::string authorization)
    : authorization_(std::move(authorization)), admin_(v1::Admin::NewStub(channel)) {}

template <typename Request, typename Response>
absl::StatusOr<Response> AdminClient::Call(
    grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, const CallOptions& options) const {
  const std::unique_ptr<grpc::ClientContext> context = MakeContext(options, authorization_);
  const CancelToken::Registration registration(options.cancel, context.get());
  Response response;
  const grpc::Status status = (admin_.get()->*method)(context.get(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<v1::GetLoadResponse> AdminClient::GetLoad(const CallOptions& options) {
  return Call(&v1::Admin::Stub::GetLoad, {}, options);
}

absl::StatusOr<v1::AbortResponse> AdminClient::Abort(const v1::AbortRequest& request,
                                                     const CallOptions& options) {
  return Call(&v1::Admin::Stub::Abort, request, options);
}

absl::StatusOr<v1::DrainResponse> AdminClient::Drain(const v1::DrainRequest& request,
                                                     const CallOptions& options) {
  return Call(&v1::Admin::Stub::Drain, request, options);
}

absl::StatusOr<v1::FlushPrefixCacheResponse> AdminClient::FlushPrefixCache(
    const CallOptions& options) {
  return Call(&v1::Admin::Stub::FlushPrefixCache, {}, options);
}

absl::StatusOr<v1::GetConfigResponse> AdminClient::GetConfig(const CallOptions& options) {
  return Call(&v1::Admin::Stub::GetConfig, {}, options);
}

}  // namespace tlm::client
