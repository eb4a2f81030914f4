// LanguageModel.Forward: token sequences in, rows over the vocabulary out.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_FORWARD_HANDLER_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_FORWARD_HANDLER_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Takes over one call: checks it, admits it, queues its sequences a few at a time, and streams
// header, rows*, summary. Rows that wait for a slow reader are bounded by kForwardBufferBytes; the
// engine pauses the sequences of a reader that does not keep up. `request` outlives the call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartForward(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer& request,
                                                         const RpcContext& rpc);

// Logits of one call that wait to be sent, over all its mailboxes (at least one row each).
inline constexpr int64_t kForwardBufferBytes = int64_t{64} << 20;
// Sequences of one call that are queued or running at once.
inline constexpr int64_t kForwardWindow = 16;

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_FORWARD_HANDLER_H_
