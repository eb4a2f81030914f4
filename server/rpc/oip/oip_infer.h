// GRPCInferenceService.ModelInfer: a prompt in, the whole output out.
#ifndef TLM_SERVER_RPC_OIP_OIP_INFER_H_
#define TLM_SERVER_RPC_OIP_OIP_INFER_H_

#include <grpcpp/grpcpp.h>

#include "inference/open_inference.pb.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Takes over one call: checks it, admits it, queues it, and answers when the output has ended, with
// the statuses of Generate. `context` and `response` are gRPC's, `rpc` outlives the call; `request`
// is not used after return.
grpc::ServerUnaryReactor* StartOipInfer(grpc::CallbackServerContext* context,
                                        const inference::ModelInferRequest& request,
                                        inference::ModelInferResponse* response,
                                        const RpcContext& rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OIP_OIP_INFER_H_
