// What the service manager that started this process is told: systemd, or whoever else listens at
// $NOTIFY_SOCKET (sd_notify(3)). Without one all of it does nothing. Thread-safe. Texts are one
// line for people, as `systemctl status` shows it.
#ifndef TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
#define TLM_SERVER_PROCESS_SERVICE_MANAGER_H_

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace tlm {

// Still starting or still ending: `text` says at what, and the next call comes within `time`, by
// when the manager shall not lose its patience.
void NotifyProgress(std::string_view text, absl::Duration time);
// The server serves.
void NotifyReady(std::string_view text);
void NotifyStatus(std::string_view text);
// The server is about to end.
void NotifyStopping(std::string_view text);
// The server works: for a manager that restarts services of which it has not heard that for long.
void NotifyAlive();
// How long the manager waits for NotifyAlive(), once the server serves; none: it does not.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
