#include "server/observe/log_event.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace tlm {
namespace {

// spdlog hands lines to the formatter in the thread that logs them.
thread_local const nlohmann::ordered_json* line_fields = nullptr;

std::string Text(spdlog::string_view_t view) { return {view.data(), view.size()}; }

}  // namespace

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
