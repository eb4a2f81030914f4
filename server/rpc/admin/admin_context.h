// What the Admin service works with.
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

// What is there from the start. All that is referred to outlives every call.
struct AdminContext : CallServices {
  ShutdownRequest& shutdown;
  std::vector<ConfigOption> config;  // by name
};

// What is there once a model has been loaded. All that is referred to outlives every call.
struct AdminTarget {
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  const RequestLimits& limits;
  absl::Time serving_since;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_CONTEXT_H_
