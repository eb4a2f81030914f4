#include "model/chat/chat_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/chat/xml_arguments.h"
#include "model/constraint/mask/token_trie.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

// A row and the signs of its templates: a template has all of `signs` and none of `others`.
template <typename Format>
struct Row {
  Format format;
  std::vector<std::string_view> signs;
  std::vector<std::string_view> others = {};
};

// The first row that fits is chosen.
const std::vector<Row<ReasoningFormat>>& ReasoningRows() {
  static const auto* const rows = new std::vector<Row<ReasoningFormat>>{
      {{.name = "harmony",
        .open = "<|channel|>analysis<|message|>",
        .close = "<|end|><|start|>assistant",
        .closing = "<|end|><|start|>assistant",
        .takes_line_breaks = false,
        .text_open = "<|channel|>final<|message|>",
        .preamble_open = "<|channel|>commentary<|message|>",
        .preamble_close = "<|end|><|start|>assistant",
        .parser = "openai_gptoss"},
       {"<|channel|>", "analysis", "<|message|>"}},
      {{.name = "mistral",
        .open = "[THINK]",
        .close = "[/THINK]",
        .closing = "[/THINK]",
        .takes_line_breaks = false,
        .parser = "mistral"},
       {"[THINK]", "[/THINK]"}},
      {{.name = "seed_oss",
        .open = "<seed:think>",
        .close = "</seed:think>",
        .closing = "</seed:think>",
        .parser = "seed_oss"},
       {"<seed:think>"}},
      {{.name = "think",
        .open = "<think>",
        .close = "</think>",
        .closing = "\n</think>\n\n",
        .parser = "deepseek_r1"},
       {"</think>"}},
  };
  return *rows;
}

const std::vector<Row<ToolFormat>>& ToolRows() {
  static const auto* const rows = new std::vector<Row<ToolFormat>>{
      {{.name = "harmony",
        .before_name = "<|channel|>commentary to=functions.",
        .after_name = " <|constrain|>json<|message|>",
        .after_arguments = "",
        .trigger = "<|channel|>commentary to=",
        .parallel = false,
        .reasoning = "harmony",
        .parser = "openai"},
       {"<|channel|>", "to=", "functions."}},
      {{.name = "qwen3_coder",
        .before_name = "<tool_call>\n<function=",
        .after_name = ">\n",
        .after_arguments = "\n</tool_call>",
        .between = "\n",
        .trigger = "<tool_call>",
        .arguments = ToolFormat::Arguments::kXml,
        .parser = "qwen3_coder"},
       {"<tool_call>", "<function=", "<parameter="}},
      {{.name = "hermes",
        .before_name = "<tool_call>\n{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_arguments = "}\n</tool_call>",
        .between = "\n",
        .trigger = "<tool_call>",
        .parser = "hermes"},
       {"<tool_call>", "arguments"},
       {"<arg_key>"}},
      {{.name = "deepseek_v3",
        .begin = "<｜tool▁calls▁begin｜>",
        .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        .after_name = "\n```json\n",
        .after_arguments = "\n```<｜tool▁call▁end｜>",
        .between = "\n",
        .end = "<｜tool▁calls▁end｜>",
        .trigger = "<｜tool▁calls▁begin｜>",
        .parser = "deepseek_v3"},
       {"<｜tool▁sep｜>", "```json"}},
      {{.name = "deepseek_v3_1",
        .begin = "<｜tool▁calls▁begin｜>",
        .before_name = "<｜tool▁call▁begin｜>",
        .after_name = "<｜tool▁sep｜>",
        .after_arguments = "<｜tool▁call▁end｜>",
        .end = "<｜tool▁calls▁end｜>",
        .trigger = "<｜tool▁calls▁begin｜>",
        .parser = "deepseek_v31"},
       {"<｜tool▁sep｜>"}},
      {{.name = "mistral_args",
        .before_name = "[TOOL_CALLS]",
        .after_name = "[ARGS]",
        .after_arguments = "",
        .trigger = "[TOOL_CALLS]",
        .parser = "mistral"},
       {"[TOOL_CALLS]", "[ARGS]"},
       {"[CALL_ID]"}},
      {{.name = "mistral",
        .begin = "[TOOL_CALLS] [",
        .before_name = "{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_arguments = "}",
        .between = ", ",
        .end = "]",
        .trigger = "[TOOL_CALLS]",
        .parser = "mistral"},
       {"[TOOL_CALLS] ["}},
      {{.name = "mistral_nemo",
        .begin = "[TOOL_CALLS][",
        .before_name = "{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_arguments = "}",
        .between = ", ",
        .end = "]",
        .trigger = "[TOOL_CALLS]",
        .parser = "mistral"},
       {"[TOOL_CALLS]["}},
      {{.name = "llama3_json",
        .before_name = "{\"name\": \"",
        .after_name = "\", \"parameters\": ",
        .after_arguments = "}",
        .trigger = "{\"name\": \"",
        .place = ToolFormat::Place::kBeginning,
        .parallel = false,
        .parser = "llama3_json"},
       {"dictionary of argument name and its value"}},
  };
  return *rows;
}

