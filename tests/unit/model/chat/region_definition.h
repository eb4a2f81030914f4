// What RegionReader tells of a text, defined on the whole of it.
#ifndef TLM_TESTS_UNIT_MODEL_CHAT_REGION_DEFINITION_H_
#define TLM_TESTS_UNIT_MODEL_CHAT_REGION_DEFINITION_H_

#include <algorithm>
#include <optional>
#include <ostream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/region_reader.h"
#include "model/chat/xml_arguments.h"

namespace tlm {

inline bool operator==(const RegionEvent& a, const RegionEvent& b) {
  return a.type == b.type && a.region == b.region && a.region_index == b.region_index &&
         a.call_index == b.call_index && a.name == b.name && a.text == b.text &&
         a.arguments_json == b.arguments_json && a.complete == b.complete;
}

// "<think>" is a marker, R( .. ) reasoning, T( .. ) text, add#0( .. ) a call; "!" behind one that
// is incomplete.
inline std::ostream& operator<<(std::ostream& out, const RegionEvent& event) {
  switch (event.type) {
    case RegionEvent::Type::kStarted:
      if (event.region == RegionKind::kReasoning) return out << event.region_index << "R(";
      if (event.region == RegionKind::kText) return out << event.region_index << "T(";
      return out << event.region_index << event.name << "#" << event.call_index << "(";
    case RegionEvent::Type::kDelta:
      out << event.text;
      return event.region != RegionKind::kToolCall || event.arguments_json == event.text
                 ? out
                 : out << " = " << event.arguments_json;
    case RegionEvent::Type::kFinished:
      return out << (event.complete ? ")" : ")!");
    case RegionEvent::Type::kMarker:
      return out << "<" << event.text << ">";
  }
  return out;
}

// Neighbours of one kind in one.
inline void Join(const RegionEvent& event, std::vector<RegionEvent>& events) {
  const bool grows =
      event.type == RegionEvent::Type::kDelta || event.type == RegionEvent::Type::kMarker;
  if (grows && !events.empty() && events.back().type == event.type) {
    events.back().text += event.text;
    events.back().arguments_json += event.arguments_json;
  } else {
    events.push_back(event);
  }
}

class RegionDefinition {
 public:
  explicit RegionDefinition(const RegionPlan& plan) : plan_(plan) {
    if (plan.format.reasoning != nullptr) reasoning_ = *plan.format.reasoning;
    if (plan.format.tools != nullptr) tools_ = *plan.format.tools;
  }

  std::vector<RegionEvent> Of(std::string_view text) {
    text_ = text;
    at_ = 0;
    region_ = call_ = -1;
    events_.clear();
    if (plan_.begins_in_reasoning) {
      SkipBreaks();
      Reasoning();
    } else {
      Between({.reasoning = true, .call = true});
    }
    return events_;
  }

 private:
  enum class Kind { kReasoning, kText, kPreamble, kCall, kNextCall, kEnd };
  struct Found {
    Kind kind;
    size_t begin, end;
    std::string name;
  };
  // What may stand besides that which may in any case.
  struct Allowed {
    bool reasoning = false;
    bool call = false;
    bool after_call = false;
  };

  bool takes() const { return reasoning_.takes_line_breaks; }
  std::string Strip(std::string_view text) const {
    if (!takes()) return std::string(text);
    return std::regex_replace(std::string(text), std::regex("^\n+|\n+$"), "");
  }
  std::string_view Rest(size_t from) const { return text_.substr(std::min(from, text_.size())); }

  void Literal(Kind kind, std::string_view marker, size_t at, std::vector<Found>& found) const {
    const std::string literal = Strip(marker);
    if (!literal.empty() && Rest(at).starts_with(literal)) {
      found.push_back({kind, at, at + literal.size(), ""});
    }
  }
  void Call(Kind kind, std::string_view before, size_t at, std::vector<Found>& found) const {
    if (plan_.format.tools == nullptr) return;
    std::string begin = std::string(before) + std::string(tools_.before_name);
    if (takes()) begin = std::regex_replace(begin, std::regex("^\n+"), "");
    if (!Rest(at).starts_with(begin)) return;
    const size_t name_at = at + begin.size();
    const std::string name(Rest(name_at).substr(0, Rest(name_at).find(tools_.after_name[0])));
    const bool has_control =
        std::any_of(name.begin(), name.end(), [](char c) { return c >= 0 && c < ' '; });
    if (name.empty() || has_control || name.size() > RegionReader::kMaxNameBytes) return;
    if (!Rest(name_at + name.size()).starts_with(tools_.after_name)) return;
    found.push_back({kind, at, name_at + name.size() + tools_.after_name.size(), name});
  }
  static std::optional<Found> Shortest(const std::vector<Found>& found) {
    if (found.empty()) return std::nullopt;
    return *std::min_element(found.begin(), found.end(),
                             [](const Found& a, const Found& b) { return a.end < b.end; });
  }

