// Implements SubscribeKvEvents of vllm.grpc.engine.VllmEngine.
#ifndef TLM_SERVER_RPC_FACADES_VLLM_KV_EVENT_STREAM_H_
#define TLM_SERVER_RPC_FACADES_VLLM_KV_EVENT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include "server/batching/kv_event_log.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"
#include "smg/grpc/common/common.pb.h"

namespace tlm {

// Fills an empty `message`.
void FillKvEventBatch(const KvEventBatch& batch, ::smg::grpc::common::KvEventBatch& message);

// Streams the changes of the tenant's blocks to the caller until the client leaves or the engine
// stops (UNAVAILABLE, reason DRAINING). UNIMPLEMENTED without a prefix cache. The call is not
// admitted, so a drain does not wait for it.
grpc::ServerWriteReactor<::smg::grpc::common::KvEventBatch>* StartKvEventStream(
    grpc::CallbackServerContext* context,
    const ::smg::grpc::common::SubscribeKvEventsRequest& request, const CallServices& services,
    const RpcGate& gate);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_VLLM_KV_EVENT_STREAM_H_