template <typename Format>
std::vector<std::string_view> NamesOf(const std::vector<Row<Format>>& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.format.name);
  return names;
}

// Returns null for "none", or if "auto" finds no row.
template <typename Format>
absl::StatusOr<const Format*> FindRow(const std::vector<Row<Format>>& rows,
                                      const ChatTemplate* chat, std::string_view name,
                                      std::string_view what) {
  const auto occurs = [&](std::string_view sign) {
    return FindText(chat->source(), sign) != std::string_view::npos;
  };
  const bool finds = name == "auto";
  if (name == "none" || (finds && chat == nullptr)) return nullptr;
  for (const auto& row : rows) {
    const bool fits =
        finds ? std::ranges::all_of(row.signs, occurs) && std::ranges::none_of(row.others, occurs)
              : row.format.name == name;
    if (fits) return &row.format;
  }
  if (finds) return nullptr;
  return InvalidArgument("{} {} is none of auto, none, {}", what, Quoted(name),
                         fmt::join(NamesOf(rows), ", "));
}

std::vector<std::string_view> MarkersOf(const ChatFormat& format) {
  std::vector<std::string_view> markers;
  if (const ReasoningFormat* row = format.reasoning) {
    markers.insert(markers.end(), {row->open, row->close, row->closing, row->text_open,
                                   row->preamble_open, row->preamble_close});
  }
  if (const ToolFormat* row = format.tools) {
    markers.insert(markers.end(), {row->begin, row->before_name, row->after_name,
                                   row->after_arguments, row->between, row->end});
  }
  return markers;
}

std::vector<std::string> SpecialTokensIn(const std::vector<std::string_view>& markers,
                                         const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) continue;
    std::string token = tokenizer.IdToToken(id);
    const auto holds = [&](std::string_view marker) {
      return FindText(marker, token) != std::string_view::npos;
    };
    if (!token.empty() && std::ranges::any_of(markers, holds)) tokens.push_back(std::move(token));
  }
  return tokens;
}

// Returns a tool's schema, with the type "object" added if it has no type.
std::string ObjectSchema(const std::string& schema) {
  if (schema.empty()) return R"({"type": "object"})";
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(schema);
  if (!parsed.ok() || !parsed->is_object() || parsed->contains("type")) return schema;
  const size_t inside = schema.find('{') + 1;
  return schema.substr(0, inside) + R"("type": "object")" + (parsed->empty() ? "" : ", ") +
         schema.substr(inside);
}

