#include "model/constraint/json/json_schema.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/base/errors.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_document.h"
#include "model/constraint/json/json_recognizer.h"
#include "model/constraint/json/scalar_texts.h"
#include "model/constraint/json/schema_formula.h"
#include "model/constraint/json/schema_reader.h"

namespace tlm {
namespace {

constexpr int32_t kMaxDepth = 256;
constexpr int32_t kBlanksPerLevel = 8;

}  // namespace

absl::Status JsonRecognizer::Read(std::string_view schema, Budget& budget) {
  TLM_ASSIGN_OR_RETURN(const JsonValue document, ParseJsonDocument(schema, kMaxSchemaDepth));
  TLM_ASSIGN_OR_RETURN(const Formula root, ReadSchema(document, formulas_, regexes_, budget));
  regexes_.meter().Allow(std::numeric_limits<int64_t>::max(), &budget);
  formulas_.meter().Allow(std::numeric_limits<int64_t>::max(), &budget);
  const bool exists = shapes_.MayExist(root);
  TLM_RETURN_IF_ERROR(budget.Spend(0, "its first state"));
  AllowWork(std::numeric_limits<int64_t>::max());
  if (full()) {
    return ResourceExhausted("the schema takes more than {} states", max_states_);
  }
  if (!exists) return InvalidArgument("the schema is unsatisfiable: no value is valid");
  start_ = StateOf({.goal = shapes_.NumberOf({.must = root})});
  return absl::OkStatus();
}

size_t JsonRecognizer::MemoryBytes() const {
  const auto count = [](auto size) { return static_cast<size_t>(size); };
  return dfa_.size() * 1100 + regexes_.size() * 120 + formulas_.size() * 200 +
         shapes_.size() * 600 + count(positions_.size()) * 160 + count(frames_.size()) * 120 +
         next_.size() * 24 + next_bytes_.size() * 72 + count(kept_.size()) * 64;
}

Recognizer::State JsonRecognizer::StateOf(Position position) {
  if (static_cast<size_t>(positions_.size()) >= max_states_) {
    full_ = true;
    return kDead;
  }
  return positions_.Of(position);
}

int32_t JsonRecognizer::Append(int32_t text, uint8_t byte) { return kept_.Of({text, byte}) + 1; }

std::string JsonRecognizer::TextFrom(int32_t begin, int32_t end) const {
  std::string text;
  for (; end != begin && end != 0; end = kept_[end - 1].first) {
    text += static_cast<char>(kept_[end - 1].second);
  }
  std::reverse(text.begin(), text.end());
  return text;
}

Recognizer::State JsonRecognizer::Next(State state, uint8_t byte) {
  const uint64_t key = static_cast<uint64_t>(state) << 8 | byte;
  if (const auto known = next_.find(key); known != next_.end()) return known->second;
  const State next = NextNew(state, byte);
  next_.emplace(key, next);
  return next;
}

Recognizer::State JsonRecognizer::NextNew(State state, uint8_t byte) {
  Position position = at(state);
  const bool blank = byte == ' ' || byte == '\n' || byte == '\t';
  const bool keeps = position.frame >= 0 && frame(position.frame).writes;
  if (blank && position.place != Place::kString && position.place != Place::kName &&
      position.place != Place::kScalar) {
    if (keeps) position.text = Append(position.text, byte);
    return Blank(position, byte);
  }
  switch (position.place) {
    case Place::kValue:
      return BeginValue(position, position.goal, byte);
    case Place::kString:
    case Place::kScalar:
      return ContinueScalar(position, byte);
    case Place::kName:
      return ContinueName(position, byte);
    case Place::kNamed:
      if (byte != ':') return kDead;
      if (keeps) position.text = Append(position.text, byte);
      position.place = Place::kValue;
      return StateOf(position);
    case Place::kEnd:
      return kDead;
    case Place::kOpened:
    case Place::kComma:
    case Place::kAfter:
      break;
  }
  const bool closes = byte == (frame(position.frame).object ? '}' : ']');
  if (closes) {
    const bool may = position.place == Place::kAfter ||
                     (position.place == Place::kOpened && position.blanks == 0);
    if (!may || !shapes_.CanClose(frame(position.frame).shape)) return kDead;
    if (keeps) position.text = Append(position.text, byte);
    return CloseFrame(position);
  }
  if (position.place == Place::kAfter) {
    if (byte != ',' || position.blanks != 0 || !MayContinue(position.frame)) return kDead;
    if (keeps) position.text = Append(position.text, byte);
    position.place = Place::kComma;
    return StateOf(position);
  }
  if (!frame(position.frame).object) return BeginItem(position, byte);
  if (byte != '"') return kDead;
  if (keeps) position.text = Append(position.text, byte);
  return BeginName(position);
}

// The state after a blank. Something must still be able to follow it.
Recognizer::State JsonRecognizer::Blank(Position position, uint8_t byte) {
  const bool outside = position.frame < 0 || position.place == Place::kNamed;
  if (options_.compact || outside) return kDead;
  const Frame& inside = frame(position.frame);
  const bool after_colon = position.place == Place::kValue;
  if (position.place == Place::kAfter && !shapes_.CanClose(inside.shape)) return kDead;
  if (position.place == Place::kOpened && !MayContinue(position.frame)) return kDead;
  if (position.blanks == 0 && byte == ' ') {
    position.blanks = 1;
  } else if (position.blanks == 0 && byte == '\n' && !after_colon) {
    position.blanks = 2;
  } else if (position.blanks >= 2 && byte != '\n' &&
             position.blanks < 2 + kBlanksPerLevel * inside.depth) {
    ++position.blanks;
  } else {
    return kDead;
  }
  return StateOf(position);
}

bool JsonRecognizer::MayContinue(int32_t number) {
  const Shape shape = frame(number).shape;
  if (!frame(number).object) return shapes_.NextItem(shape) != JsonShapes::kNone;
  return dfa_.StateOf(shapes_.NextNames(shape)) != RegexDfa::kDead;
}

// ---- Scalars

const JsonRecognizer::Scalars& JsonRecognizer::ScalarsOf(int32_t number) {
  const auto [found, is_new] = scalars_.try_emplace(number);
  if (!is_new) return found->second;
  const ValueGoal goal = shapes_.goal(number);
  const ScalarTexts::Numbers numbers = texts_.NumbersFor(goal.must, goal.outs);
  Scalars scalars = {.checked = numbers.checked,
                     .must = dfa_.StateOf(texts_.Texts(goal.must, numbers))};
  for (const Formula out : goal.outs) {
    scalars.outs.push_back(dfa_.StateOf(texts_.Texts(out, numbers)));
  }
  return scalars_[number] = std::move(scalars);
}

Recognizer::State JsonRecognizer::BeginValue(Position position, int32_t goal, uint8_t byte) {
  const int32_t begin = position.text;
  if (byte == '{' || byte == '[') {
    if (position.frame >= 0 && frame(position.frame).writes) {
      position.text = Append(position.text, byte);
    }
    return BeginInside(position, goal, byte);
  }
  const Scalars& scalars = ScalarsOf(goal);
  if (scalars.must == RegexDfa::kDead) return kDead;
  position = {.place = byte == '"' ? Place::kString : Place::kScalar,
              .frame = position.frame,
              .goal = goal,
              .dfa = scalars.must,
              .outs = outs_.Of(scalars.outs),
              .text = position.text,
              .begin = begin};
  return ContinueScalar(position, byte);
}

Recognizer::State JsonRecognizer::BeginInside(Position position, int32_t goal, uint8_t byte) {
  Frame inner = {.object = byte == '{', .outer = position.frame, .depth = 1};
  if (position.frame >= 0) {
    inner.depth = frame(position.frame).depth + 1;
    inner.writes = frame(position.frame).writes;
  }
  if (inner.depth > kMaxDepth) return kDead;
  inner.shape = shapes_.Open(byte == '{' ? JsonKind::kObject : JsonKind::kArray, goal);
  if (inner.shape == JsonShapes::kNone) return kDead;
  inner.writes |= shapes_.NeedsText(inner.shape);
  return StateOf({.place = Place::kOpened, .frame = frames_.Of(inner), .text = position.text});
}

Recognizer::State JsonRecognizer::ContinueScalar(Position position, uint8_t byte) {
  const RegexDfa::State next = dfa_.Next(position.dfa, byte);
  if (next == RegexDfa::kDead) {
    // A number ends when another token begins.
    if (!dfa_.Accepts(position.dfa)) return kDead;
    const State ended = EndScalar(position);
    return ended == kDead ? kDead : Next(ended, byte);
  }
  position.dfa = next;
  std::vector<int32_t> outs = outs_[position.outs];
  for (int32_t& out : outs) {
    if (out != RegexDfa::kDead) out = dfa_.Next(out, byte);
  }
  position.outs = outs_.Of(std::move(outs));
  const bool checked = position.place == Place::kScalar && ScalarsOf(position.goal).checked;
  const bool keeps = position.frame >= 0 && frame(position.frame).writes;
  if (checked || keeps) position.text = Append(position.text, byte);
  // If only zeros may follow, the value is known already, so it is checked now.
  const bool is_last = checked && dfa_.NextBytes(next) == ByteSet::Of('0') &&
                       (form_ == TextForm::kJson || dfa_.Accepts(next));
  if (is_last && !EndOfScalar(position).first) return kDead;
  return dfa_.IsEnd(next) ? EndScalar(position) : StateOf(position);
}

// Whether the scalar may end here, and its outcome.
std::pair<bool, Outcome> JsonRecognizer::EndOfScalar(const Position& position) {
  if (!dfa_.Accepts(position.dfa)) return {false, {}};
  Outcome outcome;
  for (const int32_t out : outs_[position.outs]) outcome.push_back(dfa_.Accepts(out));
  if (position.place == Place::kString || !ScalarsOf(position.goal).checked) return {true, outcome};
  const std::string text = TextFrom(position.begin, position.text);
  if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) return {true, outcome};
  const ValueGoal& goal = shapes_.goal(position.goal);
  const auto must = texts_.NumberIs(goal.must, text);
  bool is = must.value_or(false);
  for (size_t i = 0; i < goal.outs.size(); ++i) {
    const auto out = texts_.NumberIs(goal.outs[i], text);
    is = is && out.has_value();
    outcome[i] = out.value_or(false);
  }
  return {is, outcome};
}

