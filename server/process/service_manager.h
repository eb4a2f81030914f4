// Notifications for the service manager, systemd or another one that listens at $NOTIFY_SOCKET
// (sd_notify(3)). No effect without one. Thread-safe. Texts are one line, for `systemctl status`.
#ifndef TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
#define TLM_SERVER_PROCESS_SERVICE_MANAGER_H_

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace tlm {

// The start or the shutdown makes progress, described by `text`; extends the manager's timeout by
// `time`, within which the next call comes.
void NotifyProgress(std::string_view text, absl::Duration time);
// The server serves.
void NotifyReady(std::string_view text);
// The server is about to end.
void NotifyStopping(std::string_view text);
// The server is healthy; feeds the manager's watchdog.
void NotifyAlive();
// The timeout of the manager's watchdog; none without a watchdog.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