  // Between regions.
  void Between(Allowed allowed) {
    std::vector<Found> found;
    const bool anywhere = tools_.place == ToolFormat::Place::kAnywhere;
    if (allowed.reasoning || !reasoning_.text_open.empty()) {
      Literal(Kind::kReasoning, reasoning_.open, at_, found);
    }
    if (!reasoning_.text_open.empty()) {
      Literal(Kind::kText, reasoning_.text_open, at_, found);
      Literal(Kind::kPreamble, reasoning_.preamble_open, at_, found);
    }
    if (allowed.call || anywhere) Call(Kind::kCall, tools_.begin, at_, found);
    if (allowed.after_call) {
      if (tools_.parallel) Call(Kind::kNextCall, tools_.between, at_, found);
      Literal(Kind::kEnd, tools_.end, at_, found);
    }
    const auto first = Shortest(found);
    if (!first.has_value()) return Text(false);
    Marker(first->end);
    Follow(*first);
  }

  void Follow(const Found& found) {
    switch (found.kind) {
      case Kind::kReasoning:
        SkipBreaks();
        return Reasoning();
      case Kind::kText:
        SkipBreaks();
        return Text(false);
      case Kind::kPreamble:
        SkipBreaks();
        return Text(true);
      case Kind::kCall:
      case Kind::kNextCall:
        return Arguments(found.name);
      case Kind::kEnd:
        SkipBreaks();
        return Between({});
    }
  }

  void Reasoning() {
    const std::string close = Strip(reasoning_.close);
    const size_t end = close.empty() ? text_.npos : text_.find(close, at_);
    Start(RegionKind::kReasoning);
    if (end == text_.npos) {
      Delta(text_.size());
      return Finish(false);
    }
    Delta(BeforeBreaks(end));
    Finish(true);
    Marker(end + close.size());
    SkipBreaks();
    Between({.call = true});
  }

  void Text(bool is_preamble) {
    for (size_t i = at_; i < text_.size(); ++i) {
      std::vector<Found> found;
      if (is_preamble) Literal(Kind::kEnd, reasoning_.preamble_close, i, found);
      if (tools_.place == ToolFormat::Place::kAnywhere) Call(Kind::kCall, tools_.begin, i, found);
      const auto first = Shortest(found);
      if (!first.has_value()) continue;
      WholeText(BeforeBreaks(i));
      Marker(first->end);
      if (first->kind == Kind::kCall) return Arguments(first->name);
      SkipBreaks();
      return Between({.call = true});
    }
    WholeText(text_.size());
  }

  void WholeText(size_t end) {
    if (end == at_) return;
    Start(RegionKind::kText);
    Delta(end);
    Finish(true);
  }

  void Arguments(const std::string& name) {
    ++call_;
    Start(RegionKind::kToolCall);
    events_.back().call_index = call_;
    events_.back().name = name;
    const bool complete =
        tools_.arguments == ToolFormat::Arguments::kJson ? JsonArguments() : XmlArguments(name);
    Finish(complete);
    if (!complete) return Text(false);
    const std::string_view after = tools_.after_arguments;
    if (Rest(at_).starts_with(after)) {
      Marker(at_ + after.size());
      SkipBreaks();
      return Between({.after_call = true});
    }
    if (after.starts_with(Rest(at_))) return Marker(text_.size());
    Text(false);
  }

  bool JsonArguments() {
    size_t end = at_;
    const Verdict verdict = Rest(at_).starts_with('{') ? JsonValueAt(end)
                            : Rest(at_).empty()        ? kEnds
                                                       : kBad;
    Delta(end, text_.substr(at_, end - at_));
    return verdict == kGood;
  }

  bool XmlArguments(const std::string& name) {
    const auto found = plan_.text_parameters.find(name);
    XmlArgumentsReader reader(found != plan_.text_parameters.end()
                                  ? found->second
                                  : std::make_shared<const std::vector<std::string>>());
    std::string json;
    size_t end = at_;
    for (; end < text_.size() && !reader.complete(); ++end) {
      std::string more = json;
      if (!reader.Append(text_[end], more)) break;
      if (!more.empty()) {
        RegionDefinition inner({});
        inner.text_ = more;
        size_t json_end = 0;
        const Verdict verdict = inner.JsonValueAt(json_end);
        if (verdict == kBad || json_end < more.size()) break;
      }
      json = more;
    }
    Delta(end, json);
    return reader.complete();
  }

  // ---- JSON: whether a value begins at `at`; then behind it, or at the first byte that is wrong.

  enum Verdict { kGood, kBad, kEnds };

