// Converts the conversation of a GenerateRequest, and the format of its answer.
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
  std::string text;             // tokenized text; empty if ids were given
  std::vector<ChatTool> tools;  // tools of a conversation
};

// Renders a conversation with the model's chat template and tokenizes it. If `add_special_tokens`
// is unset, only the template's special tokens are used. FAILED_PRECONDITION when the model has no
// template, or the template cannot express the conversation.
absl::StatusOr<PromptInput> ConvertChat(const v1::ChatInput& chat,
                                        std::optional<bool> add_special_tokens,
                                        const ServedModel& model);

// Converts the answer's format; ConvertGenerate calls it last. `prompt` may come from any kind of
// input. Tools and reasoning become the call's constraint, together with a constraint on the text
// that the call may already have; sets output.regions.
absl::Status ConvertAnswer(const v1::GenerateRequest& request, const ServedModel& model,
                           const PromptInput& prompt, GenerateCall& call);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_CHAT_H_
