// Chat templates: they render a conversation to the text of a prompt.
#ifndef TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
#define TLM_MODEL_CHAT_CHAT_TEMPLATE_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "model/chat/conversation.h"
#include "model/chat/template_traits.h"

namespace tlm {

// A compiled template in the subset of Jinja2 that chat templates use. Templates are untrusted:
// they can read only their variables, and steps, nesting, memory and output are bounded. Immutable
// and thread-safe.
class ChatTemplate {
 public:
  // Loads the template of a model directory that transformers would choose: chat_template.jinja,
  // and additional_chat_templates/tool_use.jinja for conversations with tools; where there is
  // neither, `chat_template` of tokenizer_config.json, a text or a list of named ones ("default",
  // "tool_use"). The special tokens in tokenizer_config.json become variables. Returns null when
  // the directory has no template. INVALID_ARGUMENT names file, line and fault; UNIMPLEMENTED names
  // the construct that is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);

  // `variables` is an object of the variables of every call, such as {"bos_token": "<s>"}.
  // strftime_now reads `clock`, which must outlive the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                             const nlohmann::json& variables,
                                                             Clock* clock = Clock::Wall());
  virtual ~ChatTemplate() = default;

  // `arguments` is an object of further variables; it cannot replace messages, tools,
  // add_generation_prompt or the special tokens, nor contradict `conversation.reasoning`
  // (INVALID_ARGUMENT names the key). The text equals the result of transformers'
  // apply_chat_template for messages and tools in OpenAI's form. INVALID_ARGUMENT also for invalid
  // JSON, naming its place ("messages[2].tool_calls[0].arguments_json"), when the template raises
  // an exception, with its message, or applies an operation to a value of the wrong type;
  // RESOURCE_EXHAUSTED, naming the limit, for too many steps or too much text.
  virtual absl::StatusOr<std::string> Render(const Conversation& conversation,
                                             const nlohmann::json& arguments) const = 0;

  virtual const ChatTemplateTraits& traits() const = 0;
  // Returns the text of the template; if there are several named ones, all of them, joined.
  virtual std::string_view source() const = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