Recognizer::State JsonRecognizer::EndScalar(const Position& position) {
  const auto [may_end, outcome] = EndOfScalar(position);
  return may_end ? EndValue(position, position.frame, outcome) : kDead;
}

// ---- Arrays and objects

Recognizer::State JsonRecognizer::EndValue(const Position& position, int32_t number,
                                           const Outcome& outcome) {
  if (number < 0) return StateOf({.place = Place::kEnd});
  Frame after = frame(number);
  std::string text;
  if (frame(number).object) {
    text = names_[after.name];
  } else if (shapes_.NeedsText(after.shape)) {
    text = TextFrom(after.begin, position.text);
  }
  after.shape = shapes_.After(after.shape, after.child, outcome, text);
  if (after.shape == JsonShapes::kNone) return kDead;
  after.child = JsonShapes::kNone;
  after.name = -1;
  after.begin = 0;
  return StateOf({.place = Place::kAfter,
                  .frame = frames_.Of(after),
                  .text = after.writes ? position.text : 0});
}

Recognizer::State JsonRecognizer::CloseFrame(const Position& position) {
  const Frame& closed = frame(position.frame);
  return EndValue(position, closed.outer, shapes_.Close(closed.shape));
}

Recognizer::State JsonRecognizer::BeginItem(Position position, uint8_t byte) {
  Frame inside = frame(position.frame);
  inside.child = shapes_.NextItem(inside.shape);
  if (inside.child == JsonShapes::kNone) return kDead;
  inside.begin = position.text;
  position.frame = frames_.Of(inside);
  return BeginValue(position, shapes_.child(inside.child).goal, byte);
}

