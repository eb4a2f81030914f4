// What an output must be, and which tokens may follow in it.
#ifndef TLM_MODEL_CONSTRAINT_CONSTRAINT_H_
#define TLM_MODEL_CONSTRAINT_CONSTRAINT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/tokenizer/stream_decoder.h"

namespace tlm {

class TokenTrie;

struct JsonOptions {
  bool compact = false;             // no white space between tokens of JSON
  bool any_property_order = false;  // else as the schema lists them
  // Strings with any escapes, and integers with a fraction of zeros or an exponent; else each
  // string is written in one way (TextForm::kJson), and integers are digits.
  bool any_escapes = false;
};

// Stands in the texts of a flow before the text of a special token, which it makes the token
// itself: "\xFF<|channel|>analysis". In no other text; no well-formed one has this byte.
inline constexpr char kSpecialTokenMark = '\xFF';

struct ConstraintSpec {
  // kXmlArguments: a JSON object of the schema `text`, written as XmlArguments says; kNothing: the
  // empty text. Both only inside of a flow.
  enum class Kind {
    kJsonSchema,
    kRegex,
    kGrammar,
    kChoices,
    kJsonObject,
    kFlow,
    kXmlArguments,
    kNothing
  };
  // `begin`, then what `content` describes, then `end`: a way from a node to another.
  struct Edge {
    std::string begin;
    Kind kind = Kind::kJsonSchema;  // any but kFlow
    std::string content = {};
    std::vector<std::string> choices = {};  // of kChoices
    std::string end = {};
    int32_t target = 0;
    // The name of `content` in messages: "chat.tools[1].parameters_json_schema". Empty: its place,
    // "nodes[0].edges[2].regex".
    std::string field = {};
  };
  // A place of a flow. In free text: where it comes to one of the triggers, and where it begins
  // with one of the leads, it continues with an edge whose `begin` begins with that; to one with
  // which no edge begins it does not come. What comes first counts, of those that end at one place
  // the longest. It does not come to the plain spelling of one with special tokens, either.
  // Elsewhere an edge follows at once, and `begin` may be empty.
  struct Node {
    bool is_free = false;
    bool may_end = false;
    std::vector<std::string> triggers = {};
    std::vector<std::string> leads = {};
    std::vector<Edge> edges = {};
    // Free text whose tokens are counted. Once there are `token_budget` the edge `closing` alone
    // follows, its `begin` from the next character on.
    bool is_budgeted = false;
    int32_t closing = -1;
  };

  Kind kind = Kind::kJsonObject;
  std::string text;                  // the schema, expression or grammar
  std::vector<std::string> choices;  // of kChoices
  std::vector<Node> nodes;           // of kFlow; it begins at the first
  std::optional<int64_t> token_budget;
  JsonOptions json;
};

// Of all its texts together.
size_t TextBytes(const ConstraintSpec& spec);

struct ConstraintLimits {
  size_t max_text_bytes = size_t{1} << 20;  // TextBytes of the specification
  size_t max_states = 200'000;
  size_t max_bytes = size_t{64} << 20;                        // what a compiled constraint may take
  absl::Duration max_compile_time = absl::Milliseconds(250);  // of the thread that does it
};

// A compiled constraint with the vocabulary it is used with. Thread-safe. Grows while it is used,
// up to its limit; what it then forgets is computed again.
class Constraint {
 public:
  // INVALID_ARGUMENT for a specification that is malformed or has what is not supported, naming it
  // and its place; RESOURCE_EXHAUSTED above a limit, naming what cost it; CANCELLED once
  // `cancelled` (may be null) is true. Messages do not name the kind: callers add the name of their
  // field. They name a part of a flow: "nodes[0].edges[2].regex: ...".
  static absl::StatusOr<std::shared_ptr<Constraint>> Compile(
      const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> tokens,
      const ConstraintLimits& limits, const std::atomic<bool>* cancelled);
  ~Constraint();

  // About the memory it takes, in bytes.
  size_t bytes() const;

 private:
  friend class ConstraintMatcher;
  struct Impl;
  explicit Constraint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One output under a constraint: a function of the constraint and the tokens accepted so far, and
// of nothing else. Not thread-safe; several may use one Constraint at a time.
class ConstraintMatcher {
 public:
  struct Allowed {
    // The tokens that may follow: bit id % 64 of word id / 64; end tokens have none. Valid until
    // the next call.
    std::span<const uint64_t> tokens;
    bool none = false;   // no token may follow
    bool whole = false;  // the text may end here
    // The only token that is drawn here, if there is one: either no other may follow, or the text's
    // next bytes are determined and it is the tokenizer's way to write them.
    std::optional<int32_t> forced;
  };

  // `position` is that of the first token (PositionAfter the prompt).
  explicit ConstraintMatcher(std::shared_ptr<Constraint> constraint,
                             TextPosition position = TextPosition::kContinuesText);

  // Whether the token may follow; it is appended then. At a limit true, and none may follow it.
  bool Accept(int32_t token);
  // What may follow the tokens accepted.
  Allowed Next();

 private:
  std::shared_ptr<Constraint> constraint_;
  TextPosition position_;
  std::string text_;            // of the tokens accepted
  int64_t counted_ = 0;         // of them, by the budget
  std::vector<size_t> closed_;  // the lengths of text_ at which the budget was used up
  uint64_t epoch_ = 0;          // that state_ is of
  int32_t state_ = 0;           // behind text_
  bool is_dead_ = false;        // a limit was met
  std::vector<uint64_t> words_;
  std::shared_ptr<const void> shown_;  // what Next() returned last
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_CONSTRAINT_H_