// Builds the nodes of a constraint. An answer is free text that markers divide or, in formats in
// which text has a marker, parts that each begin with one:
//
//   think:    reasoning ─► text ─► called ─┐           harmony:  header ─► reasoning ─► header ...
//                 ▲         │       ▲      │                     header ─► text
//                 └─ start ─┘       └──────┘                     header ─► call
class AnswerFlow {
 public:
  AnswerFlow(const ChatFormat& format, const AnswerPlan& plan)
      : reasoning_(format.reasoning != nullptr ? *format.reasoning : ReasoningFormat{}),
        tools_(format.tools != nullptr ? *format.tools : ToolFormat{}),
        special_tokens_(format.special_tokens),
        plan_(plan),
        has_reasoning_(format.reasoning != nullptr),
        watches_calls_(format.tools != nullptr && !plan.tools.empty()),
        may_call_(watches_calls_ && plan.choice != AnswerPlan::Choice::kNone),
        must_call_(plan.choice == AnswerPlan::Choice::kRequired) {}

  ConstraintSpec Build() {
    ConstraintSpec::Flow flow;
    if (plan_.reasoning != false) flow.token_budget = plan_.reasoning_budget;
    nodes_.resize(kNodes);
    AddCalled();
    AddReasoning();
    if (reasoning_.text_open.empty()) {
      AddText(kStart);
      AddText(kText);
    } else {
      AddHeader(kStart);
      AddHeader(kText);
      AddMarkedText();
    }
    AddStart();
    flow.nodes = Reachable();
    return {.language = std::move(flow), .json = plan_.json};
  }

 private:
  using Node = ConstraintSpec::Node;
  using Edge = ConstraintSpec::Edge;
  // kText follows reasoning; nothing follows kEnd.
  enum NodeName : int32_t { kStart, kReasoning, kText, kCalled, kEnd, kAnswer, kPreamble, kNodes };

  Node& node(int32_t name) { return nodes_[static_cast<size_t>(name)]; }

  // Adds the mark before each special token.
  std::string Marked(std::string_view marker) const {
    std::string text;
    while (!marker.empty()) {
      std::string_view longest;
      for (const std::string& token : special_tokens_) {
        if (marker.starts_with(token) && token.size() > longest.size()) longest = token;
      }
      if (!longest.empty()) text += kSpecialTokenMark;
      const size_t bytes = std::max<size_t>(longest.size(), 1);
      text += marker.substr(0, bytes);
      marker.remove_prefix(bytes);
    }
    return text;
  }

  Edge Marker(std::string_view marker, int32_t target) const {
    return {.begin = Marked(marker), .content = ConstraintSpec::Nothing(), .target = target};
  }

  // Adds a call of each tool that may be called, after `before`.
  void AddCalls(std::string_view before, Node& node) const {
    const bool several = plan_.parallel && tools_.parallel;
    const int32_t target = several || !tools_.end.empty() ? kCalled : kEnd;
    for (size_t i = 0; i < plan_.tools.size(); ++i) {
      if (plan_.only.has_value() && *plan_.only != i) continue;
      const ChatTool& tool = plan_.tools[i];
      std::string schema = ObjectSchema(tool.parameters_json_schema);
      const bool is_xml = tools_.arguments == ToolFormat::Arguments::kXml;
      ConstraintSpec::Content arguments = ConstraintSpec::JsonSchema{schema};
      if (is_xml) arguments = ConstraintSpec::Custom{&kXmlArguments, std::move(schema)};
      node.edges.push_back({.begin = Marked(before) + Marked(tools_.before_name) + tool.name +
                                     Marked(tools_.after_name),
                            .content = std::move(arguments),
                            .end = Marked(tools_.after_arguments),
                            .target = target,
                            .field = i < plan_.tool_fields.size() ? plan_.tool_fields[i] : ""});
    }
  }

  void AddCalled() {
    node(kEnd).may_end = true;
    if (!may_call_) return;
    Node& called = node(kCalled);
    called.may_end = tools_.end.empty();
    if (!called.may_end) called.edges.push_back(Marker(tools_.end, kEnd));
    if (plan_.parallel && tools_.parallel) AddCalls(tools_.between, called);
  }

