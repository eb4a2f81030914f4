// Free text and constrained regions, as nodes and edges of a graph.
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
#include "model/constraint/constraint.h"
#include "model/constraint/recognizer.h"
#include "model/constraint/regex_dfa.h"
#include "model/constraint/regex_set.h"

namespace tlm {

// The free text of a node, up to and with the first marker in it. It accepts where a marker is
// complete. Where the text may end, and nowhere else, it also accepts one byte more, kEnd: so a
// state is dead only if neither is possible. Of markers that end at one place the longest counts.
class FreeText final : public RegexSet::Automaton {
 public:
  // No text has this byte.
  static constexpr char kEnd = '\xFE';

  struct Marker {
    std::string text;
    bool only_first = false;     // nothing stands before it
    std::vector<int32_t> edges;  // none: it does not occur
  };

  // A marker with special tokens does not occur in plain spelling, unless that is a marker, too.
  FreeText(std::vector<Marker> markers, bool may_end);

  int32_t start() const { return start_; }
  int32_t Next(int32_t state, uint8_t byte) const override;
  bool Accepts(int32_t state) const override {
    return state == kEnded || MarkerAt(state) != nullptr;
  }
  // The marker that is complete; null if none is.
  const Marker* MarkerAt(int32_t state) const {
    const int32_t marker = markers_at_[NodeOf(state)];
    return marker < 0 ? nullptr : &markers_[static_cast<size_t>(marker)];
  }
  // Between characters, and not inside of a marker that has special tokens.
  bool MayEnd(int32_t state) const {
    return state % kUtf8States == 0 && marks_[NodeOf(state)] == 0;
  }
  size_t bytes() const;

 private:
  static constexpr int32_t kUtf8States = 8;
  static constexpr int32_t kEnded = 1 << 30;

  static size_t NodeOf(int32_t state) { return static_cast<size_t>(state / kUtf8States); }
  // In next_.
  size_t RowOf(int32_t node) const { return static_cast<size_t>(node) * column_count_; }
  size_t IndexOf(int32_t node, uint8_t byte) const { return RowOf(node) + columns_[byte]; }
  void ForbidPlainSpellings();
  // The nodes below each, by byte; the markers are at their nodes.
  std::vector<std::map<uint8_t, int32_t>> AddMarkers();
  void FillRows(const std::vector<std::map<uint8_t, int32_t>>& below);

  std::vector<Marker> markers_;
  const bool may_end_;
  int32_t start_ = 0;
  // What the last bytes of the text may become: nodes are beginnings of markers, first the empty
  // one; the node of a text is its longest end that is one.
  std::array<uint8_t, 256> columns_{};
  size_t column_count_ = 1;
  std::vector<uint16_t> next_;       // by node and column
  std::vector<int32_t> markers_at_;  // by node
  std::vector<uint16_t> marks_;      // of the node's special tokens
};

// The nodes and edges of a ConstraintSpec, compiled. Immutable.
class Flow {
 public:
  using CompileContent =
      std::function<absl::StatusOr<RecognizerFactory>(const ConstraintSpec::Edge&)>;

  // `compile_content` is called once for each content that is not kNothing. INVALID_ARGUMENT for a
  // flow that is malformed (no node; a number out of range; texts that are empty where they may not
  // be or are not UTF-8; an edge of free text that begins with no trigger or lead; a trigger that
  // contains another; a node that no end can be reached from) and for what compile_content refuses;
  // RESOURCE_EXHAUSTED above limits. Messages name the place: "nodes[0].edges[2].regex: ...".
  static absl::StatusOr<std::shared_ptr<const Flow>> Compile(const ConstraintSpec& spec,
                                                             const ConstraintLimits& limits,
                                                             const CompileContent& compile_content);

 private:
  friend class FlowRecognizer;
  struct Edge {
    std::string begin, end;
    int32_t content = -1;  // in contents_; none: the empty text
    int32_t target = 0;
  };
  struct Node {
    bool may_end = false;
    std::vector<int32_t> edges;
    std::shared_ptr<const FreeText> text;  // null: the edges follow at once
    ByteRegex regex = RegexSet::kNone;     // of `text`
    std::optional<int32_t> closing;        // the edge, if tokens are counted
  };

