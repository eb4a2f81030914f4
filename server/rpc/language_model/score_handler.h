// LanguageModel.Score: how probable given continuations of a prompt are.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_SCORE_HANDLER_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_SCORE_HANDLER_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Takes over one call: checks it, admits it, queues it, fills `response` when all is scored, or
// ends it with a status as language_model.proto lists them. `context` and `response` are gRPC's,
// `rpc` and `request` outlive the call.
grpc::ServerUnaryReactor* StartScore(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                     const RpcContext& rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_SCORE_HANDLER_H_
