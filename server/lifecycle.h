// The life of the process: start, serve until a signal, drain.
#ifndef TLM_SERVER_LIFECYCLE_H_
#define TLM_SERVER_LIFECYCLE_H_

#include "absl/status/status.h"
#include "server/options.h"

namespace tlm {

// Serves until SIGTERM, SIGINT or Admin.Drain, then drains for at most options.drain_timeout, or as
// long as the Drain call said; a second signal ends the drain. OK however the drain went; otherwise
// why the server could not start. Called once, by the main thread, before there are others.
absl::Status RunServer(const ServerOptions& options);

}  // namespace tlm

#endif  // TLM_SERVER_LIFECYCLE_H_
