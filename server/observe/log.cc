#include "server/observe/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// Set once, before other threads start.
LogFormat current_format = LogFormat::kText;
bool logs_calls = true;

// Uses UTC with milliseconds, so that logs of several machines can be merged.
constexpr char kPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";

// spdlog passes lines to the formatter on the thread that logs them.
thread_local const nlohmann::ordered_json* line_fields = nullptr;

std::string Text(spdlog::string_view_t view) { return {view.data(), view.size()}; }

// Makes one line of UTF-8, whatever a message quotes.
class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const std::string text = OneLine({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg safe = message;
    safe.payload = text;
    pattern_.format(safe, line);
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }

 private:
  spdlog::pattern_formatter pattern_{kPattern, spdlog::pattern_time_type::utc};
};

}  // namespace

absl::StatusOr<LogFormat> LogFormatFromName(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return InvalidArgument("is {}, it may be text or json", name);
}

bool LogsCallsByDefault(LogFormat format) {
  return format == LogFormat::kJson || isatty(STDERR_FILENO) == 0;
}

absl::Status SetUpLog(std::string_view level, LogFormat format, bool calls) {
  spdlog::level::level_enum threshold;
  if (level == "debug") {
    threshold = spdlog::level::debug;
  } else if (level == "info") {
    threshold = spdlog::level::info;
  } else if (level == "warn") {
    threshold = spdlog::level::warn;
  } else if (level == "error") {
    threshold = spdlog::level::err;
  } else if (level == "off") {
    threshold = spdlog::level::off;
  } else {
    return InvalidArgument("log level is '{}', not one of debug, info, warn, error, off", level);
  }
  auto logger =
      std::make_shared<spdlog::logger>("tlm", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_formatter(std::make_unique<TextFormatter>());
  }
  current_format = format;
  logs_calls = calls;
  logger->set_level(threshold);
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

LogFormat CurrentLogFormat() { return current_format; }

bool LogsCalls() { return logs_calls; }

void FlushLog() { spdlog::default_logger()->flush(); }

std::string LogQuoted(std::string_view text) { return fmt::format("{:?}", text); }

void JsonFormatter::SetFields(const nlohmann::ordered_json* fields) { line_fields = fields; }

void JsonFormatter::format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) {
  nlohmann::ordered_json object;
  object["ts"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
  object["level"] = Text(spdlog::level::to_string_view(message.level));
  object["msg"] = Text(message.payload);
  if (line_fields != nullptr) {
    for (const auto& [name, value] : line_fields->items()) object[name] = value;
  }
  const std::string text =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  line.append(text.data(), text.data() + text.size());
  line.push_back('\n');
}

std::unique_ptr<spdlog::formatter> JsonFormatter::clone() const {
  return std::make_unique<JsonFormatter>();
}

void LogEvent(spdlog::level::level_enum level, std::string_view message,
              const nlohmann::ordered_json& fields) {
  JsonFormatter::SetFields(&fields);
  spdlog::log(level, "{}", message);
  JsonFormatter::SetFields(nullptr);
}

}  // namespace tlm
