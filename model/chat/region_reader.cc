#include "model/chat/region_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model/chat/object_text.h"
#include "model/chat/xml_arguments.h"

namespace tlm {
namespace {

// Converts a call's arguments as the model writes them.
class ArgumentsText {
 public:
  // `text_parameters`: the arguments are XML; null: JSON.
  explicit ArgumentsText(std::shared_ptr<const std::vector<std::string>> text_parameters) {
    if (text_parameters != nullptr) xml_.emplace(std::move(text_parameters));
  }
  // Adds to `json` the text that the byte completes; false if no arguments continue with this byte.
  bool Append(char byte, std::string& json) {
    if (!xml_.has_value()) {
      json += byte;
      return object_.Append(byte);
    }
    const size_t begin = json.size();
    return xml_->Append(byte, json) &&
           std::all_of(json.begin() + static_cast<std::ptrdiff_t>(begin), json.end(),
                       [this](char c) { return object_.Append(c); });
  }
  bool complete() const { return object_.complete() && (!xml_.has_value() || xml_->complete()); }

 private:
  ObjectText object_;
  std::optional<XmlArgumentsReader> xml_;
};

struct Marker {
  enum class Kind {
    kReasoning,
    kReasoningEnd,
    kText,
    kPreamble,
    kPreambleEnd,
    kCall,  // up to its arguments; it contains a name
    kCallEnd,
    kCallsEnd,
  };
  Kind kind;
  std::string literal;          // in kCall: the text before the name
  std::string after_name = {};  // in kCall: the text after the name
};

enum class Match { kNone, kPart, kWhole };

Match MatchBeginning(std::string_view literal, std::string_view text) {
  const size_t size = std::min(literal.size(), text.size());
  if (literal.substr(0, size) != text.substr(0, size)) return Match::kNone;
  return size == literal.size() ? Match::kWhole : Match::kPart;
}

// Compares the text with the marker, or with its beginning. Sets `name` for a whole marker of a
// call.
Match MatchMarker(const Marker& marker, std::string_view text, std::string_view& name) {
  const Match begin = MatchBeginning(marker.literal, text);
  if (begin != Match::kWhole || marker.kind != Marker::Kind::kCall) return begin;
  const std::string_view rest = text.substr(marker.literal.size());
  name = rest.substr(0, rest.find(marker.after_name.front()));
  const bool is_name =
      name.size() <= RegionReader::kMaxNameBytes &&
      std::ranges::none_of(name, [](char c) { return static_cast<uint8_t>(c) < 0x20; });
  if (!is_name) return Match::kNone;
  if (name.size() == rest.size()) return Match::kPart;
  return name.empty() ? Match::kNone : MatchBeginning(marker.after_name, rest.substr(name.size()));
}

std::string_view WithoutLineBreaks(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

// Reads byte by byte. Bytes are held while they may be a marker. If they turn out to be none, the
// first is text and the others are read again.
class RegionReader::Impl {
 public:
  explicit Impl(RegionPlan plan);

  void Append(std::string_view text, std::vector<RegionEvent>& events);
  void End(std::vector<RegionEvent>& events);

 private:
  enum class Place {
    kStart,
    kAfterReasoning,  // or after text before a call
    kAfterArguments,
    kAfterCall,
    kAfterCalls,
    kReasoning,
    kText,
    kPreamble,  // text that has an end
    kArguments,
  };

  // Looks for markers from here on.
  void Go(Place place);
  // Does the same after a marker: line breaks that follow belong to it.
  void PassMarker(Place place) {
    Go(place);
    after_marker_ = takes_line_breaks_;
  }
  void LookFor(Marker::Kind kind, std::string_view literal);
  void LookForCall(std::string_view before);
  void LookForParts();
  bool IsText() const {
    return place_ == Place::kReasoning || place_ == Place::kText || place_ == Place::kPreamble;
  }

  void ReadAll();
  void Read(char byte);
  void ReadArguments(char byte);
  void Refuse();
  void Find(Marker::Kind kind, const std::string& name);
  void BeginCall(const std::string& name);

  RegionEvent& Add(RegionEvent::Type type);
  void AddMarker(std::string_view text);
  void AddText(std::string_view text);
  void AddDelta(std::string_view text, std::string_view json);
  void Start(RegionKind kind);
  void Finish(bool complete);
  void StartReasoning() {
    if (place_ == Place::kReasoning && !is_open_) Start(RegionKind::kReasoning);
  }

  const RegionPlan plan_;
  const ReasoningFormat reasoning_;
  const ToolFormat tools_;
  const bool takes_line_breaks_;

  Place place_ = Place::kStart;
  std::vector<Marker> markers_;        // the markers that may come next
  std::array<bool, 256> begins_ = {};  // bytes that begin one of them, or line breaks before it
  bool after_marker_ = false;          // line breaks belong to the marker
  std::string held_;                   // line breaks, then the beginning of a marker
  size_t breaks_ = 0;                  // number of line breaks in held_
  std::string again_;                  // bytes to read again
  size_t again_at_ = 0;                // how many of them are read
  std::optional<ArgumentsText> arguments_;

  bool is_open_ = false;  // the region region_ is open
  RegionKind kind_ = RegionKind::kText;
  int32_t region_ = -1, call_ = -1;
  std::vector<RegionEvent>* events_ = nullptr;
  size_t first_event_ = 0;  // the first event of this call
};

RegionReader::Impl::Impl(RegionPlan plan)
    : plan_(std::move(plan)),
      reasoning_(plan_.format.reasoning != nullptr ? *plan_.format.reasoning : ReasoningFormat{}),
      tools_(plan_.format.tools != nullptr ? *plan_.format.tools : ToolFormat{}),
      takes_line_breaks_(reasoning_.takes_line_breaks) {
  if (plan_.begins_in_reasoning) {
    PassMarker(Place::kReasoning);
  } else {
    Go(Place::kStart);
  }
}

// ---- The markers to look for

void RegionReader::Impl::Go(Place place) {
  using Kind = Marker::Kind;
  place_ = place;
  after_marker_ = false;
  markers_.clear();
  const bool anywhere = tools_.place == ToolFormat::Place::kAnywhere;
  switch (place) {
    case Place::kStart:
      LookFor(Kind::kReasoning, reasoning_.open);
      LookForParts();
      LookForCall(tools_.begin);
      break;
    case Place::kAfterReasoning:
      LookForParts();
      LookForCall(tools_.begin);
      break;
    case Place::kAfterArguments:
      markers_.push_back({Kind::kCallEnd, std::string(tools_.after_arguments)});
      break;
    case Place::kAfterCall:
      if (tools_.parallel) LookForCall(tools_.between);
      LookFor(Kind::kCallsEnd, tools_.end);
      [[fallthrough]];
    case Place::kAfterCalls:
      LookForParts();
      if (anywhere) LookForCall(tools_.begin);
      break;
    case Place::kReasoning:
      LookFor(Kind::kReasoningEnd, reasoning_.close);
      break;
    case Place::kPreamble:
      LookFor(Kind::kPreambleEnd, reasoning_.preamble_close);
      [[fallthrough]];
    case Place::kText:
      if (anywhere) LookForCall(tools_.begin);
      break;
    case Place::kArguments:
      break;
  }
  begins_.fill(false);
  for (const Marker& marker : markers_) begins_[static_cast<uint8_t>(marker.literal[0])] = true;
  if (takes_line_breaks_ && !markers_.empty()) begins_['\n'] = true;
}

void RegionReader::Impl::LookFor(Marker::Kind kind, std::string_view literal) {
  if (takes_line_breaks_) literal = WithoutLineBreaks(literal);
  if (!literal.empty()) markers_.push_back({kind, std::string(literal)});
}

void RegionReader::Impl::LookForCall(std::string_view before) {
  if (plan_.format.tools == nullptr) return;
  if (takes_line_breaks_) {
    while (before.starts_with('\n')) before.remove_prefix(1);
  }
  markers_.push_back({Marker::Kind::kCall, std::string(before) + std::string(tools_.before_name),
                      std::string(tools_.after_name)});
}

// Adds the markers of formats in which text has a marker.
void RegionReader::Impl::LookForParts() {
  if (reasoning_.text_open.empty()) return;
  if (place_ != Place::kStart) LookFor(Marker::Kind::kReasoning, reasoning_.open);
  LookFor(Marker::Kind::kText, reasoning_.text_open);
  LookFor(Marker::Kind::kPreamble, reasoning_.preamble_open);
}

// ---- Reading

void RegionReader::Impl::Append(std::string_view text, std::vector<RegionEvent>& events) {
  events_ = &events;
  first_event_ = events.size();
  while (!text.empty()) {
    if (IsText() && held_.empty() && !after_marker_) {
      const auto found = std::ranges::find_if(
          text, [this](char byte) { return begins_[static_cast<uint8_t>(byte)]; });
      const auto size = static_cast<size_t>(found - text.begin());
      AddText(text.substr(0, size));
      text.remove_prefix(size);
      if (text.empty()) return;
    }
    again_ += text.front();
    text.remove_prefix(1);
    ReadAll();
  }
}

void RegionReader::Impl::End(std::vector<RegionEvent>& events) {
  events_ = &events;
  first_event_ = events.size();
  if (place_ == Place::kAfterArguments) {
    AddMarker(std::exchange(held_, {}));
  }
  while (!held_.empty()) {
    Refuse();
    ReadAll();
  }
  StartReasoning();
  if (is_open_) Finish(kind_ == RegionKind::kText);
}

void RegionReader::Impl::ReadAll() {
  while (again_at_ < again_.size()) Read(again_[again_at_++]);
  again_.clear();
  again_at_ = 0;
}

void RegionReader::Impl::Read(char byte) {
  if (place_ == Place::kArguments) return ReadArguments(byte);
  if (after_marker_ && byte == '\n') return AddMarker("\n");
  after_marker_ = false;
  held_ += byte;
  if (byte == '\n' && held_.size() == breaks_ + 1 && takes_line_breaks_ && IsText() &&
      !markers_.empty()) {
    ++breaks_;
    return;
  }
  const std::string_view text = std::string_view(held_).substr(breaks_);
  bool may_be = false;
  for (const Marker& marker : markers_) {
    std::string_view name;
    const Match match = MatchMarker(marker, text, name);
    if (match == Match::kWhole) return Find(marker.kind, std::string(name));
    may_be |= match == Match::kPart;
  }
  if (!may_be) Refuse();
}

// The held bytes are no marker.
void RegionReader::Impl::Refuse() {
  const std::string held = std::exchange(held_, {});
  size_t text = 0;
  if (IsText()) {
    text = std::min(std::exchange(breaks_, 0) + 1, held.size());
    AddText(std::string_view(held).substr(0, text));
  } else {
    Go(Place::kText);  // others may follow here
  }
  again_.replace(0, again_at_, held, text);
  again_at_ = 0;
}

void RegionReader::Impl::Find(Marker::Kind kind, const std::string& name) {
  StartReasoning();
  if (is_open_) Finish(true);
  AddMarker(std::exchange(held_, {}));
  breaks_ = 0;
  switch (kind) {
    case Marker::Kind::kReasoning:
      return PassMarker(Place::kReasoning);
    case Marker::Kind::kReasoningEnd:
    case Marker::Kind::kPreambleEnd:
      return PassMarker(Place::kAfterReasoning);
    case Marker::Kind::kText:
      return PassMarker(Place::kText);
    case Marker::Kind::kPreamble:
      return PassMarker(Place::kPreamble);
    case Marker::Kind::kCall:
      return BeginCall(name);
    case Marker::Kind::kCallEnd:
      return PassMarker(Place::kAfterCall);
    case Marker::Kind::kCallsEnd:
      return PassMarker(Place::kAfterCalls);
  }
}

void RegionReader::Impl::BeginCall(const std::string& name) {
  static const auto* const none =
      new std::shared_ptr<const std::vector<std::string>>(new std::vector<std::string>());
  Go(Place::kArguments);
  Start(RegionKind::kToolCall);
  events_->back().call_index = ++call_;
  events_->back().name = name;
  if (tools_.arguments == ToolFormat::Arguments::kJson) {
    arguments_.emplace(nullptr);
  } else {
    const auto found = plan_.text_parameters.find(name);
    arguments_.emplace(found != plan_.text_parameters.end() ? found->second : *none);
  }
}

void RegionReader::Impl::ReadArguments(char byte) {
  std::string json;
  if (!arguments_->Append(byte, json)) {
    Finish(false);
    Go(Place::kText);
    return Read(byte);
  }
  AddDelta({&byte, 1}, json);
  if (!arguments_->complete()) return;
  Finish(true);
  if (tools_.after_arguments.empty()) return PassMarker(Place::kAfterCall);
  Go(Place::kAfterArguments);
}

// ---- Events

RegionEvent& RegionReader::Impl::Add(RegionEvent::Type type) {
  RegionEvent& event = events_->emplace_back();
  event.type = type;
  if (type == RegionEvent::Type::kMarker) return event;
  event.region = kind_;
  event.region_index = region_;
  return event;
}

void RegionReader::Impl::AddMarker(std::string_view text) {
  if (text.empty()) return;
  const bool joins =
      events_->size() > first_event_ && events_->back().type == RegionEvent::Type::kMarker;
  (joins ? events_->back() : Add(RegionEvent::Type::kMarker)).text += text;
}

void RegionReader::Impl::AddText(std::string_view text) {
  if (text.empty()) return;
  if (!is_open_) {
    Start(place_ == Place::kReasoning ? RegionKind::kReasoning : RegionKind::kText);
  }
  AddDelta(text, {});
}

void RegionReader::Impl::AddDelta(std::string_view text, std::string_view json) {
  const bool joins =
      events_->size() > first_event_ && events_->back().type == RegionEvent::Type::kDelta;
  RegionEvent& event = joins ? events_->back() : Add(RegionEvent::Type::kDelta);
  event.text += text;
  event.arguments_json += json;
}

void RegionReader::Impl::Start(RegionKind kind) {
  is_open_ = true;
  kind_ = kind;
  ++region_;
  Add(RegionEvent::Type::kStarted);
}

void RegionReader::Impl::Finish(bool complete) {
  Add(RegionEvent::Type::kFinished).complete = complete;
  is_open_ = false;
}

RegionReader::RegionReader(RegionPlan plan) : impl_(std::make_unique<Impl>(std::move(plan))) {}
RegionReader::RegionReader(RegionReader&&) noexcept = default;
RegionReader& RegionReader::operator=(RegionReader&&) noexcept = default;
RegionReader::~RegionReader() = default;

void RegionReader::Append(std::string_view text, std::vector<RegionEvent>& events) {
  impl_->Append(text, events);
}

void RegionReader::End(std::vector<RegionEvent>& events) { impl_->End(events); }

}  // namespace tlm
