// Compiles a ConstraintSpec::Flow: free text and constrained regions as nodes and edges of a graph.
#ifndef TLM_MODEL_CONSTRAINT_FLOW_H_
#define TLM_MODEL_CONSTRAINT_FLOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/constraint_spec.h"
#include "model/constraint/free_text.h"

namespace tlm {

// A compiled ConstraintSpec::Flow. Immutable.
class Flow {
 public:
  using CompileContent =
      std::function<absl::StatusOr<RecognizerFactory>(const ConstraintSpec::Content&)>;

  // Calls `compile_content` once for each different content other than Nothing. INVALID_ARGUMENT
  // for a malformed flow: no node, an index out of range, an empty or ill-formed text, an edge of
  // free text that starts with no trigger or lead, a trigger that contains another, a node from
  // which no end can be reached; also for contents that `compile_content` refuses.
  // RESOURCE_EXHAUSTED above limits. Messages name the place: "nodes[0].edges[2].regex: ...".
  static absl::StatusOr<std::shared_ptr<const Flow>> Compile(const ConstraintSpec::Flow& spec,
                                                             const ConstraintLimits& limits,
                                                             const CompileContent& compile_content);

 private:
  friend class FlowRecognizer;
  struct Edge {
    std::string begin, end;
    int32_t content = -1;  // index in contents_; -1: the empty text
    int32_t target = 0;    // index in nodes_
  };
  struct Node {
    bool may_end = false;
    std::vector<int32_t> edges;            // indices in edges_
    std::shared_ptr<const FreeText> text;  // null: an edge follows at once
    ByteRegex regex = RegexSet::kNone;     // the expression of `text`
    std::optional<int32_t> closing;        // the closing edge of a node with a budget
  };

  explicit Flow(RegexSet regexes) : regexes_(std::move(regexes)) {}
  absl::Status AddEdges(const ConstraintSpec::Flow& spec, const CompileContent& compile_content);
  absl::Status AddTexts(const ConstraintSpec::Flow& spec);
  absl::Status CheckEnds(const ConstraintLimits& limits);
  // Approximate memory.
  size_t bytes() const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<RecognizerFactory> contents_;
  RegexSet regexes_;
};

// Recognizes the texts of a flow. A state is a set of readings, because a content may end in
// several places. If the only reading is in free text, the state's part is the automaton of the
// free text. If it is in a content, the part is the part of the content's recognizer.
class FlowRecognizer final : public Recognizer {
 public:
  // The limits of states and bytes apply to this recognizer and to each content.
  FlowRecognizer(std::shared_ptr<const Flow> flow, const ConstraintLimits& limits);
  FlowRecognizer(const FlowRecognizer&) = delete;
  FlowRecognizer& operator=(const FlowRecognizer&) = delete;

  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return data(state).accepts; }
  ByteSet NextBytes(State state) override;
  Part PartOf(State state) override;
  void AllowWork(int64_t steps) override;
  Usage usage() const override;

  // Whether the text so far ends in free text whose tokens count towards the budget.
  bool CountsTokens(State state) { return data(state).counts; }
  // The state once the budget is used up: such free text must now be closed.
  State Close(State state);

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kMaxReadings = 4096;  // per state

  enum class Phase : int32_t {
    kFree,       // in free text
    kClosing,    // in free text after the end of the budget; the closing edge follows
    kEnd,        // at a node without free text where the output may end
    kEdgeBegin,  // in an edge's `begin`
    kContent,    // in an edge's content
    kEdgeEnd,    // in an edge's `end`
  };
  // One way to read the text so far.
  struct Reading {
    Phase phase = Phase::kFree;
    int32_t at = 0;     // kFree, kClosing, kEnd: the node; otherwise the edge
    int32_t state = 0;  // kFree, kClosing: in dfa_; kContent: of the content; else bytes read
    int32_t text = 0;   // kFree, kClosing: state of the node's FreeText
    friend auto operator<=>(const Reading&, const Reading&) = default;
  };
  struct StateData {
    int32_t begin = 0, end = 0;  // indices in readings_
    int32_t next = -1;           // index in next_; -1: no row yet
    bool accepts = false;
    bool counts = false;  // CountsTokens
  };

  const StateData& data(State state) const { return states_[static_cast<size_t>(state)]; }
  std::span<const Reading> ReadingsOf(State state) const {
    return {readings_.data() + data(state).begin, readings_.data() + data(state).end};
  }
  const Flow::Node& NodeAt(int32_t node) const { return flow_->nodes_[static_cast<size_t>(node)]; }
  const Flow::Edge& EdgeAt(int32_t edge) const { return flow_->edges_[static_cast<size_t>(edge)]; }
  // The recognizer of an edge's content. The edge must have a content.
  Recognizer& ContentOf(int32_t edge);
  State Step(State state, uint8_t byte);
  void Clear() {
    made_.clear();
    entered_.clear();
  }
  // These add to made_ the readings after the byte.
  void Read(const Reading& reading, uint8_t byte);
  void ReadFree(const Reading& reading, uint8_t byte);
  // These add to made_ a reading at the given place, and the readings that it leads to without
  // another byte.
  void EnterNode(int32_t node);
  void EnterFree(const Reading& reading);
  void EnterBegin(int32_t edge, size_t offset);
  void EnterContent(int32_t edge, State state);
  void EnterEnd(int32_t edge, size_t offset);
  // The state of the readings in made_.
  State Intern();

  const std::shared_ptr<const Flow> flow_;
  const size_t max_states_, max_bytes_;
  RegexSet regexes_;
  RegexDfa dfa_;                                       // serves all free texts
  std::vector<std::unique_ptr<Recognizer>> contents_;  // null until entered
  bool full_ = false;
  std::vector<StateData> states_;
  std::vector<Reading> readings_;             // of all states
  std::vector<Reading> made_;                 // of the state that is being made
  std::vector<int32_t> entered_;              // nodes entered in this step
  std::vector<std::array<State, 256>> next_;  // by byte; kUnknown until computed
  std::unordered_multimap<size_t, State> by_hash_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_FLOW_H_
