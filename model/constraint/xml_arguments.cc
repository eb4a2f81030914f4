#include "model/constraint/xml_arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/json_document.h"
#include "model/constraint/json_schema.h"
#include "model/constraint/json_shapes.h"
#include "model/constraint/regex_set.h"
#include "model/constraint/schema_reader.h"
#include "model/constraint/text_regex.h"

namespace tlm {
namespace {

using Xml = XmlArgumentsReader::State;

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kValueEnd = "\n</parameter>";

// Another byte of the literal; `matched` are there.
bool Match(std::string_view literal, char byte, uint8_t& matched) {
  return byte == literal[matched++];
}

bool IsTextSchema(const JsonValue& schema) {
  if (const JsonValue* type = schema.Find("type")) return type->text == "string";
  if (const JsonValue* value = schema.Find("const")) return value->is_string();
  const JsonValue* values = schema.Find("enum");
  return values != nullptr && values->is_array() && !values->items.empty() &&
         std::ranges::all_of(values->items, &JsonValue::is_string);
}

// A name with ">" could not be read back.
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

// The JSON that results is walked along the schema's language.
class XmlArgumentsRecognizer final : public Recognizer {
 public:
  XmlArgumentsRecognizer(XmlArgumentsReader reader, std::unique_ptr<Recognizer> json,
                         const ConstraintLimits& limits)
      : reader_(std::move(reader)), json_(std::move(json)), max_states_(limits.max_states) {
    start_ = json_->start() == kDead ? kDead : StateOf({.json = json_->start()});
  }

  State start() override { return start_; }
  State Next(State state, uint8_t byte) override {
    const State known = next_[static_cast<size_t>(state)][byte];
    return known == kUnknown ? NextNew(state, byte) : known;
  }
  bool Accepts(State state) override { return positions_[state].xml.phase == Xml::Phase::kEnd; }
  ByteSet NextBytes(State state) override;
  // Within a string of JSON it is read as JSON.
  Part PartOf(State state) override {
    const Position& position = positions_[state];
    return position.xml.in_string ? json_->PartOf(position.json) : Part{};
  }
  bool EndsAlike(State state, RegexDfa::State inside, std::vector<std::string>& others) override {
    return json_->EndsAlike(positions_[state].json, inside, others);
  }
  std::optional<uint64_t> EndClass(State state, std::string_view text) override {
    return json_->EndClass(positions_[state].json, text);
  }
  void AllowWork(int64_t steps) override { json_->AllowWork(steps); }
  size_t bytes() const override {
    return json_->bytes() +
           next_.size() * (sizeof(next_[0]) + sizeof(Position) + kBytesPerHashEntry);
  }
  bool full() const override { return full_ || json_->full(); }

 private:
  static constexpr State kUnknown = -2;

  struct Position {
    Xml xml = {};
    State json = kDead;  // without what may be the end of a text

    friend bool operator==(const Position&, const Position&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Position& p) {
      return H::combine(std::move(hash), p.xml, p.json);
    }
  };

  State NextNew(State state, uint8_t byte);
  State StateOf(const Position& position);
  State Read(State json, std::string_view text);
  bool IsAlive(const Position& position);

