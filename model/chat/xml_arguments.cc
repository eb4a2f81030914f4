#include "model/chat/xml_arguments.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_document.h"
#include "model/constraint/json/json_schema.h"
#include "model/constraint/json/json_shapes.h"
#include "model/constraint/json/schema_reader.h"

namespace tlm {
namespace {

using Xml = XmlArgumentsReader::State;

constexpr std::string_view kParameterStart = "<parameter=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kNameEnd = ">";
constexpr std::string_view kValueEnd = "\n</parameter>";

// Whether `byte` is the next byte of the literal, of which `matched` bytes have been read.
bool Match(std::string_view literal, char byte, uint8_t& matched) {
  return byte == literal[matched++];
}

// The schema in the document's definitions that `schema` refers to; `schema` itself if it refers to
// none.
const JsonValue& Referred(const JsonValue& document, const JsonValue& schema) {
  constexpr int kMaxReferences = 8;
  const JsonValue* at = &schema;
  for (int i = 0; i < kMaxReferences; ++i) {
    const JsonValue* reference = at->Find("$ref");
    if (reference == nullptr || at->Find("type") != nullptr || at->Find("$id") != nullptr) break;
    const JsonValue* target = nullptr;
    for (const std::string_view key : {"$defs", "definitions"}) {
      const std::string before = "#/" + std::string(key) + "/";
      const JsonValue* definitions = document.Find(key);
      if (definitions == nullptr || !reference->text.starts_with(before)) continue;
      const std::string_view name = std::string_view(reference->text).substr(before.size());
      if (name.find_first_of("/~%") == name.npos) target = definitions->Find(name);
    }
    if (target == nullptr) break;
    at = target;
  }
  return *at;
}

bool IsTextSchema(const JsonValue& schema) {
  if (const JsonValue* type = schema.Find("type")) return type->text == "string";
  if (const JsonValue* value = schema.Find("const")) return value->is_string();
  const JsonValue* values = schema.Find("enum");
  return values != nullptr && values->is_array() && !values->items.empty() &&
         std::ranges::all_of(values->items, &JsonValue::is_string);
}

// Refuses names with ">", because XmlArgumentsReader could not read them.
absl::Status CheckNames(std::string_view schema) {
  TLM_ASSIGN_OR_RETURN(const JsonValue document, ParseJsonDocument(schema, kMaxSchemaDepth));
  const auto check = [](std::string_view where, std::string_view name) {
    if (name.find('>') == std::string_view::npos) return absl::OkStatus();
    return InvalidArgument("{} {}: arguments written as XML have no name with '>'", where,
                           Quoted(name));
  };
  if (const JsonValue* properties = document.Find("properties")) {
    for (const auto& [name, value] : properties->members) {
      TLM_RETURN_IF_ERROR(check("properties", name));
    }
  }
  if (const JsonValue* required = document.Find("required")) {
    for (const JsonValue& name : required->items) {
      TLM_RETURN_IF_ERROR(check("required", name.text));
    }
  }
  return absl::OkStatus();
}

// The automaton of a name or a plain text in XML, up to and including `end`. It translates the XML
// to JSON and runs the automaton of the JSON string.
class StringText final : public RegexSet::Automaton {
 public:
  // `json` reads a string up to and including its closing quote, and must outlive this. `end` has
  // at most kMaxEnd bytes, and its first byte occurs in it only once.
  StringText(RegexDfa& json, std::string_view end) : json_(json), end_(end) {}

  // The state after `matched` bytes that may begin `end`; `json` is the state before those bytes.
  static int32_t StateOf(RegexDfa::State json, size_t matched) {
    return json * kMaxEnd + static_cast<int32_t>(matched);
  }
  int32_t Next(int32_t state, uint8_t byte) const override {
    if (state == kAtEnd) return kDead;
    const RegexDfa::State json = state / kMaxEnd;
    const auto matched = static_cast<size_t>(state % kMaxEnd);
    const char plain = static_cast<char>(byte);
    if (plain == end_[matched]) {
      if (matched + 1 < end_.size()) return StateOf(json, matched + 1);
      return Read(json, "\"") != kDead ? kAtEnd : kDead;
    }
    RegexDfa::State next = Read(json, EncodeText(end_.substr(0, matched), TextForm::kJson));
    const bool begins = plain == end_[0];
    if (!begins) next = Read(next, EncodeText({&plain, 1}, TextForm::kJson));
    return next != kDead ? StateOf(next, begins ? 1 : 0) : kDead;
  }
  bool Accepts(int32_t state) const override { return state == kAtEnd; }
  // True if the text may end here.
  bool IsPlainlyLive(int32_t state) const override {
    return state != kAtEnd && Read(state / kMaxEnd, "\"") != kDead;
  }

