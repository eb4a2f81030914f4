// The server's log: one line an event on stderr, through spdlog. Never holds what a user wrote.
#ifndef TLM_SERVER_OBSERVE_LOG_H_
#define TLM_SERVER_OBSERVE_LOG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tlm {

// Lines of this level and above are written: "debug", "info", "warn", "error" or "off".
// INVALID_ARGUMENT for anything else. Called once, before other threads start; afterwards
// spdlog::info and its kind may be called from any thread.
absl::Status SetUpLog(std::string_view level);

// Writes out what is buffered; for the moment before the process ends without destructors.
void FlushLog();

// `text` in double quotes with quotes, control characters and backslashes escaped, so that one
// event stays one line: for request ids and paths.
std::string LogQuoted(std::string_view text);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_H_
