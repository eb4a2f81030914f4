// Chat templates: a conversation to the text of a prompt, as the model was trained to read it.
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

// A compiled template in the subset of Jinja2 that chat templates are written in. Templates are
// untrusted: they can read what they are given and nothing else, and steps, nesting, memory and
// output are bounded. Immutable and thread-safe.
class ChatTemplate {
 public:
  // The template of a model directory: chat_template.jinja or, where there is none, `chat_template`
  // of tokenizer_config.json (a text, or a list of named ones of which "default" counts), with the
  // special tokens that file names. Null when the directory has no template. INVALID_ARGUMENT names
  // file, line and fault; UNIMPLEMENTED the construct that is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);

  // `variables`: an object of what the template may read besides a call's own, such as
  // {"bos_token": "<s>"}. `clock` is what strftime_now reads; it outlives the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                             const nlohmann::json& variables,
                                                             Clock* clock = Clock::Wall());
  virtual ~ChatTemplate() = default;

  // `arguments`: an object of further variables; it cannot replace messages, add_generation_prompt
  // or the special tokens (INVALID_ARGUMENT names the key). INVALID_ARGUMENT also when the template
  // raises an exception about the conversation, in its own words, or meets a value that does not
  // fit an operation; RESOURCE_EXHAUSTED, naming the limit, when it takes too many steps or makes
  // too much text.
  virtual absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages,
                                             bool add_generation_prompt,
                                             const nlohmann::json& arguments) const = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
