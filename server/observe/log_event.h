// One event with named values: a line of the log that programs read.
#ifndef TLM_SERVER_OBSERVE_LOG_EVENT_H_
#define TLM_SERVER_OBSERVE_LOG_EVENT_H_

#include <spdlog/common.h>

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "server/observe/log.h"

namespace tlm {

// What SetUpLog was told.
LogFormat CurrentLogFormat();

// Logs `message`; with LogFormat::kJson the members of `fields`, an object, become members of the
// line's object, in their order, behind "ts", "level" and "msg", whose names they leave alone. Text
// that is not UTF-8 gets replacement characters. With kText `fields` are left out.
void LogEvent(spdlog::level::level_enum level, std::string_view message,
              const nlohmann::ordered_json& fields);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_EVENT_H_