  const XmlArgumentsReader reader_;
  const std::unique_ptr<Recognizer> json_;
  const size_t max_states_;
  bool full_ = false;
  Interner<Position> positions_;
  std::vector<std::array<State, 256>> next_;
  State start_ = kDead;
};

Recognizer::State XmlArgumentsRecognizer::NextNew(State state, uint8_t byte) {
  Position position = positions_[state];
  std::string json;
  const bool reads = reader_.Step(position.xml, static_cast<char>(byte), json);
  if (reads) position.json = Read(position.json, json);
  const State next =
      reads && position.json != kDead && IsAlive(position) ? StateOf(position) : kDead;
  next_[static_cast<size_t>(state)][byte] = next;
  return next;
}

Recognizer::State XmlArgumentsRecognizer::StateOf(const Position& position) {
  if (next_.size() >= max_states_) {
    full_ = true;
    return kDead;
  }
  const State state = positions_.Of(position);
  if (static_cast<size_t>(state) == next_.size()) next_.emplace_back().fill(kUnknown);
  return state;
}

Recognizer::State XmlArgumentsRecognizer::Read(State json, std::string_view text) {
  for (const char byte : text) {
    if (json == kDead) return kDead;
    json = json_->Next(json, static_cast<uint8_t>(byte));
  }
  return json;
}

// Whether what JSON does not tell yet leads on.
bool XmlArgumentsRecognizer::IsAlive(const Position& position) {
  const auto is_value = [&](State json) {
    return json != kDead && (Read(json, ",") != kDead || Read(json, "}") != kDead);
  };
  const Xml& xml = position.xml;
  if (xml.phase == Xml::Phase::kText && xml.matched > 0) {
    // The end of the value, or more of it.
    const std::string_view held = kValueEnd.substr(0, xml.matched);
    return is_value(Read(position.json, "\"")) ||
           Read(position.json, EncodeText(held, TextForm::kJson)) != kDead;
  }
  const bool ends = xml.phase == Xml::Phase::kJsonEnd && xml.matched == 1;
  return !ends || is_value(position.json);
}

ByteSet XmlArgumentsRecognizer::NextBytes(State state) {
  const Position& position = positions_[state];
  const Xml& xml = position.xml;
  switch (xml.phase) {
    case Xml::Phase::kTag:
      if (xml.matched == 0) return ByteSet::Of('<');
      return ByteSet::Of('p') | ByteSet::Of('/');
    case Xml::Phase::kParameter:
      return ByteSet::Of(static_cast<uint8_t>(kParameter[xml.matched]));
    case Xml::Phase::kNameEnd:
    case Xml::Phase::kValueEnd:
      return ByteSet::Of('\n');
    case Xml::Phase::kJsonEnd:
      return ByteSet::Of(static_cast<uint8_t>(kValueEnd[xml.matched]));
    case Xml::Phase::kFunction:
      return ByteSet::Of(static_cast<uint8_t>(kFunctionEnd[xml.matched]));
    case Xml::Phase::kEnd:
      return {};
    case Xml::Phase::kJson:
      return json_->NextBytes(position.json) | ByteSet::Of('\n');
    case Xml::Phase::kName:
    case Xml::Phase::kText:
      break;
  }
  // Of a string in JSON, where an escape is several characters.
  if (xml.matched > 0) return ~ByteSet();
  ByteSet bytes = json_->NextBytes(position.json);
  const bool escapes = bytes.Has('\\'), ends = bytes.Has('"');
  const ByteSet escaped = ByteSet::Range(0, 0x1f) | ByteSet::Of('"') | ByteSet::Of('\\');
  bytes = escapes ? bytes | escaped : bytes & ~escaped;
  if (ends) bytes.Add(xml.phase == Xml::Phase::kText ? '\n' : '>');
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
    if (IsTextSchema(value)) names.push_back(name);
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
      if (!Match(kParameter, byte, state.matched)) return false;
      if (state.matched == kParameter.size()) {
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

// The second byte of the tag tells which it is.
bool XmlArgumentsReader::StepTag(State& state, char byte, std::string& json) const {
  if (state.matched == 0) return Match("<", byte, state.matched);
  if (byte != kParameter[1] && byte != kFunctionEnd[1]) return false;
  const bool is_parameter = byte == kParameter[1];
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
  // Those that are too short stand first.
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
    // It would be no part of the value.
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

absl::StatusOr<RecognizerFactory> CompileXmlArguments(std::string_view schema,
                                                      const JsonOptions& options,
                                                      const ConstraintLimits& limits,
                                                      Budget& budget) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Recognizer> json,
                       CompileJsonSchema(schema, options, limits, budget));
  TLM_RETURN_IF_ERROR(CheckNames(schema));
  json->AllowWork(std::numeric_limits<int64_t>::max());
  if (json->Next(json->start(), '{') == Recognizer::kDead) {
    return InvalidArgument("no object can be as the schema says");
  }
  const auto names = std::make_shared<const std::vector<std::string>>(TextParameters(schema));
  return [schema = std::string(schema), options, limits, names] {
    Budget again(absl::InfiniteDuration(), nullptr);  // it was enough before
    return std::make_unique<XmlArgumentsRecognizer>(
        XmlArgumentsReader(names), *CompileJsonSchema(schema, options, limits, again), limits);
  };
}

}  // namespace tlm
