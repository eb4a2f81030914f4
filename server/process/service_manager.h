// Notifications for the service manager, systemd or another one that listens at $NOTIFY_SOCKET
// (sd_notify(3)). Without one they do nothing. Thread-safe. Texts are one readable line, as
// `systemctl status` shows it.
#ifndef TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
#define TLM_SERVER_PROCESS_SERVICE_MANAGER_H_

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace tlm {

// The start or the shutdown makes progress: `text` says what it does; the manager's timeout is
// extended by `time`, within which the next call comes.
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
