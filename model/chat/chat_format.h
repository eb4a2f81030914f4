// How models mark up their answers: reasoning, text, calls of tools. Each format is a row of a
// table.
//
//   <think>\nWhat is asked?\n</think>\n\nI look.\n<tool_call>\n{"name": "add", "arguments": {"a":
//   1}}\n</tool_call>
//           reasoning                  text                                       arguments
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
  std::string_view open;     // at the beginning of the output, unless the prompt ends with it
  std::string_view close;    // where text follows
  std::string_view closing;  // what ends it when its budget is used up; contains `close`
  // Line breaks around the markers belong to them. Elsewhere markers are exact.
  bool takes_line_breaks = true;
  // Of formats in which text has a marker, too: that of the answer, that of text before a call or
  // further reasoning, and the end of the latter. Empty elsewhere: what is nothing else is text.
  std::string_view text_open = {};
  std::string_view preamble_open = {};
  std::string_view preamble_close = {};
  std::string_view parser = {};  // vLLM's name of its parser; empty: it has none
};

struct ToolFormat {
  enum class Arguments { kJson, kXml };
  enum class Place { kAnywhere, kBeginning };  // of the output or the text behind reasoning

  std::string_view name;
  // begin (call (between call)*) end; call: before_name NAME after_name ARGUMENTS after_arguments.
  std::string_view begin = {};
  std::string_view before_name;
  std::string_view after_name;
  std::string_view after_arguments;
  std::string_view between = {};
  std::string_view end = {};
  // What opens the calls: `begin` + `before_name` begin with it. No text holds it.
  std::string_view trigger;
  Arguments arguments = Arguments::kJson;
  Place place = Place::kAnywhere;
  bool parallel = true;             // several calls may follow one another
  std::string_view reasoning = {};  // the format of reasoning without which it is none
  std::string_view parser = {};
};

// Of a model: what was found or set; either may be null.
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

// The formats of a model: "auto" finds one by its template (null: none is found), "none" is none,
// another name sets a row's. No row of calls is found that needs another format of reasoning.
// INVALID_ARGUMENT for names of no row, listing all, and for a row of calls that is set without the
// format of reasoning that it needs.
absl::StatusOr<ChatFormat> FindChatFormat(const ChatTemplate* chat, const Tokenizer& tokenizer,
                                          std::string_view reasoning_format,
                                          std::string_view tool_format);

// What an answer is to be. It fits the format: no tools without its `tools`, no wish for reasoning
// without its `reasoning`.
struct AnswerPlan {
  enum class Choice { kAuto, kNone, kRequired };

  // Their schemas are objects whose `type` is absent or "object".
  std::span<const ChatTool> tools = {};
  Choice choice = Choice::kAuto;
  std::optional<size_t> only = {};  // of `tools`: the one that is called; with kRequired
  bool parallel = true;
  std::optional<bool> reasoning = {};            // true: it begins with it; false: it has none
  std::optional<int64_t> reasoning_budget = {};  // tokens
  // The prompt ends within reasoning (PromptOpensReasoning).
  bool begins_in_reasoning = false;
  // What the text must be; none: free. Any kind but kFlow, or a flow of one free node.
  std::optional<ConstraintSpec> text = {};
  JsonOptions json = {};
  // Fields of the edges (ConstraintSpec::Edge) that hold the schema of each of `tools`, and `text`
  // unless that is a flow, whose edges have their own.
  std::vector<std::string> tool_fields = {};
  std::string text_field = {};
};

// Whether the rendered prompt leaves reasoning open.
bool PromptOpensReasoning(const ChatFormat& format, std::string_view prompt);

// The constraint of the whole output; none where anything is allowed.
std::optional<ConstraintSpec> AnswerConstraint(const ChatFormat& format, const AnswerPlan& plan);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CHAT_FORMAT_H_
