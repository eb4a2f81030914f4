#include "model/constraint/flow.h"

#include <algorithm>
#include <tuple>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/char_set.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxNodes = 64;
constexpr size_t kMaxEdges = 1024;   // of a node
constexpr size_t kMaxMarkers = 128;  // triggers of a node, and as many leads
constexpr size_t kMaxMarkerBytes = 256;
constexpr size_t kMaxMarkersBytes = 16384;  // of all nodes together

// Well-formed UTF-8 byte by byte: the state behind a state and a byte. 0 is between characters.
using Utf8Rows = std::array<std::array<int32_t, 256>, 8>;

const Utf8Rows& Utf8() {
  static const Utf8Rows rows = [] {
    Utf8Rows made{};
    RegexSet regexes(1000);
    RegexDfa dfa(regexes, AnyTextRegex(regexes, TextForm::kUtf8), made.size());
    for (size_t state = 0; state < dfa.size(); ++state) {  // grows
      for (size_t byte = 0; byte < 256; ++byte) {
        made[state][byte] = dfa.Next(static_cast<int32_t>(state), static_cast<uint8_t>(byte));
      }
    }
    TLM_CHECK(dfa.start() == 0 && dfa.size() == made.size() && !dfa.full());
    return made;
  }();
  return rows;
}

bool IsSpecialMark(char byte) { return byte == kSpecialTokenMark; }

// Whether it is UTF-8 but for marks, each of which has a text behind it.
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

