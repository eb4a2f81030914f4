#include "client/cpp/client_context.h"

#include "absl/time/clock.h"

namespace tlm::client {

std::string AuthorizationOf(const ClientOptions& options) {
  return options.api_key.empty() ? "" : "Bearer " + options.api_key;
}

std::unique_ptr<grpc::ClientContext> MakeContext(const CallOptions& options,
                                                 const std::string& authorization) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (options.timeout < absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  }
  context->set_wait_for_ready(options.wait_for_ready);
  if (!authorization.empty()) context->AddMetadata("authorization", authorization);
  for (const auto& [key, value] : options.metadata) context->AddMetadata(key, value);
  return context;
}

}  // namespace tlm::client
