// Structured events: log lines with named values.
#ifndef TLM_SERVER_OBSERVE_LOG_EVENT_H_
#define TLM_SERVER_OBSERVE_LOG_EVENT_H_

#include <spdlog/common.h>
#include <spdlog/formatter.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "server/observe/log.h"

namespace tlm {

// As set by SetUpLog.
LogFormat CurrentLogFormat();

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

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_EVENT_H_
