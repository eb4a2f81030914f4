// The markers that models put around the parts of their answers: reasoning, text, tool calls. Each
// format is a row of a table.
//
//   <think>\nWhat is asked?\n</think>\n\nI look.\n
//            reasoning                   text
//   <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>
//                                             arguments
#ifndef TLM_MODEL_CHAT_CHAT_FORMAT_H_
#define TLM_MODEL_CHAT_CHAT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "model/constraint/constraint_spec.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm {

struct ReasoningFormat {
  std::string_view name;
  std::string_view open;     // begins reasoning at the start of the output, unless the prompt ends
                             // with it
  std::string_view close;    // ends reasoning; text follows
  std::string_view closing;  // ends reasoning whose budget is used up; contains `close`
  // If true, line breaks around the markers belong to the markers; otherwise markers are exact.
  bool takes_line_breaks = true;
  // For formats in which text has markers, too: they begin the answer, begin text before a call or
  // further reasoning, and end such text. Empty for other formats, where everything between the
  // other markers is text.
  std::string_view text_open = {};
  std::string_view preamble_open = {};
  std::string_view preamble_close = {};
  std::string_view parser = {};  // vLLM's name of its parser; empty: vLLM has none
};

struct ToolFormat {
  enum class Arguments { kJson, kXml };
  enum class Place { kAnywhere, kBeginning };  // of the output or the text after reasoning

  std::string_view name;
  // A part of calls is begin (call (between call)*) end, and a call is before_name NAME after_name
  // ARGUMENTS after_arguments.
  std::string_view begin = {};
  std::string_view before_name;
  std::string_view after_name;
  std::string_view after_arguments;
  std::string_view between = {};
  std::string_view end = {};
  // The beginning of `begin` + `before_name` that opens the calls. Free text never contains it.
  std::string_view trigger;
  Arguments arguments = Arguments::kJson;
  Place place = Place::kAnywhere;
  bool parallel = true;             // several calls may follow one another
  std::string_view reasoning = {};  // the reasoning format that it needs; empty: any
  std::string_view parser = {};
};

// A model's formats, found or set; either may be null.
struct ChatFormat {
  const ReasoningFormat* reasoning = nullptr;
  const ToolFormat* tools = nullptr;
  // The tokenizer's special tokens that occur in the markers.
  std::vector<std::string> special_tokens = {};

  bool special_markers() const { return !special_tokens.empty(); }
};

// The names of all rows.
std::vector<std::string_view> ReasoningFormatNames();
std::vector<std::string_view> ToolFormatNames();

// Finds the formats of a model: "auto" finds one by its template (null if no row fits), "none"
// gives null, another name selects a row. "auto" never gives a tool format that needs another
// reasoning format. INVALID_ARGUMENT for names of no row, listing all, and for a tool format that
// is set without the reasoning format that it needs.
absl::StatusOr<ChatFormat> FindChatFormat(const ChatTemplate* chat, const Tokenizer& tokenizer,
                                          std::string_view reasoning_format,
                                          std::string_view tool_format);

// The required form of an answer. It must fit the format: tools only if the format has `tools`, a
// wish for reasoning only if it has `reasoning`.
struct AnswerPlan {
  enum class Choice { kAuto, kNone, kRequired };

  // Their schemas are objects whose `type` is absent or "object".
  std::span<const ChatTool> tools = {};
  Choice choice = Choice::kAuto;
  std::optional<size_t> only = {};  // index of the tool that must be called; with kRequired
  bool parallel = true;
  std::optional<bool> reasoning = {};            // true: the answer begins with reasoning; false:
                                                 // it has none
  std::optional<int64_t> reasoning_budget = {};  // tokens
  // The prompt ends inside reasoning (PromptOpensReasoning).
  bool begins_in_reasoning = false;
  // The constraint of the text; nullopt: free. Any kind except kFlow, or a flow of one free node.
  std::optional<ConstraintSpec> text = {};
  JsonOptions json = {};
  // The request fields (ConstraintSpec::Edge::field) of the schema of each tool, and of `text`
  // unless it is a flow: a flow's edges have their own.
  std::vector<std::string> tool_fields = {};
  std::string text_field = {};
};

// True if the rendered prompt leaves reasoning open.
bool PromptOpensReasoning(const ChatFormat& format, std::string_view prompt);

// Returns the constraint of the whole output; nullopt where anything is allowed.
std::optional<ConstraintSpec> AnswerConstraint(const ChatFormat& format, const AnswerPlan& plan);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_FORMAT_H_
