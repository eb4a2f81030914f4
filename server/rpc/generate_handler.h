// LanguageModel.Generate: a prompt in, events out.
#ifndef TLM_SERVER_RPC_GENERATE_HANDLER_H_
#define TLM_SERVER_RPC_GENERATE_HANDLER_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/rpc_context.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Takes over one call: checks it, admits it, queues it, and streams started, (tokens | finished)*,
// summary, or ends it with a status as language_model.proto lists them. While a write is in flight,
// tokens gather and go out together. `context` is gRPC's, `rpc` outlives the call; `request` is not
// used after return.
grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerate(grpc::CallbackServerContext* context,
                                                              const v1::GenerateRequest& request,
                                                              const RpcContext& rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_HANDLER_H_
