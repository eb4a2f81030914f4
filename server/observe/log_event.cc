#include "server/observe/log_event.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "server/observe/json_formatter.h"

namespace tlm {

void LogEvent(spdlog::level::level_enum level, std::string_view message,
              const nlohmann::ordered_json& fields) {
  JsonFormatter::SetFields(&fields);
  spdlog::log(level, "{}", message);
  JsonFormatter::SetFields(nullptr);
}

}  // namespace tlm
