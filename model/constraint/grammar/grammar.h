// Parses grammars in GBNF, the notation of llama.cpp (its grammars/README.md), to trees.
#ifndef TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_H_
#define TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/char_set.h"

namespace tlm {

struct Grammar {
  static constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kMaxRepetitions = 1'000'000;
  static constexpr int32_t kMaxDepth = 200;  // nested groups and repetitions

  enum class Kind : uint8_t { kLiteral, kClass, kRule, kSequence, kAlternatives, kRepeat };
  struct Node {
    Kind kind = Kind::kSequence;
    uint8_t depth = 1;                // of the subtree, including this node
    int32_t index = 0;                // kLiteral: in literals, kClass: in classes, kRule: in rules
    int32_t min = 0, max = 0;         // kRepeat; max may be kUnbounded
    size_t place = 0;                 // byte offset in the text
    std::vector<int32_t> parts = {};  // indices in nodes, smaller than this node's
  };
  struct Rule {
    std::string name;
    int32_t first = 0, body = -1;  // first and last of its nodes; the last is the root of its tree
    size_t place = 0;              // byte offset of its definition
  };

  // Names consist of letters, digits, - and _. A rule ends with its line, except in parentheses,
  // after ::= and |, and before |. Literals and classes may contain the escapes \n \r \t \\ \" \[
  // \] \- \xXX \uXXXX \UXXXXXXXX; each escape is one character. INVALID_ARGUMENT, naming line and
  // column, for a text that is malformed, uses an undefined rule, defines a rule twice, has no rule
  // `root`, or has tokens (<...>). RESOURCE_EXHAUSTED for more than `max_nodes` nodes.
  static absl::StatusOr<Grammar> Parse(std::string_view gbnf, size_t max_nodes, Budget& budget);

  // "line 3, column 7"; columns count characters.
  static std::string PlaceName(std::string_view gbnf, size_t place);

  std::vector<Node> nodes;
  std::vector<std::string> literals;  // UTF-8
  std::vector<CharSet> classes;       // all different
  std::vector<Rule> rules;
  int32_t root = 0;  // index in rules
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_H_
