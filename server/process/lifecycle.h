// Runs the life of the process: start, serve until a signal, drain.
#ifndef TLM_SERVER_PROCESS_LIFECYCLE_H_
#define TLM_SERVER_PROCESS_LIFECYCLE_H_

#include "absl/status/status.h"
#include "server/config/options.h"

namespace tlm {

// Opens the ports, loads the model and serves until SIGTERM, SIGINT or Admin.Drain. Then health is
// NOT_SERVING, calls are accepted for options.service.withdrawal_grace (not after SIGINT), and
// running calls get options.service.drain_timeout, or the time limit of the Drain call; a second
// signal ends the drain at once. OK after any drain; otherwise the reason why the server could not
// start. Ends the process on a signal during loading (status 0), and when the engine does not stop
// (kExitForced). Called once, by the main thread, before other threads start.
absl::Status RunServer(const ServerOptions& options);

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_LIFECYCLE_H_
