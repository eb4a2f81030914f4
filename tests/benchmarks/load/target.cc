#include "tests/benchmarks/load/target.h"

#include <memory>
#include <utility>

#include "client/cpp/client.h"
#include "model/base/errors.h"

namespace tlm::bench {

absl::StatusOr<Target> ConnectTo(const std::string& address, int connections,
                                 absl::Duration timeout) {
  constexpr int kMaxConnections = 1024;
  if (connections < 1 || connections > kMaxConnections) {
    return FailedPrecondition("{} connections are not within 1 to {}", connections,
                              kMaxConnections);
  }
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client,
                       client::Client::Connect(address));
  client::CallOptions options;
  options.timeout = timeout;
  options.wait_for_ready = true;
  Target target;
  absl::StatusOr<v1::ModelInfoResponse> model = client->ModelInfo({}, options);
  if (!model.ok()) return WithContext(model.status(), address);
  target.model = *std::move(model);
  TLM_ASSIGN_OR_RETURN(target.connections, load::Connections::Create({address}, connections, {}));
  target.connections.WaitUntilConnected(timeout, nullptr);
  return target;
}

}  // namespace tlm::bench
