// The conversation of a GenerateRequest, and what its answer is to be.
#ifndef TLM_SERVER_RPC_CONVERT_CONVERT_CHAT_H_
#define TLM_SERVER_RPC_CONVERT_CONVERT_CHAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

struct PromptInput {
  std::vector<int32_t> ids;
  std::string text;             // that was tokenized; empty of one that came as ids
  std::vector<ChatTool> tools;  // of a conversation, as it has them
};

// Renders a conversation by the model's chat template and tokenizes it; unset special tokens: only
// those of the template. FAILED_PRECONDITION when the model has no template, or it cannot show what
// the conversation has.
absl::StatusOr<PromptInput> ConvertChat(const v1::ChatInput& chat,
                                        std::optional<bool> add_special_tokens,
                                        const ServedModel& model);

// For ConvertGenerate, last: what follows `prompt`, whatever input it came from. Tools and
// reasoning become the constraint of the call, which may have one for the text; sets
// output.regions.
absl::Status ConvertAnswer(const v1::GenerateRequest& request, const ServedModel& model,
                           const PromptInput& prompt, GenerateCall& call);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_CHAT_H_