  Verdict JsonValueAt(size_t& at) const {
    if (at >= text_.size()) return kEnds;
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_[at] == word[0]) return WordAt(word, at);
    }
    if (text_[at] == '"') return StringAt(at);
    if (text_[at] == '{' || text_[at] == '[') return ContainerAt(at);
    return NumberAt(at);
  }
  Verdict WordAt(std::string_view word, size_t& at) const {
    for (const char byte : word) {
      if (at == text_.size()) return kEnds;
      if (text_[at] != byte) return kBad;
      ++at;
    }
    return kGood;
  }
  Verdict NumberAt(size_t& at) const {
    static const std::regex number(R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)");
    const size_t begin = at;
    const auto text = [&](size_t size) { return std::string(text_.substr(begin, size)); };
    const auto may_be = [&](const std::string& so_far) {
      return std::regex_match(so_far, number) || std::regex_match(so_far + "0", number);
    };
    while (at < text_.size() && may_be(text(at + 1 - begin))) ++at;
    if (std::regex_match(text(at - begin), number)) return kGood;
    return at == text_.size() ? kEnds : kBad;
  }
  Verdict StringAt(size_t& at) const {
    static const std::regex part(R"(\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))");
    ++at;
    while (at < text_.size() && text_[at] != '"') {
      if (text_[at] != '\\') {
        if (static_cast<unsigned char>(text_[at]) < 0x20) return kBad;
        ++at;
        continue;
      }
      // An escape is right as far as some end makes it one.
      size_t size = 1;
      const auto is_part = [&](const std::string& end) {
        return std::regex_match(std::string(text_.substr(at, size)) + end, part);
      };
      while (!is_part("")) {
        if (at + size >= text_.size()) {
          at = text_.size();
          return kEnds;
        }
        ++size;
        const std::vector<std::string> ends = {"", "0", "00", "000", "0000"};
        if (std::none_of(ends.begin(), ends.end(), is_part)) {
          at += size - 1;
          return kBad;
        }
      }
      at += size;
    }
    if (at >= text_.size()) return kEnds;
    ++at;
    return kGood;
  }
  Verdict ContainerAt(size_t& at) const {
    const bool is_object = text_[at] == '{';
    const char close = is_object ? '}' : ']';
    ++at;
    for (bool first = true;; first = false) {
      Blanks(at);
      if (at == text_.size()) return kEnds;
      if (text_[at] == close && first) break;
      if (is_object) {
        if (text_[at] != '"') return kBad;
        if (const Verdict verdict = StringAt(at); verdict != kGood) return verdict;
        Blanks(at);
        if (at == text_.size()) return kEnds;
        if (text_[at] != ':') return kBad;
        ++at;
        Blanks(at);
      }
      if (const Verdict verdict = JsonValueAt(at); verdict != kGood) return verdict;
      Blanks(at);
      if (at == text_.size()) return kEnds;
      if (text_[at] == close) break;
      if (text_[at] != ',') return kBad;
      ++at;
    }
    ++at;
    return kGood;
  }
  void Blanks(size_t& at) const {
    at = std::min(text_.find_first_not_of(" \n\t\r", at), text_.size());
  }

  // ---- Events

  size_t BeforeBreaks(size_t end) const {
    while (takes() && end > at_ && text_[end - 1] == '\n') --end;
    return end;
  }
  void SkipBreaks() {
    size_t end = at_;
    while (takes() && end < text_.size() && text_[end] == '\n') ++end;
    Marker(end);
  }
  RegionEvent Event(RegionEvent::Type type) const {
    return {.type = type, .region = kind_, .region_index = region_};
  }
  void Marker(size_t end) {
    if (end == at_) return;
    Join({.type = RegionEvent::Type::kMarker, .text = std::string(text_.substr(at_, end - at_))},
         events_);
    at_ = end;
  }
  void Start(RegionKind kind) {
    kind_ = kind;
    ++region_;
    events_.push_back(Event(RegionEvent::Type::kStarted));
  }
  void Delta(size_t end, std::string_view json = "") {
    if (end == at_) return;
    RegionEvent event = Event(RegionEvent::Type::kDelta);
    event.text = text_.substr(at_, end - at_);
    event.arguments_json = json;
    events_.push_back(event);
    at_ = end;
  }
  void Finish(bool complete) {
    RegionEvent event = Event(RegionEvent::Type::kFinished);
    event.complete = complete;
    events_.push_back(event);
  }

  const RegionPlan plan_;
  ReasoningFormat reasoning_;
  ToolFormat tools_;
  std::string_view text_;
  size_t at_ = 0;
  RegionKind kind_ = RegionKind::kText;
  int32_t region_ = -1, call_ = -1;
  std::vector<RegionEvent> events_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CHAT_REGION_DEFINITION_H_
