// Chat templates: render a conversation to the text of a prompt.
#ifndef TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
#define TLM_MODEL_CHAT_CHAT_TEMPLATE_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/clock.h"

namespace tlm {

// Texts of JSON reach the template as Python reads them: keys in this order; of a key that occurs
// twice the last value counts. Integers have 64 bits.
struct ChatToolCall {
  std::string id;  // empty: the template sees none
  std::string name;
  std::string arguments_json;  // an object
};

struct ChatMessage {
  std::string role;
  std::string content;         // empty beside calls: as ChatTemplateTraits::no_content says
  std::string reasoning = {};  // under every key that templates read it from
  std::vector<ChatToolCall> tool_calls = {};
  std::string tool_call_id = {};
  std::string name = {};
};

struct ChatTool {
  std::string name;
  std::string description;             // empty: the template sees none
  std::string parameters_json_schema;  // an object; empty: the template sees none
};

// What is rendered. The spans outlive the call.
struct Conversation {
  std::span<const ChatMessage> messages;
  std::span<const ChatTool> tools = {};
  bool add_generation_prompt = true;
  // Sets the template's switch for reasoning, where it has one. Unset: as the template has it.
  std::optional<bool> reasoning = {};
};

// What a template does with a conversation; found by rendering small ones.
struct ChatTemplateTraits {
  bool tools = false;              // shows them
  bool tool_calls = false;         // renders those of messages
  bool tool_results = false;       // renders messages of the role "tool"
  bool arguments_as_text = false;  // of tool calls: JSON as a text, not as an object
  // What stands beside calls for an empty content: no key, as transformers has it, unless the
  // template renders calls with another one alone.
  enum class NoContent { kNoKey, kEmptyText, kNull };
  NoContent no_content = NoContent::kNoKey;
  std::string reasoning_switch;  // the variable that turns reasoning off and on; empty: none
};

// A compiled template in the subset of Jinja2 of chat templates. Templates are untrusted: they can
// read only their variables, and steps, nesting, memory and output are bounded. Immutable and
// thread-safe.
class ChatTemplate {
 public:
  // The template of a model directory, as transformers chooses it: chat_template.jinja, and
  // additional_chat_templates/tool_use.jinja for conversations with tools; where there is neither,
  // `chat_template` of tokenizer_config.json, a text or a list of named ones ("default",
  // "tool_use"). With the special tokens that tokenizer_config.json names. Null when the directory
  // has no template. INVALID_ARGUMENT names file, line and fault; UNIMPLEMENTED the construct that
  // is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);

  // `variables`: an object of the variables of every call, such as {"bos_token": "<s>"}. `clock` is
  // for strftime_now; it outlives the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                             const nlohmann::json& variables,
                                                             Clock* clock = Clock::Wall());
  virtual ~ChatTemplate() = default;

  // `arguments`: an object of further variables; it cannot replace messages, tools,
  // add_generation_prompt or the special tokens, nor contradict `conversation.reasoning`
  // (INVALID_ARGUMENT names the key). The text is the one that transformers' apply_chat_template
  // gives for messages and tools in OpenAI's form.
  // INVALID_ARGUMENT also for JSON that is none, naming its place
  // ("messages[2].tool_calls[0].arguments_json"), when the template raises an exception, with its
  // message, or applies an operation to a value of the wrong type; RESOURCE_EXHAUSTED, naming the
  // limit, for too many steps or too much text.
  virtual absl::StatusOr<std::string> Render(const Conversation& conversation,
                                             const nlohmann::json& arguments) const = 0;

  virtual const ChatTemplateTraits& traits() const = 0;
  // The text of the template; of several named ones all of them, joined.
  virtual std::string_view source() const = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_TEMPLATE_H_
