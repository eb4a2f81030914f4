// The flags of tlm-openai.
#ifndef TLM_CLIENT_OPENAI_OPTIONS_H_
#define TLM_CLIENT_OPENAI_OPTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "client/openai/http/http_server.h"
#include "client/openai/routes/front.h"

namespace tlm::openai {

struct Options {
  HttpOptions http;
  FrontOptions front;
  std::string port_file;  // empty = none
  absl::Duration drain_timeout;
};

// Describes the program to the parser of flags and to help.
const cli::Command& Program();

// Reads the flags after they were parsed. INVALID_ARGUMENT names the flag, its value and the range.
absl::StatusOr<Options> ReadOptions(cli::Console* console);

// Connects to the servers of --model, or else of --target. Sets FrontOptions::own_key and
// FrontOptions::encrypted.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> ConnectBackends(cli::Console* console,
                                                                      FrontOptions* options);

// Returns the help text, and the manual page tlm-openai(8).
std::string HelpText();
std::string ManualPage();

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_OPTIONS_H_