std::string_view FieldOf(ConstraintSpec::Kind content) {
  switch (content) {
    case ConstraintSpec::Kind::kJsonSchema:
      return "json_schema";
    case ConstraintSpec::Kind::kJsonObject:
      return "json_object";
    case ConstraintSpec::Kind::kRegex:
      return "regex";
    case ConstraintSpec::Kind::kGrammar:
      return "grammar";
    case ConstraintSpec::Kind::kChoices:
      return "choices";
    case ConstraintSpec::Kind::kXmlArguments:
      return "xml_arguments";
    default:
      return "content";
  }
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

// Where one contains another it would never be complete first. The text of a special token is not
// that token.
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

absl::Status CheckNode(const ConstraintSpec& spec, size_t number) {
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
    if (node.edges[i].kind == ConstraintSpec::Kind::kFlow) {
      return InvalidArgument("{} is a flow in a flow", at);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFlow(const ConstraintSpec& spec) {
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

FreeText::FreeText(std::vector<Marker> markers, bool may_end)
    : markers_(std::move(markers)), may_end_(may_end) {
  ForbidPlainSpellings();
  FillRows(AddMarkers());
}

void FreeText::ForbidPlainSpellings() {
  const size_t given = markers_.size();
  for (size_t i = 0; i < given; ++i) {
    Marker plain = {.text = markers_[i].text, .only_first = markers_[i].only_first, .edges = {}};
    std::erase_if(plain.text, IsSpecialMark);
    const bool is_marker = std::ranges::any_of(markers_, [&](const Marker& marker) {
      return marker.text == plain.text && (plain.only_first || !marker.only_first);
    });
    if (!is_marker) markers_.push_back(std::move(plain));
  }
}

std::vector<std::map<uint8_t, int32_t>> FreeText::AddMarkers() {
  std::vector<std::map<uint8_t, int32_t>> below(1);
  markers_at_ = {-1};
  marks_ = {0};
  for (size_t i = 0; i < markers_.size(); ++i) {
    int32_t node = 0;
    // What begins a text stands behind a byte that no text has.
    for (const char c : (markers_[i].only_first ? std::string(1, kEnd) : "") + markers_[i].text) {
      const auto byte = static_cast<uint8_t>(c);
      if (columns_[byte] == 0) columns_[byte] = static_cast<uint8_t>(column_count_++);
      const auto [next, is_new] =
          below[static_cast<size_t>(node)].emplace(byte, static_cast<int32_t>(below.size()));
      const uint16_t marks = marks_[static_cast<size_t>(node)];
      node = next->second;
      if (!is_new) continue;
      below.emplace_back();
      markers_at_.push_back(-1);
      marks_.push_back(static_cast<uint16_t>(marks + (IsSpecialMark(c) ? 1 : 0)));
    }
    int32_t& marker = markers_at_[static_cast<size_t>(node)];
    if (marker < 0) marker = static_cast<int32_t>(i);
  }
  if (const auto first = below[0].find(static_cast<uint8_t>(kEnd)); first != below[0].end()) {
    start_ = first->second * kUtf8States;
  }
  return below;
}

// Aho and Corasick's automaton.
void FreeText::FillRows(const std::vector<std::map<uint8_t, int32_t>>& below) {
  next_.assign(below.size() * column_count_, 0);
  std::vector<int32_t> ends(below.size(), 0);  // the longest end of a node that is another
  std::vector<int32_t> order = {0};            // by length
  for (size_t i = 0; i < order.size(); ++i) {  // grows
    const int32_t node = order[i];
    const auto at = static_cast<size_t>(node);
    const int32_t end = ends[at];
    if (node != 0) {
      std::copy_n(next_.begin() + static_cast<ptrdiff_t>(RowOf(end)), column_count_,
                  next_.begin() + static_cast<ptrdiff_t>(RowOf(node)));
      const auto end_at = static_cast<size_t>(end);
      if (markers_at_[at] < 0 && marks_[at] == marks_[end_at]) {
        markers_at_[at] = markers_at_[end_at];
      }
    }
    for (const auto& [byte, next] : below[at]) {
      if (node != 0) ends[static_cast<size_t>(next)] = next_[IndexOf(end, byte)];
      next_[IndexOf(node, byte)] = static_cast<uint16_t>(next);
      order.push_back(next);
    }
  }
}

int32_t FreeText::Next(int32_t state, uint8_t byte) const {
  if (state == kEnded) return kDead;
  if (byte == static_cast<uint8_t>(kEnd)) return may_end_ && MayEnd(state) ? kEnded : kDead;
  const int32_t inside = state % kUtf8States;
  const bool is_mark = IsSpecialMark(static_cast<char>(byte));
  const int32_t then = is_mark ? inside : Utf8()[static_cast<size_t>(inside)][byte];
  if (then == kDead || (is_mark && inside != 0)) return kDead;
  const size_t from = NodeOf(state);
  const uint16_t to = next_[IndexOf(static_cast<int32_t>(from), byte)];
  // Special tokens stand in markers alone.
  if (marks_[to] != marks_[from] + (is_mark ? 1 : 0)) return kDead;
  const int32_t next = to * kUtf8States + then;
  const Marker* const marker = MarkerAt(next);
  return marker != nullptr && marker->edges.empty() ? kDead : next;
}

size_t FreeText::bytes() const {
  size_t bytes = sizeof *this + next_.size() * sizeof next_[0] +
                 markers_at_.size() * (sizeof markers_at_[0] + sizeof marks_[0]);
  for (const Marker& marker : markers_) {
    bytes += sizeof marker + marker.text.size() + marker.edges.size() * sizeof(int32_t);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const Flow>> Flow::Compile(const ConstraintSpec& spec,
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

absl::Status Flow::AddEdges(const ConstraintSpec& spec, const CompileContent& compile_content) {
  // Equal contents are one: their states and masks are shared.
  std::map<std::tuple<ConstraintSpec::Kind, std::string, std::vector<std::string>>, int32_t> known;
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    Node& node = nodes_.emplace_back();
    node.may_end = spec.nodes[i].may_end;
    for (size_t j = 0; j < spec.nodes[i].edges.size(); ++j) {
      const ConstraintSpec::Edge& from = spec.nodes[i].edges[j];
      node.edges.push_back(static_cast<int32_t>(edges_.size()));
      Edge& edge = edges_.emplace_back(Edge{from.begin, from.end, -1, from.target});
      if (from.kind == ConstraintSpec::Kind::kNothing) continue;
      const auto [content, is_new] = known.try_emplace({from.kind, from.content, from.choices},
                                                       static_cast<int32_t>(contents_.size()));
      edge.content = content->second;
      if (!is_new) continue;
      auto compiled = compile_content(from);
      if (!compiled.ok()) {
        const std::string place = fmt::format("nodes[{}].edges[{}].{}", i, j, FieldOf(from.kind));
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

absl::Status Flow::AddTexts(const ConstraintSpec& spec) {
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

size_t FlowRecognizer::bytes() const {
  size_t bytes = flow_->bytes() + regexes_.bytes() + dfa_.bytes() +
                 states_.capacity() * sizeof(StateData) + readings_.capacity() * sizeof(Reading) +
                 kBytesPerHashEntry * by_hash_.size() + next_.capacity() * sizeof(next_[0]);
  for (const auto& content : contents_) {
    if (content != nullptr) bytes += content->bytes();
  }
  return bytes;
}

void FlowRecognizer::AllowWork(int64_t steps) {
  regexes_.meter().Allow(steps);
  for (const auto& content : contents_) {
    if (content != nullptr) content->AllowWork(steps);
  }
}

bool FlowRecognizer::full() const {
  return full_ || dfa_.full() ||
         std::ranges::any_of(contents_, [](const auto& c) { return c != nullptr && c->full(); });
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
  // Behind the content its end follows: it is the rest of no text.
  part.is_rest = false;
  return part;
}

const FlowRecognizer::Reading* FlowRecognizer::OnlyContent(State state) const {
  const std::span<const Reading> readings = ReadingsOf(state);
  return readings.size() == 1 && readings[0].phase == Phase::kContent ? &readings[0] : nullptr;
}

bool FlowRecognizer::EndsAlike(State state, RegexDfa::State inside,
                               std::vector<std::string>& others) {
  const Reading* const content = OnlyContent(state);
  return content != nullptr && ContentOf(content->at).EndsAlike(content->state, inside, others);
}

std::optional<uint64_t> FlowRecognizer::EndClass(State state, std::string_view text) {
  const Reading* const content = OnlyContent(state);
  if (content == nullptr) return std::nullopt;
  return ContentOf(content->at).EndClass(content->state, text);
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
