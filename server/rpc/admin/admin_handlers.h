// Handles the calls of the Admin service.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_HANDLERS_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_HANDLERS_H_

#include <grpcpp/grpcpp.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/admission/admission.h"
#include "server/admission/shutdown_request.h"
#include "server/batching/engine.h"
#include "server/config/command_line.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/rpc_context.h"
#include "server/serving/request_limits.h"
#include "tlm/v1/admin.pb.h"

namespace tlm {

// Available from the start. All objects outlive every call.
struct AdminContext : CallServices {
  ShutdownRequest& shutdown;
  std::vector<ConfigOption> config;  // sorted by name
};

// Available once the model is loaded. All objects outlive every call.
struct AdminTarget {
  Engine& engine;
  Admission& admission;
  CallRegistry& calls;
  const RequestLimits& limits;
  absl::Time serving_since;
};

// All fill `response` and return at once, except FlushPrefixCache.

void GetLoad(const AdminContext& admin, const AdminTarget& target, v1::GetLoadResponse& response);

// Ends Generate, Forward, Score and Verify calls with ABORTED, reason ABORTED_BY_ADMIN.
// INVALID_ARGUMENT, and nothing is ended, for more than kMaxAbortIds names or a name longer than a
// request id may be.
absl::Status AbortCalls(const v1::AbortRequest& request, const AdminTarget& target,
                        v1::AbortResponse& response);

// INVALID_ARGUMENT for a negative time limit.
absl::Status BeginDrain(const v1::DrainRequest& request, const AdminContext& admin,
                        const AdminTarget& target, v1::DrainResponse& response);

void GetConfig(const AdminContext& admin, v1::GetConfigResponse& response);

// Takes over one call and answers it once the engine has flushed. gRPC owns `response`; `engine`
// outlives the start of the call. A cancelled call ends at once.
grpc::ServerUnaryReactor* StartFlushPrefixCache(Engine& engine,
                                                v1::FlushPrefixCacheResponse* response);

// The most names in an Abort request, and the most ended calls named in its answer, so that both
// messages stay small enough.
inline constexpr int kMaxAbortIds = 16384;

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_HANDLERS_H_