Recognizer::State JsonRecognizer::BeginName(Position position) {
  const RegexDfa::State names = dfa_.StateOf(shapes_.NextNames(frame(position.frame).shape));
  if (names == RegexDfa::kDead) return kDead;
  return StateOf({.place = Place::kName,
                  .frame = position.frame,
                  .dfa = names,
                  .text = position.text,
                  .begin = position.text});
}

Recognizer::State JsonRecognizer::ContinueName(Position position, uint8_t byte) {
  position.dfa = dfa_.Next(position.dfa, byte);
  if (position.dfa == RegexDfa::kDead) return kDead;
  if (!dfa_.IsEnd(position.dfa)) {
    position.text = Append(position.text, byte);
    return StateOf(position);
  }
  Frame inside = frame(position.frame);
  const std::string name = NameOf(TextFrom(position.begin, position.text));
  inside.child = shapes_.NextProperty(inside.shape, name);
  if (inside.child == JsonShapes::kNone) return kDead;
  inside.name = names_.Of(name);
  return StateOf({.place = Place::kNamed,
                  .frame = frames_.Of(inside),
                  .goal = shapes_.child(inside.child).goal,
                  .text = inside.writes ? Append(position.text, byte) : 0});
}

// ---- Queries about states

bool JsonRecognizer::Accepts(State state) {
  const Position& position = at(state);
  if (position.place == Place::kEnd) return true;
  return position.place == Place::kScalar && position.frame < 0 && EndOfScalar(position).first;
}

