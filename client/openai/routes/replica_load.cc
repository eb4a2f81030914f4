#include "client/openai/routes/replica_load.h"

#include <grpcpp/client_context.h>

#include "absl/time/clock.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/status.h"

namespace tlm::openai {

absl::StatusOr<std::unique_ptr<ReplicaLoad>> ReplicaLoad::Connect(
    const std::string& target, const client::ClientOptions& options) {
  const auto channel = client::MakeChannel(target, options);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<ReplicaLoad>(
      new ReplicaLoad(xds::service::orca::v3::OpenRcaService::NewStub(*channel)));
}

absl::StatusOr<ReplicaLoad::Report> ReplicaLoad::Read(const client::CallOptions& options) {
  grpc::ClientContext context;
  for (const auto& [key, value] : options.metadata) context.AddMetadata(key, value);
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  const client::CancelToken::Registration registration(options.cancel, &context);
  xds::service::orca::v3::OrcaLoadReportRequest request;
  const auto reader = stub_->StreamCoreMetrics(&context, request);
  Report report;
  const bool read = reader->Read(&report);
  context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (read) return report;
  return client::FromGrpcStatus(status);
}

}  // namespace tlm::openai
