// LanguageModel.Tokenize and Detokenize: text to token ids and back.
#ifndef TLM_SERVER_RPC_TOKENIZE_HANDLER_H_
#define TLM_SERVER_RPC_TOKENIZE_HANDLER_H_

#include "absl/status/status.h"
#include "server/rpc/served_model.h"
#include "tlm/v1/tokenize.pb.h"

namespace tlm {

// FAILED_PRECONDITION without a tokenizer; RESOURCE_EXHAUSTED, reason MESSAGE_TOO_LARGE, when the
// answer would exceed limits.max_response_bytes; otherwise the statuses of convert.
absl::Status Tokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                      v1::TokenizeResponse& response);
absl::Status Detokenize(const v1::DetokenizeRequest& request, const ServedModel& model,
                        v1::DetokenizeResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_TOKENIZE_HANDLER_H_