  void AddReasoning() {
    if (!has_reasoning_) return;
    Node& reasoning = node(kReasoning);
    reasoning.is_free = true;
    reasoning.may_end = !must_call_ && !plan_.text.has_value();
    reasoning.triggers = {Marked(reasoning_.close)};
    const std::string_view closing = reasoning_.closing;
    reasoning.edges.push_back(Marker(reasoning_.close, kText));
    // If the following part is not free text, the line breaks that would belong to the text may
    // follow here.
    const std::string_view rest =
        closing.substr(closing.find(reasoning_.close) + reasoning_.close.size());
    if (!TextIsFree() && !rest.empty()) {
      reasoning.edges.push_back(Marker(std::string(reasoning_.close) + std::string(rest), kText));
    }
    if (!plan_.reasoning_budget.has_value()) return;
    reasoning.is_budgeted = true;
    reasoning.closing = static_cast<int32_t>(reasoning.edges.size());
    reasoning.edges.push_back(Marker(closing, kText));
  }

  bool TextIsFree() const {
    const bool is_constrained = plan_.text.has_value() && plan_.text->flow() == nullptr;
    return !must_call_ && !is_constrained && reasoning_.text_open.empty();
  }

  // Adds a text node, for formats in which text has no marker.
  void AddText(int32_t name) {
    Node& text = node(name);
    const bool may_open =
        name == kStart && has_reasoning_ && !plan_.reasoning.has_value() && !must_call_;
    if (TextIsFree()) {
      text.is_free = true;
      text.may_end = true;
      const bool anywhere = tools_.place == ToolFormat::Place::kAnywhere;
      if (watches_calls_) (anywhere ? text.triggers : text.leads).push_back(Marked(tools_.trigger));
      if (may_open) text.leads.push_back(Marked(reasoning_.open));
    }
    if (may_open) text.edges.push_back(Marker(reasoning_.open, kReasoning));
    if (may_call_) AddCalls(tools_.begin, text);
    // Line breaks after reasoning belong to its end.
    for (std::string_view breaks = "\n\n"; !text.leads.empty() && name == kText && !breaks.empty();
         breaks.remove_prefix(1)) {
      text.leads.push_back(Marked(std::string(breaks) + std::string(tools_.trigger)));
      if (may_call_) AddCalls(std::string(breaks) + std::string(tools_.begin), text);
    }
    if (!must_call_) AddContent("", name, text);
  }

  // Adds the constraint of the text, after `before`.
  void AddContent(std::string_view before, int32_t name, Node& text) const {
    if (!plan_.text.has_value()) return;
    if (plan_.text->flow() == nullptr) {
      text.edges.push_back({.begin = Marked(before),
                            .content = *plan_.text->content(),
                            .target = kEnd,
                            .field = plan_.text_field});
      return;
    }
    const Node& free = plan_.text->flow()->nodes[0];
    text.triggers.insert(text.triggers.end(), free.triggers.begin(), free.triggers.end());
    for (Edge edge : free.edges) {
      edge.target = name;
      text.edges.push_back(std::move(edge));
    }
  }

  // Adds a node that begins a part, for formats in which each part begins with a marker.
  void AddHeader(int32_t name) {
    Node& header = node(name);
    const bool may_open = name == kStart && plan_.reasoning != false;
    if (may_open) header.edges.push_back(Marker(reasoning_.open, kReasoning));
    if (may_call_) AddCalls(tools_.begin, header);
    if (must_call_) return;
    const bool is_constrained = plan_.text.has_value() && plan_.text->flow() == nullptr;
    if (is_constrained) return AddContent(reasoning_.text_open, name, header);
    header.edges.push_back(Marker(reasoning_.text_open, kAnswer));
    header.edges.push_back(Marker(reasoning_.preamble_open, kPreamble));
  }

  void AddMarkedText() {
    Node& answer = node(kAnswer);
    answer.is_free = answer.may_end = true;
    if (plan_.text.has_value() && plan_.text->flow() != nullptr) {
      AddContent("", kAnswer, answer);
    }
    Node& preamble = node(kPreamble);
    preamble.is_free = preamble.may_end = true;
    preamble.triggers = {Marked(reasoning_.preamble_close)};
    preamble.edges.push_back(Marker(reasoning_.preamble_close, kStart));
  }