 private:
  static constexpr int32_t kMaxEnd = 16;
  static constexpr int32_t kAtEnd = std::numeric_limits<int32_t>::max();

  RegexDfa::State Read(RegexDfa::State state, std::string_view text) const {
    for (const char byte : text) {
      if (state != kDead) state = json_.Next(state, static_cast<uint8_t>(byte));
    }
    return state;
  }

  RegexDfa& json_;
  const std::string_view end_;
};

// Translates the XML to JSON, which the recognizer of the schema reads.
class XmlArgumentsRecognizer final : public Recognizer {
 public:
  XmlArgumentsRecognizer(XmlArgumentsReader reader, std::unique_ptr<Recognizer> json,
                         const ConstraintLimits& limits)
      : reader_(std::move(reader)),
        json_(std::move(json)),
        max_states_(limits.max_states),
        regexes_(limits.max_states),
        dfa_(regexes_, RegexSet::kNone, limits.max_states) {
    start_ = StateOf({.json = json_->start()});
  }

  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return positions_[state].xml.phase == Xml::Phase::kEnd; }
  ByteSet NextBytes(State state) override;
  Part PartOf(State state) override { return PartOf(positions_[state]); }
  void AllowWork(int64_t steps) override {
    json_->AllowWork(steps);
    regexes_.meter().Allow(steps);
  }
  Usage usage() const override {
    constexpr size_t kBytesPerState = 2 * sizeof(Position) + 2 * kBytesPerHashEntry;
    const Usage json = json_->usage();
    return {.bytes = json.bytes + regexes_.bytes() + dfa_.bytes() +
                     static_cast<size_t>(positions_.size()) * kBytesPerState +
                     next_.size() * sizeof(*next_.begin()),
            .full = full_ || json.full || regexes_.full() || dfa_.full()};
  }

 private:
  struct Position {
    Xml xml = {};
    State json = kDead;  // excludes bytes that may begin the end of a text

    friend bool operator==(const Position&, const Position&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Position& p) {
      return H::combine(std::move(hash), p.xml, p.json);
    }
  };

  State StateAfter(Position position, uint8_t byte);
  State StateOf(const Position& position);
  State Read(State json, std::string_view text);
  bool IsAlive(const Position& position);
  Part PartOf(const Position& position);

