// Notifies the service manager, systemd or another one that listens at $NOTIFY_SOCKET
// (sd_notify(3)). Has no effect without one. Thread-safe. Texts are one line, for `systemctl
// status`.
#ifndef TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
#define TLM_SERVER_PROCESS_SERVICE_MANAGER_H_

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace tlm {

// Reports progress of the start or the shutdown, described by `text`. Extends the manager's timeout
// by `time`; the next call must come within that.
void NotifyProgress(std::string_view text, absl::Duration time);
// Reports that the server serves.
void NotifyReady(std::string_view text);
// Reports that the server is about to end.
void NotifyStopping(std::string_view text);
// Reports that the server is healthy, for the manager's watchdog.
void NotifyAlive();
// Returns the timeout of the manager's watchdog; nullopt without a watchdog.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_SERVICE_MANAGER_H_
