// Admin.FlushPrefixCache: answered when the engine has done it.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_FLUSH_CALL_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_FLUSH_CALL_H_

#include <grpcpp/grpcpp.h>

#include "server/batching/engine.h"
#include "tlm/v1/admin.pb.h"

namespace tlm {

// Takes over one call; `response` is gRPC's, `engine` outlives the call's start. A client that goes
// away before the engine has answered is let go at once.
grpc::ServerUnaryReactor* StartFlushPrefixCache(Engine& engine,
                                                v1::FlushPrefixCacheResponse* response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_FLUSH_CALL_H_
