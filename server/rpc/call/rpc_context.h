// What every handler works with.
#ifndef TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_
#define TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_

#include "absl/status/status.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "server/admission/admission.h"
#include "server/auth/authenticator.h"
#include "server/batching/engine.h"
#include "server/observe/metrics.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/text_pools.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"

namespace tlm {

// What every call of every service begins and ends with. All of it outlives every call.
struct CallServices {
  const Authenticator& authenticator;
  Metrics& metrics;
  Clock& clock;
  RandomSource random;
};

// All of it outlives every call.
struct RpcContext : CallServices {
  const ServedModel& model;
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  TextPools& texts;
};

// Whether a new call of `caller` can come in at all: asked once, before work is put into reading
// its request, so that refusing costs next to nothing however many are refused. Thread-safe.
inline absl::Status Enter(const RpcContext& rpc, const Principal& caller) {
  TLM_RETURN_IF_ERROR(rpc.admission.CheckOpen());
  TLM_RETURN_IF_ERROR(rpc.engine.CheckOpen());
  return rpc.admission.Enter(caller);
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_
