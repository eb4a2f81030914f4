// Finds out what a template does with a conversation by rendering small ones.
#ifndef TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_
#define TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"

namespace tlm {

// Renders like a template with these traits.
using RenderProbe = std::function<absl::StatusOr<std::string>(const Conversation& conversation,
                                                              const nlohmann::json& arguments,
                                                              const ChatTemplateTraits& traits)>;

// Calls `render` at most 21 times, and no more after RESOURCE_EXHAUSTED. Nothing follows from a
// failure: a template that fails on every conversation has no traits. Tries only variables that
// occur in `source`.
ChatTemplateTraits FindTraits(const RenderProbe& render, std::string_view source);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_
