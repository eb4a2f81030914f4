// The server's log: one line per event on stderr, through spdlog. Never holds prompts, outputs or
// secrets.
#ifndef TLM_SERVER_OBSERVE_LOG_H_
#define TLM_SERVER_OBSERVE_LOG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

enum class LogFormat {
  kText,
  kJson,  // one object per line: see log_event.h
};

// "text" or "json"; INVALID_ARGUMENT "is ..., it may be ..." for anything else.
absl::StatusOr<LogFormat> LogFormatFromName(std::string_view name);

// Lines of this level and above are written: "debug", "info", "warn", "error" or "off".
// INVALID_ARGUMENT for anything else. Called once, before other threads start; afterwards
// spdlog::info and its kind may be called from any thread.
absl::Status SetUpLog(std::string_view level, LogFormat format);

// Flushes the buffers; for use before the process ends without destructors.
void FlushLog();

// `text` in double quotes with quotes, control characters and backslashes escaped, so that one
// event stays on one line; used for request ids and paths.
std::string LogQuoted(std::string_view text);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_H_
