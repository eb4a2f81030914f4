// Writes the server's log: one line per event on stderr, through spdlog. Never contains prompts,
// outputs or secrets.
#ifndef TLM_SERVER_OBSERVE_LOG_H_
#define TLM_SERVER_OBSERVE_LOG_H_

#include <spdlog/common.h>
#include <spdlog/formatter.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

enum class LogFormat {
  kText,
  kJson,  // one object per line: see LogEvent
};

// "text" or "json"; INVALID_ARGUMENT "is ..., it may be ..." for anything else.
absl::StatusOr<LogFormat> LogFormatFromName(std::string_view name);

// Lines of this level and above are written: "debug", "info", "warn", "error" or "off".
// INVALID_ARGUMENT for anything else. `calls`: whether each call has a line. Called once, before
// other threads start; afterwards spdlog::info and its kind may be called from any thread.
absl::Status SetUpLog(std::string_view level, LogFormat format, bool calls = true);

// Returns whether calls are logged by default: not as text at a terminal, where the lines would
// bury the output of other programs. JSON is for programs, which may read from a terminal.
bool LogsCallsByDefault(LogFormat format);

// Flushes the buffers; for use before the process ends without destructors.
void FlushLog();

// `text` in double quotes with quotes, control characters and backslashes escaped, so that one
// event stays on one line; used for request ids and paths.
std::string LogQuoted(std::string_view text);

// Return the values that SetUpLog set.
LogFormat CurrentLogFormat();
bool LogsCalls();

// Logs `message`; with LogFormat::kJson the members of `fields`, an object, become members of the
// line's object, in their order, after "ts", "level" and "msg", whose names they must not use. Text
// that is not UTF-8 gets replacement characters. With kText `fields` are omitted.
void LogEvent(spdlog::level::level_enum level, std::string_view message,
              const nlohmann::ordered_json& fields);

// Formats lines as JSON objects: {"ts":"2026-01-02T03:04:05.678Z","level":"info","msg":"...",
// fields of the event}. Stateless.
class JsonFormatter final : public spdlog::formatter {
 public:
  // Additional members of the lines that this thread logs until the next call; null: none.
  static void SetFields(const nlohmann::ordered_json* fields);

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;
};

// Rate limit for lines that clients can cause: at most `lines` in each second. Thread-safe.
class LineLimit {
 public:
  explicit LineLimit(int64_t lines) : lines_(lines) {}

  // Returns the number of lines suppressed since the last one if a line may be written at `now`,
  // else nullopt.
  std::optional<int64_t> Take(absl::Time now) {
    MutexLock lock(&mutex_);
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    if (written_ >= lines_) {
      ++suppressed_;
      return std::nullopt;
    }
    ++written_;
    return std::exchange(suppressed_, 0);
  }

 private:
  const int64_t lines_;
  Mutex mutex_;
  absl::Time second_ TLM_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t written_ TLM_GUARDED_BY(mutex_) = 0;
  int64_t suppressed_ TLM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_H_
