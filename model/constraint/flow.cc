#include "model/constraint/flow.h"

#include <algorithm>
#include <map>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/mask/token_trie.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxNodes = 64;
constexpr size_t kMaxEdges = 1024;   // per node
constexpr size_t kMaxMarkers = 128;  // triggers per node, and as many leads
constexpr size_t kMaxMarkerBytes = 256;
constexpr size_t kMaxMarkersBytes = 16384;  // all nodes together

// Whether the text is UTF-8, except for marks of special tokens, each of which precedes a text.
bool IsMarkedUtf8(std::string_view text) {
  for (bool after_mark = false;; after_mark = true) {
    const size_t mark = text.find(kSpecialTokenMark);
    const std::string_view piece = text.substr(0, mark);
    if (!IsValidUtf8(piece) || (after_mark && piece.empty())) return false;
    if (mark == text.npos) return true;
    text.remove_prefix(mark + 1);
  }
}

absl::Status CheckText(std::string_view text, const std::string& place) {
  if (IsMarkedUtf8(text)) return absl::OkStatus();
  return InvalidArgument("{} is not UTF-8", place);
}

absl::Status CheckCount(size_t count, size_t limit, const std::string& place) {
  if (count <= limit) return absl::OkStatus();
  return ResourceExhausted("{} has {} elements, the limit is {}", place, count, limit);
}

absl::Status CheckIndex(int32_t index, size_t count, const std::string& place) {
  if (index >= 0 && static_cast<size_t>(index) < count) return absl::OkStatus();
  return InvalidArgument("{} is {}, it must be in [0, {})", place, index, count);
}

absl::Status CheckMarkers(const std::vector<std::string>& markers, const std::string& place) {
  TLM_RETURN_IF_ERROR(CheckCount(markers.size(), kMaxMarkers, place));
  for (size_t i = 0; i < markers.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    if (markers[i].empty()) return InvalidArgument("{} is empty", at);
    if (markers[i].size() > kMaxMarkerBytes) {
      return ResourceExhausted("{} has {} bytes, the limit is {}", at, markers[i].size(),
                               kMaxMarkerBytes);
    }
    TLM_RETURN_IF_ERROR(CheckText(markers[i], at));
  }
  return absl::OkStatus();
}

