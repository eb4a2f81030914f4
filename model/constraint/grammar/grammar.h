// Grammars in GBNF, the notation of llama.cpp (its grammars/README.md), as trees.
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
  static constexpr int32_t kMaxDepth = 200;  // of groups and repetitions in each other

  enum class Kind : uint8_t { kLiteral, kClass, kRule, kSequence, kAlternatives, kRepeat };
  struct Node {
    Kind kind = Kind::kSequence;
    uint8_t depth = 1;                // of the tree below it, with itself
    int32_t index = 0;                // kLiteral: in literals, kClass: in classes, kRule: in rules
    int32_t min = 0, max = 0;         // of kRepeat: max may be kUnbounded
    size_t place = 0;                 // in the text, in bytes
    std::vector<int32_t> parts = {};  // in nodes, before this
  };
  struct Rule {
    std::string name;
    int32_t first = 0, body = -1;  // its nodes: the body is the last of them
    size_t place = 0;              // of its definition
  };

  // Letters, digits, - and _ make names. A rule ends with its line, except in parentheses, after
  // ::= and |, and before |. Literals and classes take the escapes \n \r \t \\ \" \[ \] \- \xXX
  // \uXXXX \UXXXXXXXX; each stands for a character. INVALID_ARGUMENT for a text that is malformed,
  // names a rule that is not defined, defines one twice, has no rule `root`, or has tokens (<...>),
  // naming line and column; RESOURCE_EXHAUSTED for more than `max_nodes` nodes.
  static absl::StatusOr<Grammar> Parse(std::string_view gbnf, size_t max_nodes, Budget& budget);

  // "line 3, column 7"; columns count characters.
  static std::string PlaceName(std::string_view gbnf, size_t place);

  std::vector<Node> nodes;
  std::vector<std::string> literals;  // UTF-8
  std::vector<CharSet> classes;       // all different
  std::vector<Rule> rules;
  int32_t root = 0;  // in rules
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_H_
