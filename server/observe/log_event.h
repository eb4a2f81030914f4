// Structured events: log lines with named values.
#ifndef TLM_SERVER_OBSERVE_LOG_EVENT_H_
#define TLM_SERVER_OBSERVE_LOG_EVENT_H_

#include <spdlog/common.h>

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

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LOG_EVENT_H_