  const XmlArgumentsReader reader_;
  const std::unique_ptr<Recognizer> json_;
  const size_t max_states_;
  bool full_ = false;
  RegexSet regexes_;
  RegexDfa dfa_;  // runs names_ and texts_
  std::shared_ptr<const StringText> names_, texts_;
  Interner<Position> positions_;
  absl::flat_hash_map<uint64_t, State> next_;
};

Recognizer::State XmlArgumentsRecognizer::Next(State state, uint8_t byte) {
  const uint64_t key = static_cast<uint64_t>(state) << 8 | byte;
  if (const auto known = next_.find(key); known != next_.end()) return known->second;
  const State next = StateAfter(positions_[state], byte);
  next_.emplace(key, next);
  return next;
}

Recognizer::State XmlArgumentsRecognizer::StateAfter(Position position, uint8_t byte) {
  std::string json;
  if (!reader_.Step(position.xml, static_cast<char>(byte), json)) return kDead;
  position.json = Read(position.json, json);
  return position.json != kDead && IsAlive(position) ? StateOf(position) : kDead;
}

Recognizer::State XmlArgumentsRecognizer::StateOf(const Position& position) {
  if (position.json == kDead) return kDead;
  if (static_cast<size_t>(positions_.size()) >= max_states_) {
    full_ = true;
    return kDead;
  }
  return positions_.Of(position);
}

Recognizer::State XmlArgumentsRecognizer::Read(State json, std::string_view text) {
  for (const char byte : text) {
    if (json == kDead) return kDead;
    json = json_->Next(json, static_cast<uint8_t>(byte));
  }
  return json;
}

// Whether the XML can continue. The recognizer of the JSON does not know this yet while bytes are
// held back.
bool XmlArgumentsRecognizer::IsAlive(const Position& position) {
  switch (position.xml.phase) {
    case Xml::Phase::kName:
    case Xml::Phase::kText:
      return PartOf(position).state != RegexDfa::kDead;
    case Xml::Phase::kJsonEnd:
      return position.xml.matched > 1 || Read(position.json, ",") != kDead ||
             Read(position.json, "}") != kDead;
    default:
      return true;
  }
}

// In a string of a JSON value, the part is the part of the JSON recognizer.
Recognizer::Part XmlArgumentsRecognizer::PartOf(const Position& position) {
  const Xml& xml = position.xml;
  if (xml.in_string) return json_->PartOf(position.json);
  const bool is_name = xml.phase == Xml::Phase::kName;
  if (!is_name && xml.phase != Xml::Phase::kText) return {};
  const Part json = json_->PartOf(position.json);
  auto& automaton = is_name ? names_ : texts_;
  if (automaton == nullptr) {
    automaton = std::make_shared<const StringText>(*json.dfa, is_name ? kNameEnd : kValueEnd);
  }
  const int32_t state = StringText::StateOf(json.state, xml.matched);
  return {.dfa = &dfa_, .state = dfa_.StateOf(regexes_.StateOf(automaton, state))};
}

ByteSet XmlArgumentsRecognizer::NextBytes(State state) {
  ByteSet bytes;
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    if (Next(state, byte) != kDead) bytes.Add(byte);
  }
  return bytes;
}

}  // namespace

