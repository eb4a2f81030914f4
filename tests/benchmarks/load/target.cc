#include "tests/benchmarks/load/target.h"

#include <signal.h>

#include <fstream>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/vllm_calls.h"

ABSL_FLAG(bool, vllm, false,
          "call vllm.grpc.engine.VllmEngine, of a server with --facades=vllm, instead of tlm.v1");

namespace tlm::bench {

absl::StatusOr<std::unique_ptr<ServerUnderTest>> ServerUnderTest::Start(
    std::vector<std::string> argv, absl::Duration timeout) {
  std::unique_ptr<ServerUnderTest> server(new ServerUnderTest());
  const std::string port_file = server->directory_.File("port");
  argv.push_back("--port=0");
  argv.push_back("--port_file=" + port_file);
  Process& process = server->process_.emplace(argv);
  const absl::Time end = absl::Now() + timeout;
  while (absl::Now() < end) {
    std::string port;
    if (std::ifstream(port_file) >> port) {
      server->target_ = "127.0.0.1:" + port;
      return server;
    }
    if (const std::optional<int> status = process.Ended()) {
      return FailedPrecondition("{} ended with status {}:\n{}", argv[0], *status, process.output());
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return DeadlineExceeded("{} named no port within {}:\n{}", argv[0], absl::FormatDuration(timeout),
                          process.output());
}

ServerUnderTest::~ServerUnderTest() {
  if (!process_.has_value() || process_->Ended().has_value()) return;
  process_->Signal(SIGTERM);
  process_->Wait(absl::Seconds(20));
}

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
  if (absl::GetFlag(FLAGS_vllm)) target.connections.set_protocol(VllmCalls());
  target.connections.WaitUntilConnected(timeout, nullptr);
  return target;
}

}  // namespace tlm::bench
