// Chat templates: render a conversation to the text of a prompt.
#ifndef TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
#define TLM_MODEL_CHAT_CHAT_TEMPLATE_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/base/clock.h"

namespace tlm {

struct ChatMessage {
  std::string role;
  std::string content;
};

// A compiled template in the subset of Jinja2 of chat templates. Templates are untrusted: they can
// read only their variables, and steps, nesting, memory and output are bounded. Immutable and
// thread-safe.
class ChatTemplate {
 public:
  // The template of a model directory: chat_template.jinja or, where there is none, `chat_template`
  // of tokenizer_config.json (a text, or a list of named ones of which "default" counts), with the
  // special tokens that file names. Null when the directory has no template. INVALID_ARGUMENT names
  // file, line and fault; UNIMPLEMENTED the construct that is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);

  // `variables`: an object of the variables of every call, such as {"bos_token": "<s>"}. `clock` is
  // for strftime_now; it outlives the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                             const nlohmann::json& variables,
                                                             Clock* clock = Clock::Wall());
  virtual ~ChatTemplate() = default;

  // `arguments`: an object of further variables; it cannot replace messages, add_generation_prompt
  // or the special tokens (INVALID_ARGUMENT names the key). INVALID_ARGUMENT also when the template
  // raises an exception, with its message, or applies an operation to a value of the wrong type;
  // RESOURCE_EXHAUSTED, naming the limit, for too many steps or too much text.
  virtual absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages,
                                             bool add_generation_prompt,
                                             const nlohmann::json& arguments) const = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
