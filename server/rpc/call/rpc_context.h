// Groups the objects that handlers use.
#ifndef TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_
#define TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_

#include "model/base/clock.h"
#include "server/admission/admission.h"
#include "server/auth/authenticator.h"
#include "server/batching/engine.h"
#include "server/constraints/constraint_compiler.h"
#include "server/observe/metrics.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/load_reporter.h"
#include "server/rpc/call/text_pools.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"

namespace tlm {

// Used at the start and end of every call of every service. All references outlive every call.
struct CallServices {
  const Authenticator& authenticator;
  Metrics& metrics;
  Clock& clock;
  RandomSource random;
  CallObserver* observer = nullptr;  // null: no observer
};

// All references outlive every call.
struct RpcContext : CallServices {
  const ServedModel& model;
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  TextPools& texts;
  ConstraintCompiler& constraints;
  LoadReporter& load;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_RPC_CONTEXT_H_
