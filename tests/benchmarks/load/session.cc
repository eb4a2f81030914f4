#include "tests/benchmarks/load/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/machine.h"

ABSL_FLAG(std::string, target, "127.0.0.1:50051", "the server to measure, as host:port");
ABSL_FLAG(std::string, server, "",
          "start this tlm-server and measure it instead; its flags stand behind --, as in "
          "... --server=bin/tlm-server -- --model=model/demo --threads=1");
ABSL_FLAG(int32_t, connections, 1, "connections that the calls are spread over, 1 to 1024");
ABSL_FLAG(absl::Duration, start_timeout, absl::Minutes(5), "how long the server may take to start");

namespace tlm::bench {

absl::StatusOr<Session> Session::Open(const std::vector<char*>& arguments) {
  Session session;
  session.machine_ = DescribeMachine();
  session.address_ = absl::GetFlag(FLAGS_target);
  const std::string program = absl::GetFlag(FLAGS_server);
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (program.empty() && !rest.empty()) {
    return InvalidArgument("\"{}\": arguments are for --server, which is not given", rest[0]);
  }
  if (!program.empty()) {
    session.server_command_ = {program};
    session.server_command_.insert(session.server_command_.end(), rest.begin(), rest.end());
    TLM_ASSIGN_OR_RETURN(
        session.server_,
        ServerUnderTest::Start(session.server_command_, absl::GetFlag(FLAGS_start_timeout)));
    session.address_ = session.server_->target();
  }
  TLM_ASSIGN_OR_RETURN(session.target_,
                       ConnectTo(session.address_, absl::GetFlag(FLAGS_connections),
                                 absl::GetFlag(FLAGS_start_timeout)));
  return session;
}

std::function<double()> Session::ServerCpu() const {
  if (server_ == nullptr) return nullptr;
  return [server = server_.get()] { return server->process().CpuSeconds(); };
}

bool Session::SharesMachine() const {
  return address_.starts_with("127.") || address_.starts_with("localhost") ||
         address_.starts_with("[::1]") || address_.starts_with("unix:");
}

nlohmann::ordered_json Session::Describe() const {
  return {{"machine", machine_},
          {"client_shares_machine", SharesMachine()},
          {"server", DescribeServer(model())},
          {"server_command", server_command_}};
}

std::string Session::Title() const {
  return fmt::format("{} on {}, {}", model().identity().model_id(),
                     machine_["cpu"].get<std::string>(),
                     machine_["time"].get<std::string>().substr(0, 10));
}

std::string Session::Headline() const {
  std::string text = fmt::format("{}, {} processors, load average before {:.2f}\n",
                                 machine_["cpu"].get<std::string>(), machine_["cpus"].get<int>(),
                                 machine_["load_average_before"].get<double>());
  if (SharesMachine()) text += "client and server share this machine\n";
  text += fmt::format("{} {} on {} ({})\n", model().identity().model_id(),
                      model().identity().server_version(), model().identity().device_name(),
                      model().identity().backend());
  if (!server_command_.empty()) text += fmt::format("{}\n", fmt::join(server_command_, " "));
  return text;
}

}  // namespace tlm::bench
