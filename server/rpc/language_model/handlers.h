// Handles the calls of tlm.v1.LanguageModel, except Generate (server/rpc/generate).
//
// Each Start function takes over one call, which ends with a status listed in language_model.proto.
// gRPC owns `context` and `response`; `rpc` and `request` outlive the call.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_HANDLERS_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_HANDLERS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "server/rpc/call/rpc_context.h"
#include "server/serving/served_model.h"
#include "tlm/v1/model_info.pb.h"
#include "tlm/v1/tokenize.pb.h"

namespace tlm {

// Forward: checks the call, admits it, queues its sequences a few at a time, and streams header,
// rows*, summary. kForwardBufferBytes bounds the rows that wait for a slow reader; the engine
// pauses that reader's sequences.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartForward(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer& request,
                                                         const RpcContext& rpc);

// Bytes of logits of one Forward call that wait to be sent, over all its token streams (each may
// hold at least one row).
inline constexpr int64_t kForwardBufferBytes = int64_t{64} << 20;
// Sequences of one Forward call that are queued or running at once.
inline constexpr int64_t kForwardWindow = 16;

// Score: checks the call, admits it, queues it, and fills `response` once everything is scored.
grpc::ServerUnaryReactor* StartScore(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                     const RpcContext& rpc);

// Verify: checks the call, admits it, has its constraint compiled, queues it, and fills `response`
// once a claimed token differs or all are compared.
grpc::ServerUnaryReactor* StartVerify(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                      const RpcContext& rpc);

// Tokenize and Detokenize. Requests of more than TextPools::kAtOnceBytes wait in rpc.texts and are
// admitted; a response counts there until the client has read it.
grpc::ServerUnaryReactor* StartTokenize(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                        const RpcContext& rpc);
grpc::ServerUnaryReactor* StartDetokenize(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer* response, const RpcContext& rpc);

// Polled during the work: true when the call has ended; the work then ends with CANCELLED.
using IsCancelled = std::function<bool()>;

// Do the work of Tokenize and Detokenize. FAILED_PRECONDITION without a tokenizer;
// RESOURCE_EXHAUSTED, reason MESSAGE_TOO_LARGE, as soon as the response exceeds
// limits.max_response_bytes; otherwise the statuses of convert.
absl::Status Tokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                      const IsCancelled& cancelled, v1::TokenizeResponse& response);
absl::Status Detokenize(const v1::DetokenizeRequest& request, const ServedModel& model,
                        const IsCancelled& cancelled, v1::DetokenizeResponse& response);

// Grows with every addition to tlm.v1 that a client may want to test for.
inline constexpr uint32_t kApiRevision = 12;

// ModelInfo: the model, its exact size, and every limit; uses only `model`, not the engine.
// NOT_FOUND for another model's name, INVALID_ARGUMENT for a `flops` query that is too long.
absl::Status GetModelInfo(const v1::ModelInfoRequest& request, const ServedModel& model,
                          v1::ModelInfoResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_HANDLERS_H_
