// Runs a command line of the shell.
#ifndef TLM_CLIENT_CLI_BASE_SHELL_COMMAND_H_
#define TLM_CLIENT_CLI_BASE_SHELL_COMMAND_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// The longest output of a command.
inline constexpr size_t kMaxShellOutputBytes = size_t{1} << 20;

// Runs `command` with /bin/sh and `input` as its standard input, until it and all its descendants
// have closed their standard output; returns this output without the line breaks at its end.
// Standard error is inherited from this program. A command that fails is killed, with its process
// group.
//
// UNKNOWN "exit status 3" with the beginning of the output, or "ended by signal 9";
// RESOURCE_EXHAUSTED for a longer output, INVALID_ARGUMENT for output that is not valid UTF-8,
// DEADLINE_EXCEEDED after `timeout`, CANCELLED; INTERNAL if it cannot be started.
absl::StatusOr<std::string> RunShellCommand(const std::string& command, const std::string& input,
                                            absl::Duration timeout, client::CancelToken* cancel);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_SHELL_COMMAND_H_
