// LanguageModel.Tokenize and Detokenize: text to token ids and back.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_TOKENIZE_HANDLER_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_TOKENIZE_HANDLER_H_

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "server/rpc/call/rpc_context.h"
#include "server/serving/served_model.h"
#include "tlm/v1/tokenize.pb.h"

namespace tlm {

// Whether an answer is wanted no more: asked now and then, and ends the work.
using Unwanted = std::function<bool()>;

// FAILED_PRECONDITION without a tokenizer; RESOURCE_EXHAUSTED, reason MESSAGE_TOO_LARGE, as soon as
// the answer exceeds limits.max_response_bytes; otherwise the statuses of convert.
absl::Status Tokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                      const Unwanted& unwanted, v1::TokenizeResponse& response);
absl::Status Detokenize(const v1::DetokenizeRequest& request, const ServedModel& model,
                        const Unwanted& unwanted, v1::DetokenizeResponse& response);

// Take over one call each. Requests of more than TextPools::kAtOnceBytes wait for their turn in
// rpc.texts and are admitted as calls that work; an answer counts there until the client has it.
// `context` and `response` are gRPC's, `rpc` and `request` outlive the call.
grpc::ServerUnaryReactor* StartTokenize(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                        const RpcContext& rpc);
grpc::ServerUnaryReactor* StartDetokenize(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer* response, const RpcContext& rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_TOKENIZE_HANDLER_H_