// A trigger that contains another could never be complete first. The spelling of a special token
// does not count as the token.
absl::Status CheckTriggers(const std::vector<std::string>& triggers, const std::string& place) {
  TLM_RETURN_IF_ERROR(CheckMarkers(triggers, place));
  for (size_t i = 0; i < triggers.size(); ++i) {
    for (size_t j = 0; j < triggers.size(); ++j) {
      const size_t found = i == j ? std::string::npos : FindText(triggers[i], triggers[j]);
      if (found == std::string::npos || (found > 0 && IsSpecialMark(triggers[i][found - 1])))
        continue;
      return InvalidArgument("{}[{}] contains triggers[{}], {}", place, i, j, Quoted(triggers[j]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const ConstraintSpec::Flow& spec, size_t number) {
  const ConstraintSpec::Node& node = spec.nodes[number];
  const std::string place = fmt::format("nodes[{}]", number);
  TLM_RETURN_IF_ERROR(CheckTriggers(node.triggers, place + ".triggers"));
  TLM_RETURN_IF_ERROR(CheckMarkers(node.leads, place + ".leads"));
  TLM_RETURN_IF_ERROR(CheckCount(node.edges.size(), kMaxEdges, place + ".edges"));
  if (!node.is_free && (node.is_budgeted || !node.triggers.empty() || !node.leads.empty())) {
    return InvalidArgument("{} is not free, but has triggers, leads or a budget", place);
  }
  if (node.is_budgeted) {
    TLM_RETURN_IF_ERROR(CheckIndex(node.closing, node.edges.size(), place + ".closing"));
  }
  for (size_t i = 0; i < node.edges.size(); ++i) {
    const std::string at = fmt::format("{}.edges[{}]", place, i);
    TLM_RETURN_IF_ERROR(CheckText(node.edges[i].begin, at));
    TLM_RETURN_IF_ERROR(CheckText(node.edges[i].end, at));
    TLM_RETURN_IF_ERROR(CheckIndex(node.edges[i].target, spec.nodes.size(), at + ".target"));
  }
  return absl::OkStatus();
}

absl::Status CheckFlow(const ConstraintSpec::Flow& spec) {
  if (spec.nodes.empty()) return InvalidArgument("no node is given");
  TLM_RETURN_IF_ERROR(CheckCount(spec.nodes.size(), kMaxNodes, "nodes"));
  if (spec.token_budget.has_value() && *spec.token_budget < 0) {
    return InvalidArgument("token_budget is {}, it must not be negative", *spec.token_budget);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    TLM_RETURN_IF_ERROR(CheckNode(spec, i));
    for (const auto* markers : {&spec.nodes[i].triggers, &spec.nodes[i].leads}) {
      for (const std::string& marker : *markers) bytes += marker.size();
    }
  }
  if (bytes <= kMaxMarkersBytes) return absl::OkStatus();
  return ResourceExhausted("triggers and leads have {} bytes together, the limit is {}", bytes,
                           kMaxMarkersBytes);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Flow>> Flow::Compile(const ConstraintSpec::Flow& spec,
                                                          const ConstraintLimits& limits,
                                                          const CompileContent& compile_content) {
  TLM_RETURN_IF_ERROR(CheckFlow(spec));
  const std::shared_ptr<Flow> flow(
      new Flow(RegexSet(limits.max_bytes / RegexSet::kBytesPerExpression)));
  TLM_RETURN_IF_ERROR(flow->AddEdges(spec, compile_content));
  TLM_RETURN_IF_ERROR(flow->AddTexts(spec));
  TLM_RETURN_IF_ERROR(flow->CheckEnds(limits));
  return flow;
}

absl::Status Flow::AddEdges(const ConstraintSpec::Flow& spec,
                            const CompileContent& compile_content) {
  // Equal contents share one recognizer, its states and its masks.
  std::map<ConstraintSpec::Content, int32_t> known;
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    Node& node = nodes_.emplace_back();
    node.may_end = spec.nodes[i].may_end;
    for (size_t j = 0; j < spec.nodes[i].edges.size(); ++j) {
      const ConstraintSpec::Edge& from = spec.nodes[i].edges[j];
      node.edges.push_back(static_cast<int32_t>(edges_.size()));
      Edge& edge = edges_.emplace_back(Edge{from.begin, from.end, -1, from.target});
      if (std::holds_alternative<ConstraintSpec::Nothing>(from.content)) continue;
      const auto [content, is_new] =
          known.try_emplace(from.content, static_cast<int32_t>(contents_.size()));
      edge.content = content->second;
      if (!is_new) continue;
      auto compiled = compile_content(from.content);
      if (!compiled.ok()) {
        const std::string place =
            fmt::format("nodes[{}].edges[{}].{}", i, j, KindName(from.content));
        return WithContext(compiled.status(), from.field.empty() ? place : from.field);
      }
      contents_.push_back(*std::move(compiled));
    }
    if (spec.nodes[i].is_budgeted && spec.token_budget.has_value()) {
      node.closing = node.edges[static_cast<size_t>(spec.nodes[i].closing)];
    }
  }
  return absl::OkStatus();
}

absl::Status Flow::AddTexts(const ConstraintSpec::Flow& spec) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!spec.nodes[i].is_free) continue;
    Node& node = nodes_[i];
    std::vector<FreeText::Marker> markers;
    for (const std::string& text : spec.nodes[i].triggers) markers.push_back({text, false, {}});
    for (const std::string& text : spec.nodes[i].leads) markers.push_back({text, true, {}});
    for (size_t j = 0; j < node.edges.size(); ++j) {
      const std::string& begin = edges_[static_cast<size_t>(node.edges[j])].begin;
      bool begins = spec.nodes[i].is_budgeted && static_cast<size_t>(spec.nodes[i].closing) == j &&
                    !begin.empty();
      for (FreeText::Marker& marker : markers) {
        if (!begin.starts_with(marker.text)) continue;
        marker.edges.push_back(node.edges[j]);
        begins = true;
      }
      if (begins) continue;
      return InvalidArgument("nodes[{}].edges[{}].begin begins with no trigger: {}", i, j,
                             Quoted(begin));
    }
    node.text = std::make_shared<const FreeText>(std::move(markers),
                                                 node.may_end || node.closing.has_value());
    node.regex = regexes_.StateOf(node.text, node.text->start());
  }
  return absl::OkStatus();
}

// Every node must lead to one where the text may end.
absl::Status Flow::CheckEnds(const ConstraintLimits& limits) {
  RegexDfa dfa(regexes_, RegexSet::kEmpty, limits.max_states);
  std::vector<bool> ends(nodes_.size());
  const auto may_leave = [&](const Node& node) {
    return std::ranges::any_of(node.edges, [&](int32_t edge) {
      return ends[static_cast<size_t>(edges_[static_cast<size_t>(edge)].target)];
    });
  };
  for (bool changed = true; std::exchange(changed, false);) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (ends[i] || (!nodes_[i].may_end && !may_leave(nodes_[i]))) continue;
      if (nodes_[i].text != nullptr && dfa.StateOf(nodes_[i].regex) == RegexDfa::kDead) continue;
      ends[i] = changed = true;
    }
  }
  if (dfa.full())
    return ResourceExhausted("the triggers take more than {} states", limits.max_states);
  const auto endless = std::ranges::find(ends, false);
  if (endless == ends.end()) return absl::OkStatus();
  return InvalidArgument("nodes[{}] leads to no end", endless - ends.begin());
}