  explicit Flow(RegexSet regexes) : regexes_(std::move(regexes)) {}
  absl::Status AddEdges(const ConstraintSpec& spec, const CompileContent& compile_content);
  absl::Status AddTexts(const ConstraintSpec& spec);
  absl::Status CheckEnds(const ConstraintLimits& limits);
  size_t bytes() const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<RecognizerFactory> contents_;
  RegexSet regexes_;
};

// A state is the set of the readings: contents may end in several places. Inside of free text the
// part is its automaton.
class FlowRecognizer final : public Recognizer {
 public:
  // Limits are those of states and bytes, each of this and of a content.
  FlowRecognizer(std::shared_ptr<const Flow> flow, const ConstraintLimits& limits);
  FlowRecognizer(const FlowRecognizer&) = delete;
  FlowRecognizer& operator=(const FlowRecognizer&) = delete;

  State start() override { return start_; }
  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return data(state).accepts; }
  ByteSet NextBytes(State state) override;
  // That of a content, too: where only it can be.
  Part PartOf(State state) override;
  bool EndsAlike(State state, RegexDfa::State inside, std::vector<std::string>& others) override;
  std::optional<uint64_t> EndClass(State state, std::string_view text) override;
  bool CountsTokens(State state) override { return data(state).counts; }
  State Close(State state) override;
  void AllowWork(int64_t steps) override;
  size_t bytes() const override;
  bool full() const override;

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kMaxReadings = 4096;  // of a state

  enum class Phase : int32_t { kFree, kClosing, kEnd, kEdgeBegin, kContent, kEdgeEnd };
  struct Reading {
    Phase phase = Phase::kFree;
    int32_t at = 0;     // the edge; of kFree, kClosing and kEnd the node
    int32_t state = 0;  // kFree and kClosing: of dfa_, kContent: of it, else bytes of begin or end
    int32_t text = 0;   // kFree and kClosing: of the node's FreeText
    friend auto operator<=>(const Reading&, const Reading&) = default;
  };
  struct StateData {
    int32_t begin = 0, end = 0;  // in readings_
    int32_t next = -1;           // in next_
    bool accepts = false;
    bool counts = false;
  };

  const StateData& data(State state) const { return states_[static_cast<size_t>(state)]; }
  std::span<const Reading> ReadingsOf(State state) const {
    return {readings_.data() + data(state).begin, readings_.data() + data(state).end};
  }
  const Flow::Node& NodeAt(int32_t node) const { return flow_->nodes_[static_cast<size_t>(node)]; }
  const Flow::Edge& EdgeAt(int32_t edge) const { return flow_->edges_[static_cast<size_t>(edge)]; }
  // That of an edge which has one.
  Recognizer& ContentOf(int32_t edge);
  // The reading, if it is the only one and within a content.
  const Reading* OnlyContent(State state) const;
  State Step(State state, uint8_t byte);
  void Clear() {
    made_.clear();
    entered_.clear();
  }
  // Adds to made_ what the reading is after the byte.
  void Read(const Reading& reading, uint8_t byte);
  void ReadFree(const Reading& reading, uint8_t byte);
  // Add to made_ what is there, and what begins there.
  void EnterNode(int32_t node);
  void EnterFree(const Reading& reading);
  void EnterBegin(int32_t edge, size_t offset);
  void EnterContent(int32_t edge, State state);
  void EnterEnd(int32_t edge, size_t offset);
  // The state of made_.
  State Intern();

  const std::shared_ptr<const Flow> flow_;
  const size_t max_states_, max_bytes_;
  RegexSet regexes_;
  RegexDfa dfa_;                                       // of all free texts
  std::vector<std::unique_ptr<Recognizer>> contents_;  // those that were entered
  bool full_ = false;
  std::vector<StateData> states_;
  std::vector<Reading> readings_, made_;
  std::vector<int32_t> entered_;  // nodes in made_: some follow others without a byte
  std::vector<std::array<State, 256>> next_;
  std::unordered_multimap<size_t, State> by_hash_;
  State start_ = kDead;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_FLOW_H_
