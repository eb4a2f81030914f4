// tlm-server: serves a transformer language model over gRPC.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/base/descriptor.h"
#include "server/config/command_line.h"
#include "server/config/options.h"
#include "server/net/grpc_listener.h"
#include "server/net/heap.h"
#include "server/observe/log.h"
#include "server/process/lifecycle.h"
#include "server/rpc/facades.h"

namespace {

// One line, whatever a file or a flag had in it.
int Fail(const absl::Status& status, int exit_status) {
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fprintf(stderr, "tlm-server: %s\n", message.c_str());
  return exit_status;
}

}  // namespace

TLM_OPEN_STANDARD_DESCRIPTORS_FIRST;

int main(int argc, char** argv) {
  tlm::SetUpAllocator();
  absl::StatusOr<tlm::ServerOptions> options = tlm::ParseOptions(argc, argv);
  if (options.ok()) {
    const absl::Status facades = tlm::CheckFacades(options->service.facades);
    if (!facades.ok()) options = facades;
  }
  if (!options.ok()) return Fail(options.status(), tlm::kExitUsage);
  if (const absl::Status log =
          tlm::SetUpLog(options->service.log_level, options->service.log_format);
      !log.ok()) {
    return Fail(log, tlm::kExitUsage);
  }
  const absl::Status status = tlm::RunServer(*options);
  tlm::DropGrpcLog();
  if (status.ok()) return EXIT_SUCCESS;
  std::_Exit(Fail(status, tlm::kExitFailure));  // threads of what was begun may still run
}
