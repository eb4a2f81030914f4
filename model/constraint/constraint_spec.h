// The specification of a constraint, as requests give it: one language, or a flow that mixes free
// text with several languages.
#ifndef TLM_MODEL_CONSTRAINT_CONSTRAINT_SPEC_H_
#define TLM_MODEL_CONSTRAINT_CONSTRAINT_SPEC_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/json/json_options.h"

namespace tlm {

class Recognizer;

// A constraint on an output. All texts are UTF-8.
struct ConstraintSpec {
  // A JSON document that the schema allows.
  struct JsonSchema {
    std::string schema;
    friend auto operator<=>(const JsonSchema&, const JsonSchema&) = default;
  };
  // Any JSON object.
  struct JsonObject {
    friend auto operator<=>(const JsonObject&, const JsonObject&) = default;
  };
  // A pattern of ECMA-262 that matches the whole text.
  struct Regex {
    std::string pattern;
    friend auto operator<=>(const Regex&, const Regex&) = default;
  };
  // A text that the grammar's rule `root` produces.
  struct Grammar {
    std::string gbnf;
    friend auto operator<=>(const Grammar&, const Grammar&) = default;
  };
  // One of these texts.
  struct Choices {
    std::vector<std::string> texts;
    friend auto operator<=>(const Choices&, const Choices&) = default;
  };
  // The empty text.
  struct Nothing {
    friend auto operator<=>(const Nothing&, const Nothing&) = default;
  };
  // A language that another folder defines; an example is kXmlArguments in model/chat. `compile`
  // translates `Custom::text` to a recognizer factory, and fails as Constraint::Compile does.
  struct CustomKind {
    std::string_view name;  // in error messages
    absl::StatusOr<std::function<std::unique_ptr<Recognizer>()>> (*compile)(
        std::string_view text, const JsonOptions& options, const ConstraintLimits& limits,
        Budget& budget);
  };
  // A text of such a language.
  struct Custom {
    const CustomKind* kind = nullptr;  // has static lifetime
    std::string text;
    friend auto operator<=>(const Custom&, const Custom&) = default;
  };

  // One language.
  using Content = std::variant<JsonObject, JsonSchema, Regex, Grammar, Choices, Nothing, Custom>;

  // A way from one node of a flow to another: the text `begin`, then a text of `content`, then the
  // text `end`. In `begin` and `end`, kSpecialTokenMark before the text of a special token means
  // the token itself: "\xFF<|channel|>analysis".
  struct Edge {
    std::string begin;
    Content content = {};
    std::string end = {};
    int32_t target = 0;  // index of a node
    // The request's field that `content` comes from, for error messages:
    // "chat.tools[1].parameters_json_schema". If empty, messages give the place in the flow:
    // "nodes[0].edges[2].regex".
    std::string field = {};
  };

  // Free text, or a point where an edge follows at once. Free text ends at the first trigger, or at
  // a lead at its very start. If several end at the same byte, the longest counts. An edge whose
  // `begin` starts with that text follows. A trigger or lead that starts no edge is masked. If a
  // trigger or lead has special tokens, its plain spelling is masked, too.
  struct Node {
    bool is_free = false;
    bool may_end = false;                    // the output may end here
    std::vector<std::string> triggers = {};  // free text only
    std::vector<std::string> leads = {};     // free text only
    std::vector<Edge> edges = {};
    // The tokens of this free text count towards the flow's `token_budget`. After the last token of
    // the budget only the edge `closing` may follow; its `begin` starts at the next character.
    bool is_budgeted = false;
    int32_t closing = -1;  // index in `edges`
  };

  // A graph of free text and constrained regions. It begins at the first node.
  struct Flow {
    std::vector<Node> nodes;
    std::optional<int64_t> token_budget;
  };

  std::variant<Content, Flow> language;
  JsonOptions json;  // applies to all JSON of the output

  // Null for the other alternative.
  const Content* content() const { return std::get_if<Content>(&language); }
  const Flow* flow() const { return std::get_if<Flow>(&language); }
};

// The schema, pattern, grammar or custom text; empty for contents without a text.
std::string_view TextOf(const ConstraintSpec::Content& content);
// The content's kind as requests name it: "json_schema", "regex".
std::string_view KindName(const ConstraintSpec::Content& content);

// Bytes of all texts of the specification together.
size_t TextBytes(const ConstraintSpec& spec);

// Equal for equal specifications, different for different ones.
std::string CacheKey(const ConstraintSpec& spec);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_CONSTRAINT_SPEC_H_
