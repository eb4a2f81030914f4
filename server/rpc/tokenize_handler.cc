#include "server/rpc/tokenize_handler.h"

#include <optional>
#include <string>
#include <vector>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/rpc/convert.h"

namespace tlm {
namespace {

absl::Status CheckResponseSize(size_t bytes, const ServedModel& model) {
  const int64_t limit = model.limits.max_response_bytes;
  if (static_cast<int64_t>(bytes) <= limit) return absl::OkStatus();
  return WithReason(ResourceExhausted("the answer takes {} bytes, the limit is {}: send less at "
                                      "a time",
                                      bytes, limit),
                    "MESSAGE_TOO_LARGE");
}

}  // namespace

absl::Status Tokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                      v1::TokenizeResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "text", "token ids are all it takes"));
  std::optional<bool> special;
  if (request.has_add_special_tokens()) special = request.add_special_tokens();
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       TokenizeText(request.text(), special, model, "text"));
  for (const int32_t id : ids) {
    response.add_token_ids(static_cast<uint32_t>(id));
    response.add_token_bytes(std::string(model.tokenizer->TokenBytes(id)));
  }
  return CheckResponseSize(response.ByteSizeLong(), model);
}

absl::Status Detokenize(const v1::DetokenizeRequest& request, const ServedModel& model,
                        v1::DetokenizeResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "token_ids", "there is no text to give"));
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       TokenIdsOf(request.token_ids(), model, "token_ids"));
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  for (const int32_t id : ids) {
    if (skip_special && model.tokenizer->IsSpecial(id)) continue;
    response.mutable_bytes()->append(model.tokenizer->TokenBytes(id));
    // Before the memory is taken: a few bytes of request may stand for a long token.
    TLM_RETURN_IF_ERROR(CheckResponseSize(response.bytes().size(), model));
  }
  response.set_text(model.tokenizer->Decode(ids, skip_special));
  return CheckResponseSize(response.ByteSizeLong(), model);
}

}  // namespace tlm