std::vector<std::string> TextParameters(std::string_view schema) {
  const absl::StatusOr<JsonValue> document = ParseJsonDocument(schema, kMaxSchemaDepth);
  if (!document.ok()) return {};
  const JsonValue* properties = document->Find("properties");
  if (properties == nullptr) return {};
  std::vector<std::string> names;
  for (const auto& [name, value] : properties->members) {
    if (IsTextSchema(Referred(*document, value))) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

bool XmlArgumentsReader::Step(State& state, char byte, std::string& json) const {
  using Phase = State::Phase;
  switch (state.phase) {
    case Phase::kTag:
      return StepTag(state, byte, json);
    case Phase::kParameter:
      if (!Match(kParameterStart, byte, state.matched)) return false;
      if (state.matched == kParameterStart.size()) {
        state.phase = Phase::kName;
        state.matched = 0;
        state.high = static_cast<int32_t>(text_parameters_->size());
      }
      return true;
    case Phase::kName:
      return StepName(state, byte, json);
    case Phase::kNameEnd:
      return byte == '\n' && BeginValue(state, json);
    case Phase::kText:
      return StepText(state, byte, json);
    case Phase::kJson:
      return StepJson(state, byte, json);
    case Phase::kJsonEnd:
      if (!Match(kValueEnd, byte, state.matched)) return false;
      if (state.matched == kValueEnd.size()) state.phase = Phase::kValueEnd;
      return true;
    case Phase::kValueEnd:
      state.phase = Phase::kTag;
      state.matched = 0;
      return byte == '\n';
    case Phase::kFunction:
      if (!Match(kFunctionEnd, byte, state.matched)) return false;
      if (state.matched == kFunctionEnd.size()) state.phase = Phase::kEnd;
      return true;
    case Phase::kEnd:
      return false;
  }
  return false;
}

// The second byte of the tag decides between "<parameter=" and "</function>".
bool XmlArgumentsReader::StepTag(State& state, char byte, std::string& json) const {
  if (state.matched == 0) return Match("<", byte, state.matched);
  if (byte != kParameterStart[1] && byte != kFunctionEnd[1]) return false;
  const bool is_parameter = byte == kParameterStart[1];
  json += state.has_parameters ? "" : "{";
  json += !is_parameter ? "}" : state.has_parameters ? ",\"" : "\"";
  state.phase = is_parameter ? State::Phase::kParameter : State::Phase::kFunction;
  state.has_parameters |= is_parameter;
  ++state.matched;
  return true;
}

bool XmlArgumentsReader::StepName(State& state, char byte, std::string& json) const {
  if (byte == '>') {
    json += "\":";
    state.phase = State::Phase::kNameEnd;
    return true;
  }
  json += EncodeText({&byte, 1}, TextForm::kJson);
  // The next byte of a name. Names that end here are sorted first, so they get -1.
  const auto next = [&](const std::string& name) {
    const auto length = static_cast<size_t>(state.length);
    return name.size() == length ? -1 : static_cast<uint8_t>(name[length]);
  };
  const auto begin = text_parameters_->begin();
  const auto [low, high] = std::ranges::equal_range(begin + state.low, begin + state.high,
                                                    static_cast<uint8_t>(byte), {}, next);
  const bool none = low == high;
  state.low = none ? 0 : static_cast<int32_t>(low - begin);
  state.high = none ? 0 : static_cast<int32_t>(high - begin);
  state.length = none ? 0 : state.length + 1;
  return true;
}

bool XmlArgumentsReader::BeginValue(State& state, std::string& json) const {
  const bool is_text =
      state.low < state.high && (*text_parameters_)[static_cast<size_t>(state.low)].size() ==
                                    static_cast<size_t>(state.length);
  state.low = state.high = state.length = 0;
  state.phase = is_text ? State::Phase::kText : State::Phase::kJson;
  if (is_text) json += '"';
  return true;
}

bool XmlArgumentsReader::StepText(State& state, char byte, std::string& json) {
  if (byte == kValueEnd[state.matched]) {
    if (++state.matched < kValueEnd.size()) return true;
    json += '"';
    state.phase = State::Phase::kValueEnd;
    return true;
  }
  json += EncodeText(kValueEnd.substr(0, state.matched), TextForm::kJson);
  state.matched = byte == kValueEnd[0] ? 1 : 0;
  if (state.matched == 0) json += EncodeText({&byte, 1}, TextForm::kJson);
  return true;
}

bool XmlArgumentsReader::StepJson(State& state, char byte, std::string& json) {
  if (state.in_string) {
    state.in_string = state.escaped || byte != '"';
    state.escaped = !state.escaped && byte == '\\';
  } else if (state.depth == 0 && std::string_view(",:]} \t\r\n").find(byte) != std::string::npos) {
    // The byte is not part of the value, so the value has ended.
    state.phase = State::Phase::kJsonEnd;
    state.matched = 1;
    return byte == kValueEnd[0];
  } else {
    state.in_string = byte == '"';
    state.depth += byte == '[' || byte == '{' ? 1 : byte == ']' || byte == '}' ? -1 : 0;
  }
  json += byte;
  return true;
}

namespace {

absl::StatusOr<RecognizerFactory> Compile(std::string_view schema, const JsonOptions& options,
                                          const ConstraintLimits& limits, Budget& budget) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Recognizer> json,
                       CompileJsonSchema(schema, options, limits, budget));
  TLM_RETURN_IF_ERROR(CheckNames(schema));
  json->AllowWork(std::numeric_limits<int64_t>::max());
  if (json->Next(json->start(), '{') == Recognizer::kDead) {
    return InvalidArgument("the schema is unsatisfiable: no object is valid");
  }
  const auto names = std::make_shared<const std::vector<std::string>>(TextParameters(schema));
  return [schema = std::string(schema), options, limits, names] {
    Budget again(absl::InfiniteDuration(), nullptr);  // the first was enough
    return std::make_unique<XmlArgumentsRecognizer>(
        XmlArgumentsReader(names), *CompileJsonSchema(schema, options, limits, again), limits);
  };
}

}  // namespace

const ConstraintSpec::CustomKind kXmlArguments = {.name = "xml_arguments", .compile = &Compile};

}  // namespace tlm
