#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/base/command.h"
#include "model/base/descriptor.h"

TLM_OPEN_STANDARD_DESCRIPTORS_FIRST;

int main(int argc, char** argv) {
  const tlm::cli::Command* const command = argc < 2 ? nullptr : tlm::cli::FindCommand(argv[1]);
  if (command == nullptr || !command->passes_on) {  // a server keeps gRPC's messages
    // gRPC's messages about failed connections are in the status of the call.
    setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  }
  std::ios::sync_with_stdio(false);
  tlm::cli::Console console{std::cin,
                            std::cout,
                            std::cerr,
                            isatty(STDOUT_FILENO) != 0,
                            isatty(STDERR_FILENO) != 0,
                            isatty(STDIN_FILENO) != 0};
  const int code =
      tlm::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), &console);
  std::cout.flush();
  if (code == tlm::cli::kSuccess && !std::cout) {
    std::cerr << "tlm: standard output could not be written" << std::endl;
    return tlm::cli::kFailure;
  }
  return code;
}