size_t Flow::bytes() const {
  size_t bytes = sizeof *this + nodes_.size() * sizeof(Node);
  for (const Node& node : nodes_) {
    bytes += node.edges.size() * (sizeof(int32_t) + sizeof(Edge));
    if (node.text != nullptr) bytes += node.text->bytes();
  }
  for (const Edge& edge : edges_) bytes += edge.begin.size() + edge.end.size();
  return bytes;
}

FlowRecognizer::FlowRecognizer(std::shared_ptr<const Flow> flow, const ConstraintLimits& limits)
    : flow_(std::move(flow)),
      max_states_(limits.max_states),
      max_bytes_(limits.max_bytes),
      regexes_(flow_->regexes_),
      dfa_(regexes_, RegexSet::kEmpty, limits.max_states),
      contents_(flow_->contents_.size()) {
  EnterNode(0);
  start_ = Intern();
}

Recognizer::Usage FlowRecognizer::usage() const {
  Usage usage = {.full = full_ || dfa_.full()};
  usage.bytes = flow_->bytes() + regexes_.bytes() + dfa_.bytes() +
                states_.capacity() * sizeof(StateData) + readings_.capacity() * sizeof(Reading) +
                kBytesPerHashEntry * by_hash_.size() + next_.capacity() * sizeof(next_[0]);
  for (const auto& content : contents_) {
    if (content == nullptr) continue;
    const Usage of_content = content->usage();
    usage.bytes += of_content.bytes;
    usage.full |= of_content.full;
  }
  return usage;
}

void FlowRecognizer::AllowWork(int64_t steps) {
  regexes_.meter().Allow(steps);
  for (const auto& content : contents_) {
    if (content != nullptr) content->AllowWork(steps);
  }
}

Recognizer& FlowRecognizer::ContentOf(int32_t edge) {
  const auto number = static_cast<size_t>(EdgeAt(edge).content);
  auto& content = contents_[number];
  if (content == nullptr) content = flow_->contents_[number]();
  return *content;
}

Recognizer::State FlowRecognizer::Next(State state, uint8_t byte) {
  const int32_t row = data(state).next;
  if (row < 0) return Step(state, byte);
  const State known = next_[static_cast<size_t>(row)][byte];
  return known == kUnknown ? Step(state, byte) : known;
}

Recognizer::State FlowRecognizer::Step(State state, uint8_t byte) {
  if (data(state).next < 0) {
    states_[static_cast<size_t>(state)].next = static_cast<int32_t>(next_.size());
    next_.emplace_back().fill(kUnknown);
  }
  Clear();
  for (const Reading& reading : ReadingsOf(state)) Read(reading, byte);
  const State next = Intern();
  next_[static_cast<size_t>(data(state).next)][byte] = next;
  return next;
}

void FlowRecognizer::Read(const Reading& reading, uint8_t byte) {
  const auto offset = static_cast<size_t>(reading.state);
  switch (reading.phase) {
    case Phase::kFree:
    case Phase::kClosing:
      return ReadFree(reading, byte);
    case Phase::kEnd:
      return;
    case Phase::kEdgeBegin:
      if (static_cast<uint8_t>(EdgeAt(reading.at).begin[offset]) == byte) {
        EnterBegin(reading.at, offset + 1);
      }
      return;
    case Phase::kContent:
      return EnterContent(reading.at, ContentOf(reading.at).Next(reading.state, byte));
    case Phase::kEdgeEnd:
      if (static_cast<uint8_t>(EdgeAt(reading.at).end[offset]) == byte) {
        EnterEnd(reading.at, offset + 1);
      }
      return;
  }
}

void FlowRecognizer::ReadFree(const Reading& reading, uint8_t byte) {
  const RegexDfa::State next = dfa_.Next(reading.state, byte);
  if (next == RegexDfa::kDead || byte == static_cast<uint8_t>(FreeText::kEnd)) return;
  const Flow::Node& node = NodeAt(reading.at);
  const int32_t text = node.text->Next(reading.text, byte);
  if (const FreeText::Marker* const marker = node.text->MarkerAt(text)) {
    for (const int32_t edge : marker->edges) EnterBegin(edge, marker->text.size());
  } else {
    EnterFree({.phase = reading.phase, .at = reading.at, .state = next, .text = text});
  }
}

void FlowRecognizer::EnterFree(const Reading& reading) {
  const Flow::Node& node = NodeAt(reading.at);
  if (reading.phase == Phase::kClosing && node.text->MayEnd(reading.text)) {
    return EnterBegin(*node.closing, 0);
  }
  made_.push_back(reading);
}

