// What every handler works with.
#ifndef TLM_SERVER_RPC_RPC_CONTEXT_H_
#define TLM_SERVER_RPC_RPC_CONTEXT_H_

#include "absl/status/status.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "server/admission/admission.h"
#include "server/batching/engine.h"
#include "server/rpc/call_registry.h"
#include "server/rpc/convert.h"
#include "server/rpc/served_model.h"

namespace tlm {

// All of it outlives every call.
struct RpcContext {
  const ServedModel& model;
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  Clock& clock;
  RandomSource random;
};

// Whether a new call can come in at all: asked before work is put into reading its request, so that
// refusing costs next to nothing however many are refused. Thread-safe.
inline absl::Status CheckOpen(const RpcContext& rpc) {
  TLM_RETURN_IF_ERROR(rpc.admission.CheckOpen());
  return rpc.engine.CheckOpen();
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_CONTEXT_H_
