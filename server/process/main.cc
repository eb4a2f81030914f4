// tlm-server: serves a transformer language model over gRPC.
#include <csignal>
#include <cstdlib>

#include "model/base/descriptor.h"
#include "server/config/command_line.h"
#include "server/config/options.h"
#include "server/net/grpc_listener.h"
#include "server/net/heap.h"
#include "server/observe/log.h"
#include "server/process/lifecycle.h"
#include "server/rpc/facades.h"

namespace {

int Fail(const absl::Status& status, int exit_status) {
  return tlm::ReportFailure({status.message().data(), status.message().size()}, exit_status);
}

}  // namespace

TLM_OPEN_STANDARD_DESCRIPTORS_FIRST;

int main(int argc, char** argv) {
  // At the size limit of a log (ulimit -f), the write must fail instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  tlm::SetUpAllocator();
  absl::StatusOr<tlm::ServerOptions> options = tlm::ParseOptions(argc, argv);
  if (options.ok()) {
    const absl::Status facades = tlm::CheckFacades(options->service.facades);
    if (!facades.ok()) options = facades;
  }
  if (!options.ok()) return Fail(options.status(), tlm::kExitUsage);
  const tlm::ServiceOptions& service = options->service;
  if (const absl::Status log =
          tlm::SetUpLog(service.log_level, service.log_format,
                        service.log_calls.value_or(tlm::LogsCallsByDefault(service.log_format)));
      !log.ok()) {
    return Fail(log, tlm::kExitUsage);
  }
  const absl::Status status = tlm::RunServer(*options);
  tlm::DropGrpcLog();
  if (status.ok()) return EXIT_SUCCESS;
  std::_Exit(Fail(status, tlm::kExitFailure));  // threads that were started may still run
}
