// LanguageModel.Generate: a prompt in, events out.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_GENERATE_HANDLER_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_GENERATE_HANDLER_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Takes over one call: checks it, admits it, queues it, and streams started, (tokens | finished)*,
// summary, or ends it with a status as language_model.proto lists them. While a write is in flight,
// tokens gather and go out together. `context` is gRPC's, `rpc` and `request` outlive the call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer& request,
                                                          const RpcContext& rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_GENERATE_HANDLER_H_
