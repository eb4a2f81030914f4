// A grammar as automata, one for each rule, that call each other.
#ifndef TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_NETWORK_H_
#define TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_NETWORK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/regex_set.h"

namespace tlm {

// Terminals are expressions. Everything that needs no recursion is part of a terminal: short rules
// replace their names, and sequences and alternatives of terminals become one terminal. Immutable.
class GrammarNetwork {
 public:
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kTerminal, kCall };
    Kind kind = Kind::kEmpty;
    int32_t to = 0;                      // node
    ByteRegex regex = RegexSet::kEmpty;  // kTerminal
    int32_t rule = 0;                    // kCall
  };
  struct Rule {
    int32_t start = 0;      // node
    bool nullable = false;  // the rule produces the empty text
  };

  // Compiles a grammar in GBNF. Fails as Grammar::Parse does, and with INVALID_ARGUMENT if
  // `root` produces no text, and with RESOURCE_EXHAUSTED above a limit.
  static absl::StatusOr<std::shared_ptr<const GrammarNetwork>> Compile(
      std::string_view gbnf, const ConstraintLimits& limits, Budget& budget);

  // The edges from a node. From every edge a final node can be reached, also in the rule it calls.
  std::span<const Edge> EdgesOf(int32_t node) const {
    const Node& of = nodes_[static_cast<size_t>(node)];
    return {edges_.data() + of.begin, edges_.data() + of.end};
  }
  // Whether the rule may end at the node.
  bool IsFinal(int32_t node) const { return nodes_[static_cast<size_t>(node)].final; }
  // Whether the rule must end at the node.
  bool IsEnd(int32_t node) const { return IsFinal(node) && EdgesOf(node).empty(); }
  const Rule& rule(int32_t rule) const { return rules_[static_cast<size_t>(rule)]; }
  int32_t root() const { return 0; }

  // The expressions of the terminals.
  const RegexSet& regexes() const { return regexes_; }
  // Bytes of one class are in the same byte sets of all terminals, so they lead to the same states.
  int32_t ClassOf(uint8_t byte) const { return classes_.class_of[byte]; }
  // One byte of each class.
  std::span<const uint8_t> classes() const { return classes_.examples; }

  size_t bytes() const {
    return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Edge) +
           rules_.size() * sizeof(Rule) + regexes_.bytes();
  }

 private:
  friend class GrammarNetworkBuilder;
  struct Node {
    int32_t begin = 0, end = 0;  // indices in edges_
    bool final = false;
  };

  explicit GrammarNetwork(RegexSet regexes) : regexes_(std::move(regexes)) {}

  RegexSet regexes_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<Rule> rules_;  // the rules that are called; the root is the first
  ByteClasses classes_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_GRAMMAR_GRAMMAR_NETWORK_H_
