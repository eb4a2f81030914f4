#include "model/constraint/grammar/grammar_network.h"

#include <algorithm>
#include <string>

#include "model/base/errors.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/grammar/grammar.h"

namespace tlm {
namespace {

// The largest size of a rule that replaces its name.
constexpr int64_t kMaxInlinedSize = 2000;
// The largest sum of these sizes over all replaced names.
constexpr int64_t kMaxInlinedTotal = 200'000;
// Derivatives of an expression recurse about twice as deep as its weight.
constexpr int64_t kMaxWeight = 200;

size_t Index(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

class GrammarNetworkBuilder {
 public:
  GrammarNetworkBuilder(std::string_view gbnf, Grammar grammar, const ConstraintLimits& limits,
                        Budget& budget)
      : gbnf_(gbnf),
        grammar_(std::move(grammar)),
        max_edges_(limits.max_states),
        budget_(budget),
        network_(new GrammarNetwork(RegexSet(limits.max_bytes / RegexSet::kBytesPerExpression))),
        regexes_(network_->regexes_) {}

  absl::StatusOr<std::shared_ptr<const GrammarNetwork>> Build() {
    TLM_RETURN_IF_ERROR(FindTerminals());
    RuleId(grammar_.root);
    for (size_t i = 0; i < called_.size(); ++i) TLM_RETURN_IF_ERROR(BuildRule(i));
    TLM_RETURN_IF_ERROR(Prune());
    Forward();
    const Reached empty = Reach(true);
    for (size_t i = 0; i < called_.size(); ++i) network_->rules_[i].nullable = empty.rules[i];
    Pack();
    for (const ByteSet& set : regexes_.sets()) network_->classes_.SplitBy(set);
    return std::move(network_);
  }

 private:
  using Edge = GrammarNetwork::Edge;
  struct FromEdge : Edge {
    int32_t from = 0;
  };
  // Properties of a node of the grammar.
  struct Info {
    bool regular = false;  // it can be a terminal
    bool nullable = false;
    int64_t size = 0;    // approximate number of expressions
    int64_t weight = 0;  // approximate depth of nested expressions that a derivative passes
  };
  struct SequenceInfo {
    void Add(const Info& part) {
      info.regular &= part.regular;
      info.nullable &= part.nullable;
      info.size += part.size;
      // A derivative continues after a part that may be empty.
      (part.nullable ? passed : deepest) =
          part.nullable ? passed + part.weight + 1 : std::max(deepest, part.weight);
      info.weight = passed + deepest;
    }
    Info info = {.regular = true, .nullable = true, .size = 1, .weight = 1};
    int64_t passed = 1, deepest = 0;
  };

  std::string PlaceName(size_t place) const { return Grammar::PlaceName(gbnf_, place); }

  // Sets info_ of all nodes. A rule comes after the rules that it names, unless they are recursive.
  absl::Status FindTerminals() {
    const size_t rules = grammar_.rules.size();
    info_.resize(grammar_.nodes.size());
    inlined_.resize(rules);
    rule_regex_.resize(rules, RegexSet::kNone);
    class_regex_.resize(grammar_.classes.size(), RegexSet::kNone);
    std::vector<std::vector<int32_t>> named_by(rules);
    std::vector<int32_t> waits(rules);  // names whose rules are not done
    std::vector<int32_t> ready, rest;
    for (size_t rule = 0; rule < rules; ++rule) {
      for (int32_t n = grammar_.rules[rule].first; n <= grammar_.rules[rule].body; ++n) {
        const Grammar::Node& node = grammar_.nodes[Index(n)];
        if (node.kind != Grammar::Kind::kRule) continue;
        named_by[Index(node.index)].push_back(static_cast<int32_t>(rule));
        ++waits[rule];
      }
      if (waits[rule] == 0) ready.push_back(static_cast<int32_t>(rule));
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      TLM_RETURN_IF_ERROR(FindTerminalsOf(ready[i], true));
      for (const int32_t other : named_by[Index(ready[i])]) {
        if (--waits[Index(other)] == 0) ready.push_back(other);
      }
    }
    for (size_t rule = 0; rule < rules; ++rule) {
      if (waits[rule] == 0) continue;
      TLM_RETURN_IF_ERROR(FindTerminalsOf(static_cast<int32_t>(rule), false));
    }
    return absl::OkStatus();
  }

  absl::Status FindTerminalsOf(int32_t rule, bool may_inline) {
    const Grammar::Rule& of = grammar_.rules[Index(rule)];
    for (int32_t n = of.first; n <= of.body; ++n) info_[Index(n)] = InfoOf(n);
    TLM_RETURN_IF_ERROR(budget_.Spend(of.body - of.first + 1, "the grammar's terminals"));
    const Info& body = info_[Index(of.body)];
    if (!may_inline || !body.regular || body.size > kMaxInlinedSize) return absl::OkStatus();
    TLM_ASSIGN_OR_RETURN(rule_regex_[Index(rule)], RegexOf(of.body));
    inlined_[Index(rule)] = true;
    return absl::OkStatus();
  }

  Info InfoOf(int32_t n) {
    const Grammar::Node& node = grammar_.nodes[Index(n)];
    Info info = {.regular = true, .size = 1, .weight = 1};
    switch (node.kind) {
      case Grammar::Kind::kLiteral: {
        const size_t bytes = grammar_.literals[Index(node.index)].size();
        info.nullable = bytes == 0;
        info.size += static_cast<int64_t>(bytes);
        break;
      }
      case Grammar::Kind::kClass:
        info.size += 4 * static_cast<int64_t>(grammar_.classes[Index(node.index)].ranges().size());
        break;
      case Grammar::Kind::kRule:
        if (!inlined_[Index(node.index)]) return {};
        info = info_[Index(grammar_.rules[Index(node.index)].body)];
        inlined_total_ += info.size;
        info.regular = inlined_total_ <= kMaxInlinedTotal;
        break;
      case Grammar::Kind::kSequence: {
        SequenceInfo sequence;
        for (const int32_t part : node.parts) sequence.Add(info_[Index(part)]);
        info = sequence.info;
        break;
      }
      case Grammar::Kind::kAlternatives:
        for (const int32_t part : node.parts) {
          const Info& of = info_[Index(part)];
          info.regular &= of.regular;
          info.nullable |= of.nullable;
          info.size += of.size;
          info.weight = std::max(info.weight, of.weight + 1);
        }
        break;
      case Grammar::Kind::kRepeat: {
        const Info& of = info_[Index(node.parts[0])];
        info.regular = of.regular;
        info.nullable = node.min == 0 || of.nullable;
        info.size += of.size;
        info.weight += of.weight;
        break;
      }
    }
    info.regular &= info.weight <= kMaxWeight;
    return info;
  }

  // The expression of a regular node.
  absl::StatusOr<ByteRegex> RegexOf(int32_t n) {
    const Grammar::Node& node = grammar_.nodes[Index(n)];
    TLM_RETURN_IF_ERROR(budget_.Spend(5 + info_[Index(n)].size, "the grammar's terminals"));
    ByteRegex regex = RegexSet::kNone;
    switch (node.kind) {
      case Grammar::Kind::kLiteral:
        regex = regexes_.Literal(grammar_.literals[Index(node.index)]);
        break;
      case Grammar::Kind::kClass: {
        ByteRegex& known = class_regex_[Index(node.index)];
        if (known == RegexSet::kNone) {
          known = CharRegex(regexes_, grammar_.classes[Index(node.index)], TextForm::kUtf8);
        }
        regex = known;
        break;
      }
      case Grammar::Kind::kRule:
        regex = rule_regex_[Index(node.index)];
        break;
      case Grammar::Kind::kSequence: {
        std::vector<ByteRegex> parts;
        for (const int32_t part : node.parts) {
          TLM_ASSIGN_OR_RETURN(parts.emplace_back(), RegexOf(part));
        }
        regex = regexes_.Concat(parts);
        break;
      }
      case Grammar::Kind::kAlternatives:
        return AnyRegexOf(node.parts, node.place);
      case Grammar::Kind::kRepeat: {
        TLM_ASSIGN_OR_RETURN(const ByteRegex part, RegexOf(node.parts[0]));
        regex = regexes_.Repeat(part, node.min, node.max);
        break;
      }
    }
    TLM_RETURN_IF_ERROR(CheckExpressions(node.place));
    return regex;
  }

  absl::StatusOr<ByteRegex> AnyRegexOf(std::span<const int32_t> alternatives, size_t place) {
    std::vector<std::string_view> literals;
    std::vector<ByteRegex> parts;
    for (const int32_t part : alternatives) {
      const Grammar::Node& node = grammar_.nodes[Index(part)];
      if (node.kind == Grammar::Kind::kLiteral) {
        literals.push_back(grammar_.literals[Index(node.index)]);
      } else {
        TLM_ASSIGN_OR_RETURN(parts.emplace_back(), RegexOf(part));
      }
    }
    if (!literals.empty()) parts.push_back(LiteralsRegex(regexes_, std::move(literals)));
    const ByteRegex regex = regexes_.Or(parts);
    TLM_RETURN_IF_ERROR(CheckExpressions(place));
    return regex;
  }

  absl::Status CheckExpressions(size_t place) const {
    if (!regexes_.full()) return absl::OkStatus();
    return ResourceExhausted("{}: the expressions of the terminals are more than {}",
                             PlaceName(place), regexes_.size());
  }

  // The network's number of a rule; schedules the rule to be built if it is new.
  int32_t RuleId(int32_t rule) {
    if (rule_ids_.empty()) rule_ids_.resize(grammar_.rules.size(), -1);
    int32_t& id = rule_ids_[Index(rule)];
    if (id < 0) {
      id = static_cast<int32_t>(called_.size());
      called_.push_back(rule);
      network_->rules_.push_back({.start = NewNode()});
    }
    return id;
  }

  int32_t NewNode() {
    network_->nodes_.emplace_back();
    return static_cast<int32_t>(network_->nodes_.size() - 1);
  }

  absl::Status AddEdge(int32_t from, const Edge& edge, size_t place) {
    if (edges_.size() >= max_edges_) {
      return ResourceExhausted("{}: with what is repeated there are more than {} parts",
                               PlaceName(place), max_edges_);
    }
    edges_.push_back({edge, from});
    return budget_.Spend(5, "the grammar's automata");
  }
  absl::Status AddTerminal(int32_t from, ByteRegex regex, int32_t to, size_t place) {
    if (regex == RegexSet::kNone) return absl::OkStatus();
    const auto kind = regex == RegexSet::kEmpty ? Edge::Kind::kEmpty : Edge::Kind::kTerminal;
    return AddEdge(from, {.kind = kind, .to = to, .regex = regex}, place);
  }

  absl::Status BuildRule(size_t id) {
    const Grammar::Rule& rule = grammar_.rules[Index(called_[id])];
    const size_t first_edge = edges_.size();
    const int32_t start = network_->rules_[id].start, end = NewNode();
    TLM_RETURN_IF_ERROR(BuildNode(rule.body, start, end));
    return UnrollLeftRecursion(static_cast<int32_t>(id), first_edge, end, rule.place);
  }

  // A ::= A x | A y A | z becomes A ::= z x* (y A)?. If the rule calls itself first, the rest
  // continues at its end instead. If it calls itself last, its end is the end of the called rule.
  absl::Status UnrollLeftRecursion(int32_t id, size_t first_edge, int32_t end, size_t place) {
    const int32_t start = network_->rules_[Index(id)].start;
    const auto is_left = [&](const FromEdge& edge) {
      return edge.kind == Edge::Kind::kCall && edge.rule == id && edge.from == start;
    };
    const auto first = edges_.begin() + static_cast<std::ptrdiff_t>(first_edge);
    if (std::none_of(first, edges_.end(), is_left)) {
      network_->nodes_[Index(end)].final = true;
      return absl::OkStatus();
    }
    const int32_t final_node = NewNode();
    network_->nodes_[Index(final_node)].final = true;
    for (auto edge = first; edge != edges_.end(); ++edge) {
      if (is_left(*edge)) {
        *edge = {{.kind = Edge::Kind::kEmpty, .to = edge->to}, end};
      } else if (edge->kind == Edge::Kind::kCall && edge->rule == id && edge->to == end) {
        edge->to = final_node;
      }
    }
    return AddEdge(end, {.to = final_node}, place);
  }

  absl::Status BuildNode(int32_t n, int32_t from, int32_t to) {
    const Grammar::Node& node = grammar_.nodes[Index(n)];
    if (info_[Index(n)].regular) {
      TLM_ASSIGN_OR_RETURN(const ByteRegex regex, RegexOf(n));
      return AddTerminal(from, regex, to, node.place);
    }
    switch (node.kind) {
      case Grammar::Kind::kRule:
        return AddEdge(from, {.kind = Edge::Kind::kCall, .to = to, .rule = RuleId(node.index)},
                       node.place);
      case Grammar::Kind::kSequence:
        return BuildSequence(node, from, to);
      case Grammar::Kind::kAlternatives:
        return BuildAlternatives(node, from, to);
      case Grammar::Kind::kRepeat:
        return BuildRepeat(node, from, to);
      default:
        return absl::OkStatus();  // the other kinds are always regular
    }
  }

  absl::Status BuildSequence(const Grammar::Node& node, int32_t from, int32_t to) {
    const std::span<const int32_t> parts = node.parts;
    for (size_t i = 0; i < parts.size();) {
      // As many parts as fit into one terminal.
      size_t end = i;
      for (SequenceInfo terminal; end < parts.size(); ++end) {
        terminal.Add(info_[Index(parts[end])]);
        if (!terminal.info.regular || terminal.info.weight > kMaxWeight) break;
      }
      const bool is_last = std::max(end, i + 1) == parts.size();
      const int32_t next = is_last ? to : NewNode();
      if (end == i) {
        TLM_RETURN_IF_ERROR(BuildNode(parts[i], from, next));
      } else {
        std::vector<ByteRegex> regexes;
        for (size_t part = i; part < end; ++part) {
          TLM_ASSIGN_OR_RETURN(regexes.emplace_back(), RegexOf(parts[part]));
        }
        const ByteRegex regex = regexes_.Concat(regexes);
        TLM_RETURN_IF_ERROR(CheckExpressions(node.place));
        TLM_RETURN_IF_ERROR(AddTerminal(from, regex, next, node.place));
      }
      i = std::max(end, i + 1);
      from = next;
    }
    return absl::OkStatus();
  }

  absl::Status BuildAlternatives(const Grammar::Node& node, int32_t from, int32_t to) {
    std::vector<int32_t> regular;
    for (const int32_t part : node.parts) {
      if (info_[Index(part)].regular) {
        regular.push_back(part);
      } else {
        TLM_RETURN_IF_ERROR(BuildNode(part, from, to));
      }
    }
    TLM_ASSIGN_OR_RETURN(const ByteRegex regex, AnyRegexOf(regular, node.place));
    return AddTerminal(from, regex, to, node.place);
  }

  // Copies the part for each repetition, except for unbounded repetitions.
  absl::Status BuildRepeat(const Grammar::Node& node, int32_t from, int32_t to) {
    const int32_t part = node.parts[0];
    for (int32_t i = 0; i < node.min; ++i) {
      const int32_t next = NewNode();
      TLM_RETURN_IF_ERROR(BuildNode(part, from, next));
      from = next;
    }
    if (node.max == Grammar::kUnbounded) {
      const int32_t loop = NewNode();
      TLM_RETURN_IF_ERROR(AddEdge(from, {.to = loop}, node.place));
      TLM_RETURN_IF_ERROR(BuildNode(part, loop, loop));
      from = loop;
    } else {
      for (int32_t i = node.min; i < node.max; ++i) {
        const int32_t next = NewNode();
        TLM_RETURN_IF_ERROR(AddEdge(from, {.to = to}, node.place));
        TLM_RETURN_IF_ERROR(BuildNode(part, from, next));
        from = next;
      }
    }
    return AddEdge(from, {.to = to}, node.place);
  }

  struct Reached {
    std::vector<char> nodes, rules;
  };
  // The nodes from which a final node can be reached, and the rules whose start is among them:
  // either with the empty text only, or with any text.
  Reached Reach(bool empty_only) const {
    const size_t nodes = network_->nodes_.size();
    Reached reached = {std::vector<char>(nodes), std::vector<char>(called_.size())};
    std::vector<std::vector<int32_t>> edges_to(nodes), calls_of(called_.size());
    std::vector<int32_t> rule_of_start(nodes, -1), work;
    for (size_t i = 0; i < edges_.size(); ++i) {
      edges_to[Index(edges_[i].to)].push_back(static_cast<int32_t>(i));
      if (edges_[i].kind == Edge::Kind::kCall) {
        calls_of[Index(edges_[i].rule)].push_back(static_cast<int32_t>(i));
      }
    }
    for (size_t i = 0; i < called_.size(); ++i) {
      rule_of_start[Index(network_->rules_[i].start)] = static_cast<int32_t>(i);
    }
    const auto reach = [&](int32_t node) {
      if (std::exchange(reached.nodes[Index(node)], true)) return;
      work.push_back(node);
    };
    const auto pass = [&](const FromEdge& edge) {
      const bool passes =
          edge.kind == Edge::Kind::kEmpty ||
          (edge.kind == Edge::Kind::kTerminal ? !empty_only || regexes_.HasEmpty(edge.regex)
                                              : reached.rules[Index(edge.rule)] != 0);
      if (passes && reached.nodes[Index(edge.to)] != 0) reach(edge.from);
    };
    for (size_t node = 0; node < nodes; ++node) {
      if (network_->nodes_[node].final) reach(static_cast<int32_t>(node));
    }
    while (!work.empty()) {
      const int32_t node = work.back();
      work.pop_back();
      for (const int32_t edge : edges_to[Index(node)]) pass(edges_[Index(edge)]);
      const int32_t rule = rule_of_start[Index(node)];
      if (rule < 0) continue;
      reached.rules[Index(rule)] = true;
      for (const int32_t edge : calls_of[Index(rule)]) pass(edges_[Index(edge)]);
    }
    return reached;
  }

  // Removes the edges that lead to a node or rule from which no final node can be reached.
  absl::Status Prune() {
    const Reached reached = Reach(false);
    if (reached.rules[0] == 0) {
      return InvalidArgument("{}: rule \"root\" matches no text",
                             PlaceName(grammar_.rules[Index(grammar_.root)].place));
    }
    std::erase_if(edges_, [&](const FromEdge& edge) {
      return reached.nodes[Index(edge.to)] == 0 ||
             (edge.kind == Edge::Kind::kCall && reached.rules[Index(edge.rule)] == 0);
    });
    return absl::OkStatus();
  }

  // Skips nodes with a single empty edge, so that equal places in rules get equal numbers.
  void Forward() {
    const size_t nodes = network_->nodes_.size();
    std::vector<int32_t> degree(nodes), only(nodes, -1);
    for (const FromEdge& edge : edges_) {
      ++degree[Index(edge.from)];
      only[Index(edge.from)] = edge.kind == Edge::Kind::kEmpty ? edge.to : -1;
    }
    for (size_t node = 0; node < nodes; ++node) {
      if (degree[node] != 1 || network_->nodes_[node].final) only[node] = -1;
    }
    for (FromEdge& edge : edges_) {
      int32_t end = edge.to;
      while (only[Index(end)] >= 0) end = only[Index(end)];
      for (int32_t node = edge.to; node != end;) node = std::exchange(only[Index(node)], end);
      edge.to = end;
    }
  }

  void Pack() {
    std::ranges::stable_sort(edges_, {}, &FromEdge::from);
    network_->edges_.assign(edges_.begin(), edges_.end());
    size_t begin = 0;
    for (size_t node = 0; node < network_->nodes_.size(); ++node) {
      size_t end = begin;
      while (end < edges_.size() && Index(edges_[end].from) == node) ++end;
      network_->nodes_[node].begin = static_cast<int32_t>(begin);
      network_->nodes_[node].end = static_cast<int32_t>(end);
      begin = end;
    }
  }

  const std::string_view gbnf_;
  const Grammar grammar_;
  const size_t max_edges_;
  Budget& budget_;
  const std::shared_ptr<GrammarNetwork> network_;
  RegexSet& regexes_;  // the network's

  std::vector<Info> info_;     // by node of the grammar
  std::vector<char> inlined_;  // by rule of the grammar: it replaces its name
  int64_t inlined_total_ = 0;  // sum of sizes over all replaced names
  std::vector<ByteRegex> rule_regex_, class_regex_;
  std::vector<int32_t> rule_ids_, called_;  // from the grammar's rules to the network's, and back
  std::vector<FromEdge> edges_;
};

absl::StatusOr<std::shared_ptr<const GrammarNetwork>> GrammarNetwork::Compile(
    std::string_view gbnf, const ConstraintLimits& limits, Budget& budget) {
  if (gbnf.size() > limits.max_text_bytes) {
    return ResourceExhausted("{} bytes, the limit is {}", gbnf.size(), limits.max_text_bytes);
  }
  TLM_ASSIGN_OR_RETURN(Grammar grammar, Grammar::Parse(gbnf, limits.max_states, budget));
  return GrammarNetworkBuilder(gbnf, std::move(grammar), limits, budget).Build();
}

}  // namespace tlm
