// The objects that the Admin service uses.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_CONTEXT_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_CONTEXT_H_

#include <vector>

#include "absl/time/time.h"
#include "server/admission/admission.h"
#include "server/admission/shutdown_request.h"
#include "server/batching/engine.h"
#include "server/config/command_line.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/rpc_context.h"
#include "server/serving/request_limits.h"

namespace tlm {

// Available from the start. All objects outlive every call.
struct AdminContext : CallServices {
  ShutdownRequest& shutdown;
  std::vector<ConfigOption> config;  // by name
};

// Available once the model is loaded. All objects outlive every call.
struct AdminTarget {
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  const RequestLimits& limits;
  absl::Time serving_since;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_CONTEXT_H_
