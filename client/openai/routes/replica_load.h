// The load that a server reports of itself (ORCA).
#ifndef TLM_CLIENT_OPENAI_ROUTES_REPLICA_LOAD_H_
#define TLM_CLIENT_OPENAI_ROUTES_REPLICA_LOAD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace tlm::openai {

// Thread-safe.
class ReplicaLoad {
 public:
  using Report = xds::data::orca::v3::OrcaLoadReport;

  // Connects on first use. Returns the errors of MakeChannel.
  static absl::StatusOr<std::unique_ptr<ReplicaLoad>> Connect(const std::string& target,
                                                              const client::ClientOptions& options);

  // Waits for one report, within options.timeout. The errors of the call.
  absl::StatusOr<Report> Read(const client::CallOptions& options);

 private:
  using Stub = xds::service::orca::v3::OpenRcaService::Stub;

  explicit ReplicaLoad(std::unique_ptr<Stub> stub) : stub_(std::move(stub)) {}

  const std::unique_ptr<Stub> stub_;
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_REPLICA_LOAD_H_
