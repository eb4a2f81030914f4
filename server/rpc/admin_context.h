// What the Admin service works with.
#ifndef TLM_SERVER_RPC_ADMIN_CONTEXT_H_
#define TLM_SERVER_RPC_ADMIN_CONTEXT_H_

#include <vector>

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "server/admission/admission.h"
#include "server/admission/shutdown_request.h"
#include "server/batching/engine.h"
#include "server/rpc/call_registry.h"
#include "server/rpc/config_option.h"
#include "server/rpc/request_limits.h"

namespace tlm {

// All that is referred to outlives every call.
struct AdminContext {
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  ShutdownRequest& shutdown;
  Clock& clock;
  const RequestLimits& limits;
  absl::Time serving_since;
  std::vector<ConfigOption> config;  // by name
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_CONTEXT_H_