ByteSet JsonRecognizer::NextBytes(State state) {
  const auto known = next_bytes_.find(state);
  if (known != next_bytes_.end()) return known->second;
  ByteSet bytes;
  const Position position = at(state);
  if (position.place == Place::kString || position.place == Place::kName) {
    bytes = dfa_.NextBytes(position.dfa);
    if (bytes.Has('"') && Next(state, '"') == kDead) bytes = bytes & ~ByteSet::Of('"');
  } else {
    // No other bytes occur outside of strings.
    for (const char byte : std::string_view("\t\n \"+,-.0123456789:E[]aeflnrstu{}")) {
      if (Next(state, static_cast<uint8_t>(byte)) != kDead) bytes.Add(static_cast<uint8_t>(byte));
    }
  }
  next_bytes_.emplace(state, bytes);
  return bytes;
}

Recognizer::Part JsonRecognizer::PartOf(State state) {
  const Position& position = at(state);
  if (position.place == Place::kString) {
    return {.dfa = &dfa_, .state = position.dfa, .ends = this, .ends_state = state};
  }
  if (position.place != Place::kName) return {};
  // If every other name may come, every continuation is a prefix of one; but not within a character
  // or an escape.
  const bool takes_plain = shapes_.TakesOtherNames(frame(position.frame).shape) &&
                           dfa_.Next(position.dfa, ' ') != RegexDfa::kDead;
  return {.dfa = &dfa_,
          .state = position.dfa,
          .takes_plain = takes_plain,
          .ends = this,
          .ends_state = state};
}

// The ends of a string value are alike if only the validity of the string matters. The ends of
// names are alike if any text may follow: then no schema names them. The same holds for items that
// are compared with earlier items. Names and items that occurred already are the exceptions.
bool JsonRecognizer::EndsAlike(State state, RegexDfa::State inside,
                               std::vector<std::string>& others) {
  const Position& position = at(state);
  const Shape shape = position.frame < 0 ? JsonShapes::kNone : frame(position.frame).shape;
  const bool writes = position.frame >= 0 && frame(position.frame).writes;
  const bool is_string = position.place == Place::kString;
  if (is_string) {
    const std::vector<int32_t>& outs = outs_[position.outs];
    if (!std::all_of(outs.begin(), outs.end(), [](int32_t out) { return out == kDead; })) {
      return false;
    }
    if (!writes) return true;
    const Frame& array = frame(position.frame);
    const bool is_item = !array.object && (array.outer < 0 || !frame(array.outer).writes);
    if (!is_item || inside != any_text_ || !shapes_.ItemsAreAlike(shape)) return false;
  } else if (writes || inside != any_text_ || !shapes_.OtherNamesAreAlike(shape)) {
    return false;
  }
  const std::vector<std::string>& seen =
      is_string ? shapes_.SeenItems(shape) : shapes_.SeenNames(shape);
  if (seen.empty()) return true;
  if (form_ == TextForm::kJsonAny) return false;  // every text can be written in many ways
  const std::string begun =
      TextFrom(is_string ? frame(position.frame).begin : position.begin, position.text);
  for (const std::string& text : seen) {
    if (text.substr(0, begun.size()) != begun || (is_string && text.size() == begun.size())) {
      continue;
    }
    others.push_back(text.substr(begun.size()) + (is_string ? "" : "\""));
  }
  return true;
}

std::optional<uint64_t> JsonRecognizer::EndClass(State state, std::string_view text) {
  const Position& position = at(state);
  if (position.frame >= 0 && frame(position.frame).writes) return std::nullopt;
  if (position.place == Place::kName) {
    std::string name = TextFrom(position.begin, position.text);
    name += text.substr(0, text.size() - 1);
    return shapes_.ClassOfName(frame(position.frame).shape, NameOf(std::move(name)));
  }
  const std::vector<int32_t>& outs = outs_[position.outs];
  if (outs.size() > 64) return std::nullopt;
  uint64_t accepted = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    RegexDfa::State out = outs[i];
    for (size_t at = 0; at < text.size() && out != RegexDfa::kDead; ++at) {
      out = dfa_.Next(out, static_cast<uint8_t>(text[at]));
    }
    if (dfa_.Accepts(out)) accepted |= uint64_t{1} << i;
  }
  return accepted;
}

absl::StatusOr<std::unique_ptr<Recognizer>> CompileJsonSchema(std::string_view schema,
                                                              const JsonOptions& options,
                                                              const ConstraintLimits& limits,
                                                              Budget& budget) {
  auto recognizer = std::make_unique<JsonRecognizer>(options, limits);
  TLM_RETURN_IF_ERROR(recognizer->Read(schema, budget));
  return recognizer;
}

}  // namespace tlm
