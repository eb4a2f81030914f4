// What every handler works with.
#ifndef TLM_SERVER_RPC_RPC_CONTEXT_H_
#define TLM_SERVER_RPC_RPC_CONTEXT_H_

#include "model/base/clock.h"
#include "server/admission/admission.h"
#include "server/batching/engine.h"
#include "server/rpc/convert.h"
#include "server/rpc/served_model.h"

namespace tlm {

// All of it outlives every call.
struct RpcContext {
  const ServedModel& model;
  Engine& engine;
  Admission& admission;
  Clock& clock;
  RandomSource random;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_CONTEXT_H_