  void AddStart() {
    if (!plan_.begins_in_reasoning && plan_.reasoning != true) return;
    // Another node becomes the first one; the former first node moves to the end.
    Node start;
    if (plan_.begins_in_reasoning && plan_.reasoning == false) {
      start.edges.push_back(Marker(reasoning_.closing, kText));
    } else if (plan_.begins_in_reasoning) {
      start = node(kReasoning);
    } else {
      start.edges.push_back(Marker(reasoning_.open, kReasoning));
    }
    for (Node& other : nodes_) {
      for (Edge& edge : other.edges) {
        if (edge.target == kStart) edge.target = kNodes;
      }
    }
    nodes_.push_back(std::exchange(node(kStart), std::move(start)));
  }

  // Returns the nodes that can be reached from the first.
  std::vector<Node> Reachable() const {
    std::vector<int32_t> names = {0};
    std::vector<int32_t> numbers(nodes_.size(), -1);
    numbers[0] = 0;
    std::vector<Node> nodes;
    for (size_t i = 0; i < names.size(); ++i) {
      nodes.push_back(nodes_[static_cast<size_t>(names[i])]);
      for (Edge& edge : nodes.back().edges) {
        int32_t& number = numbers[static_cast<size_t>(edge.target)];
        if (number < 0) {
          number = static_cast<int32_t>(names.size());
          names.push_back(edge.target);
        }
        edge.target = number;
      }
    }
    return nodes;
  }

  const ReasoningFormat reasoning_;
  const ToolFormat tools_;
  const std::vector<std::string>& special_tokens_;
  const AnswerPlan& plan_;
  const bool has_reasoning_, watches_calls_, may_call_, must_call_;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<std::string_view> ReasoningFormatNames() { return NamesOf(ReasoningRows()); }
std::vector<std::string_view> ToolFormatNames() { return NamesOf(ToolRows()); }

absl::StatusOr<ChatFormat> FindChatFormat(const ChatTemplate* chat, const Tokenizer& tokenizer,
                                          std::string_view reasoning_format,
                                          std::string_view tool_format) {
  ChatFormat format;
  TLM_ASSIGN_OR_RETURN(format.reasoning,
                       FindRow(ReasoningRows(), chat, reasoning_format, "the reasoning format"));
  TLM_ASSIGN_OR_RETURN(format.tools, FindRow(ToolRows(), chat, tool_format, "the tool format"));
  const std::string_view needed = format.tools != nullptr ? format.tools->reasoning : "";
  if (!needed.empty() && (format.reasoning == nullptr || format.reasoning->name != needed)) {
    if (tool_format != "auto") {
      return InvalidArgument("the tool format {} needs the reasoning format {}, which is {}",
                             Quoted(format.tools->name), Quoted(needed), Quoted(reasoning_format));
    }
    format.tools = nullptr;
  }
  format.special_tokens = SpecialTokensIn(MarkersOf(format), tokenizer);
  return format;
}

bool PromptOpensReasoning(const ChatFormat& format, std::string_view prompt) {
  if (format.reasoning == nullptr) return false;
  if (format.reasoning->takes_line_breaks) {
    while (prompt.ends_with('\n')) prompt.remove_suffix(1);
  }
  return prompt.ends_with(format.reasoning->open);
}

std::optional<ConstraintSpec> AnswerConstraint(const ChatFormat& format, const AnswerPlan& plan) {
  const bool asks_reasoning = plan.reasoning == true || plan.reasoning_budget.has_value() ||
                              (plan.reasoning == false && plan.begins_in_reasoning);
  if (plan.tools.empty() && !asks_reasoning && !plan.text.has_value()) return std::nullopt;
  return AnswerFlow(format, plan).Build();
}

}  // namespace tlm