void FlowRecognizer::EnterNode(int32_t number) {
  if (std::ranges::find(entered_, number) != entered_.end()) return;
  entered_.push_back(number);
  const Flow::Node& node = NodeAt(number);
  if (node.text != nullptr) {
    const RegexDfa::State state = dfa_.StateOf(node.regex);
    if (state != RegexDfa::kDead) {
      made_.push_back({.at = number, .state = state, .text = node.text->start()});
    }
    return;
  }
  if (node.may_end) made_.push_back({.phase = Phase::kEnd, .at = number});
  for (const int32_t edge : node.edges) EnterBegin(edge, 0);
}

void FlowRecognizer::EnterBegin(int32_t edge, size_t offset) {
  if (offset < EdgeAt(edge).begin.size()) {
    return made_.push_back(
        {.phase = Phase::kEdgeBegin, .at = edge, .state = static_cast<int32_t>(offset)});
  }
  if (EdgeAt(edge).content < 0) return EnterEnd(edge, 0);
  EnterContent(edge, ContentOf(edge).start());
}

void FlowRecognizer::EnterContent(int32_t edge, State state) {
  if (state == kDead) return;
  made_.push_back({.phase = Phase::kContent, .at = edge, .state = state});
  if (ContentOf(edge).Accepts(state)) EnterEnd(edge, 0);
}

void FlowRecognizer::EnterEnd(int32_t edge, size_t offset) {
  if (offset == EdgeAt(edge).end.size()) return EnterNode(EdgeAt(edge).target);
  made_.push_back({.phase = Phase::kEdgeEnd, .at = edge, .state = static_cast<int32_t>(offset)});
}

Recognizer::State FlowRecognizer::Close(State state) {
  if (!data(state).counts) return state;
  Clear();
  for (const Reading& reading : ReadingsOf(state)) {
    const bool closes = reading.phase == Phase::kFree && NodeAt(reading.at).closing.has_value();
    if (!closes) {
      made_.push_back(reading);
      continue;
    }
    Reading closing = reading;
    closing.phase = Phase::kClosing;
    EnterFree(closing);
  }
  return Intern();
}

ByteSet FlowRecognizer::NextBytes(State state) {
  ByteSet bytes;
  for (const Reading& reading : ReadingsOf(state)) {
    const auto offset = static_cast<size_t>(reading.state);
    switch (reading.phase) {
      case Phase::kFree:
      case Phase::kClosing:
        bytes = bytes | (dfa_.NextBytes(reading.state) &
                         ~ByteSet::Of(static_cast<uint8_t>(FreeText::kEnd)));
        break;
      case Phase::kEnd:
        break;
      case Phase::kEdgeBegin:
        bytes.Add(static_cast<uint8_t>(EdgeAt(reading.at).begin[offset]));
        break;
      case Phase::kContent:
        bytes = bytes | ContentOf(reading.at).NextBytes(reading.state);
        break;
      case Phase::kEdgeEnd:
        bytes.Add(static_cast<uint8_t>(EdgeAt(reading.at).end[offset]));
        break;
    }
  }
  return bytes;
}

Recognizer::Part FlowRecognizer::PartOf(State state) {
  const std::span<const Reading> readings = ReadingsOf(state);
  if (readings.size() != 1) return {};
  const Reading& reading = readings[0];
  if (reading.phase == Phase::kFree) return {.dfa = &dfa_, .state = reading.state};
  if (reading.phase != Phase::kContent) return {};
  Part part = ContentOf(reading.at).PartOf(reading.state);
  // The content's end follows, so the part is not the rest of the text.
  part.is_rest = false;
  return part;
}

Recognizer::State FlowRecognizer::Intern() {
  if (made_.empty()) return kDead;
  std::ranges::sort(made_);
  made_.erase(std::unique(made_.begin(), made_.end()), made_.end());
  size_t hash = 0;
  StateData data;
  for (const Reading& reading : made_) {
    for (const int32_t value :
         {static_cast<int32_t>(reading.phase), reading.at, reading.state, reading.text}) {
      hash = MixHash(hash, value);
    }
    data.accepts |= reading.phase == Phase::kEnd;
    if (reading.phase != Phase::kFree) continue;
    const Flow::Node& node = NodeAt(reading.at);
    data.accepts |= node.may_end && node.text->MayEnd(reading.text);
    data.counts |= node.closing.has_value();
  }
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    if (std::ranges::equal(ReadingsOf(known->second), made_)) return known->second;
  }
  if (states_.size() >= max_states_ || made_.size() > kMaxReadings || bytes() > max_bytes_) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(states_.size());
  data.begin = static_cast<int32_t>(readings_.size());
  readings_.insert(readings_.end(), made_.begin(), made_.end());
  data.end = static_cast<int32_t>(readings_.size());
  states_.push_back(data);
  by_hash_.emplace(hash, state);
  return state;
}

}  // namespace tlm
