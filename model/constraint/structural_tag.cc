#include "model/constraint/structural_tag.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/regex_recognizer.h"
#include "model/constraint/text_regex.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxRegions = 1024;
constexpr size_t kMaxTriggers = 128;
constexpr size_t kMaxTriggerBytes = 256;

absl::Status CheckText(std::string_view text, std::string_view what, size_t index) {
  if (IsValidUtf8(text)) return absl::OkStatus();
  return InvalidArgument("{}[{}] is not UTF-8", what, index);
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
    default:
      return "content";
  }
}

absl::Status CheckTriggers(const std::vector<std::string>& triggers) {
  if (triggers.empty()) return InvalidArgument("no trigger is given");
  if (triggers.size() > kMaxTriggers) {
    return ResourceExhausted("{} triggers, the limit is {}", triggers.size(), kMaxTriggers);
  }
  for (size_t i = 0; i < triggers.size(); ++i) {
    if (triggers[i].empty()) return InvalidArgument("triggers[{}] is empty", i);
    if (triggers[i].size() > kMaxTriggerBytes) {
      return ResourceExhausted("triggers[{}] has {} bytes, the limit is {}", i, triggers[i].size(),
                               kMaxTriggerBytes);
    }
    TLM_RETURN_IF_ERROR(CheckText(triggers[i], "triggers", i));
  }
  for (size_t i = 0; i < triggers.size(); ++i) {
    for (size_t j = 0; j < triggers.size(); ++j) {
      if (i == j || FindText(triggers[i], triggers[j]) == std::string_view::npos) continue;
      return InvalidArgument("triggers[{}] contains triggers[{}], {}", i, j, Quoted(triggers[j]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StructuralTag>> StructuralTag::Compile(
    const ConstraintSpec& spec, const ConstraintLimits& limits,
    const CompileContent& compile_content) {
  TLM_RETURN_IF_ERROR(CheckTriggers(spec.triggers));
  if (spec.regions.empty()) return InvalidArgument("no region is given");
  if (spec.regions.size() > kMaxRegions) {
    return ResourceExhausted("{} regions, the limit is {}", spec.regions.size(), kMaxRegions);
  }
  const std::shared_ptr<StructuralTag> tag(
      new StructuralTag(RegexSet(limits.max_bytes / RegexSet::kBytesPerExpression)));
  tag->regions_of_trigger_.resize(spec.triggers.size());
  for (size_t i = 0; i < spec.regions.size(); ++i) {
    const ConstraintSpec::Region& region = spec.regions[i];
    TLM_RETURN_IF_ERROR(CheckText(region.begin, "regions", i));
    TLM_RETURN_IF_ERROR(CheckText(region.end, "regions", i));
    // None contains another: at most one fits.
    const auto trigger = std::ranges::find_if(
        spec.triggers, [&](const std::string& text) { return region.begin.starts_with(text); });
    if (trigger == spec.triggers.end()) {
      return InvalidArgument("regions[{}].begin begins with no trigger: {}", i,
                             Quoted(region.begin));
    }
    auto content = compile_content(region);
    if (!content.ok()) {
      return WithContext(content.status(), fmt::format("regions[{}].{}", i, FieldOf(region.kind)));
    }
    tag->regions_.push_back({region.begin, region.end, *std::move(content)});
    tag->regions_of_trigger_[static_cast<size_t>(trigger - spec.triggers.begin())].push_back(
        static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < spec.triggers.size(); ++i) {
    if (!tag->regions_of_trigger_[i].empty()) continue;
    return InvalidArgument("no region begins with triggers[{}], {}", i, Quoted(spec.triggers[i]));
  }
  tag->AddTriggers(spec.triggers);
  if (tag->regexes_.full()) {
    return ResourceExhausted("the triggers take more than {} bytes", limits.max_bytes);
  }
  return tag;
}

void StructuralTag::AddTriggers(const std::vector<std::string>& triggers) {
  prefixes_.push_back({});
  prefix_ids_[""] = 0;
  for (size_t i = 0; i < triggers.size(); ++i) {
    int32_t id = 0;
    for (size_t length = 1; length <= triggers[i].size(); ++length) {
      const std::string text = triggers[i].substr(0, length);
      const auto [found, is_new] =
          prefix_ids_.emplace(text, static_cast<int32_t>(prefixes_.size()));
      if (is_new) prefixes_.push_back({.text = text});
      id = found->second;
    }
    prefixes_[static_cast<size_t>(id)].trigger = static_cast<int32_t>(i);
  }
  up_to_trigger_ = regexes_.Concat(AnyTextRegex(regexes_, TextForm::kUtf8),
                                   LiteralsRegex(regexes_, {triggers.begin(), triggers.end()}));
}

int32_t StructuralTag::NextPrefix(int32_t prefix, uint8_t byte) const {
  const std::string text = prefixes_[static_cast<size_t>(prefix)].text + static_cast<char>(byte);
  std::string_view suffix = text;
  auto found = prefix_ids_.find(suffix);
  while (found == prefix_ids_.end()) {
    suffix.remove_prefix(1);
    found = prefix_ids_.find(suffix);
  }
  return found->second;
}

StructuralTagRecognizer::StructuralTagRecognizer(std::shared_ptr<const StructuralTag> tag,
                                                 const ConstraintLimits& limits)
    : tag_(std::move(tag)),
      max_states_(limits.max_states),
      max_bytes_(limits.max_bytes),
      regexes_(tag_->regexes_),
      dfa_(regexes_, tag_->up_to_trigger_, limits.max_states),
      contents_(tag_->regions_.size()) {
  EnterFreeText();
  start_ = Intern();
}

size_t StructuralTagRecognizer::bytes() const {
  size_t bytes = regexes_.bytes() + dfa_.bytes() + states_.capacity() * sizeof(StateData) +
                 readings_.capacity() * sizeof(Reading) + kBytesPerHashEntry * by_hash_.size() +
                 next_.capacity() * sizeof(next_[0]);
  for (const auto& content : contents_) {
    if (content != nullptr) bytes += content->bytes();
  }
  return bytes;
}

void StructuralTagRecognizer::AllowWork(int64_t steps) {
  regexes_.meter().Allow(steps);
  for (const auto& content : contents_) {
    if (content != nullptr) content->AllowWork(steps);
  }
}

bool StructuralTagRecognizer::full() const {
  return full_ || dfa_.full() ||
         std::ranges::any_of(contents_, [](const auto& c) { return c != nullptr && c->full(); });
}

Recognizer& StructuralTagRecognizer::ContentOf(int32_t region) {
  auto& content = contents_[static_cast<size_t>(region)];
  if (content == nullptr) content = tag_->regions_[static_cast<size_t>(region)].content();
  return *content;
}

Recognizer::State StructuralTagRecognizer::Next(State state, uint8_t byte) {
  const int32_t row = states_[static_cast<size_t>(state)].next;
  if (row < 0) return Step(state, byte);
  const State known = next_[static_cast<size_t>(row)][byte];
  return known == kUnknown ? Step(state, byte) : known;
}

Recognizer::State StructuralTagRecognizer::Step(State state, uint8_t byte) {
  if (states_[static_cast<size_t>(state)].next < 0) {
    states_[static_cast<size_t>(state)].next = static_cast<int32_t>(next_.size());
    next_.emplace_back().fill(kUnknown);
  }
  made_.clear();
  for (const Reading& reading : ReadingsOf(state)) Read(reading, byte);
  const State next = Intern();
  next_[static_cast<size_t>(states_[static_cast<size_t>(state)].next)][byte] = next;
  return next;
}

void StructuralTagRecognizer::Read(const Reading& reading, uint8_t byte) {
  const auto offset = static_cast<size_t>(reading.state);
  switch (reading.phase) {
    case Phase::kFree: {
      const RegexDfa::State next = dfa_.Next(reading.state, byte);
      if (next == RegexDfa::kDead) return;
      const int32_t prefix = tag_->NextPrefix(reading.prefix, byte);
      const int32_t trigger = tag_->prefixes_[static_cast<size_t>(prefix)].trigger;
      if (trigger < 0) return made_.push_back({.state = next, .prefix = prefix});
      const size_t length = tag_->prefixes_[static_cast<size_t>(prefix)].text.size();
      for (const int32_t region : tag_->regions_of_trigger_[static_cast<size_t>(trigger)]) {
        EnterBegin(region, length);
      }
      return;
    }
    case Phase::kBegin:
      if (static_cast<uint8_t>(RegionOf(reading).begin[offset]) == byte) {
        EnterBegin(reading.region, offset + 1);
      }
      return;
    case Phase::kContent:
      return EnterContent(reading.region, ContentOf(reading.region).Next(reading.state, byte));
    case Phase::kEnd:
      if (static_cast<uint8_t>(RegionOf(reading).end[offset]) == byte) {
        EnterEnd(reading.region, offset + 1);
      }
      return;
  }
}

void StructuralTagRecognizer::EnterBegin(int32_t region, size_t offset) {
  if (offset == tag_->regions_[static_cast<size_t>(region)].begin.size()) {
    return EnterContent(region, ContentOf(region).start());
  }
  made_.push_back(
      {.phase = Phase::kBegin, .region = region, .state = static_cast<int32_t>(offset)});
}

void StructuralTagRecognizer::EnterContent(int32_t region, State state) {
  if (state == kDead) return;
  made_.push_back({.phase = Phase::kContent, .region = region, .state = state});
  if (ContentOf(region).Accepts(state)) EnterEnd(region, 0);
}

void StructuralTagRecognizer::EnterEnd(int32_t region, size_t offset) {
  if (offset == tag_->regions_[static_cast<size_t>(region)].end.size()) return EnterFreeText();
  made_.push_back({.phase = Phase::kEnd, .region = region, .state = static_cast<int32_t>(offset)});
}

ByteSet StructuralTagRecognizer::NextBytes(State state) {
  ByteSet bytes;
  for (const Reading& reading : ReadingsOf(state)) {
    const auto offset = static_cast<size_t>(reading.state);
    switch (reading.phase) {
      case Phase::kFree:
        bytes = bytes | dfa_.NextBytes(reading.state);
        break;
      case Phase::kBegin:
        bytes.Add(static_cast<uint8_t>(RegionOf(reading).begin[offset]));
        break;
      case Phase::kContent:
        bytes = bytes | ContentOf(reading.region).NextBytes(reading.state);
        break;
      case Phase::kEnd:
        bytes.Add(static_cast<uint8_t>(RegionOf(reading).end[offset]));
        break;
    }
  }
  return bytes;
}

Recognizer::Part StructuralTagRecognizer::PartOf(State state) {
  const std::span<const Reading> readings = ReadingsOf(state);
  if (readings.size() != 1) return {};
  const Reading& reading = readings[0];
  if (reading.phase == Phase::kFree) return {.dfa = &dfa_, .state = reading.state};
  if (reading.phase != Phase::kContent) return {};
  // Behind the content its end follows: it is the rest of no text.
  const Part part = ContentOf(reading.region).PartOf(reading.state);
  return {.dfa = part.dfa, .state = part.state};
}

Recognizer::State StructuralTagRecognizer::Intern() {
  if (made_.empty()) return kDead;
  std::ranges::sort(made_);
  made_.erase(std::unique(made_.begin(), made_.end()), made_.end());
  size_t hash = 0;
  bool accepts = false;
  for (const Reading& reading : made_) {
    for (const int32_t value :
         {static_cast<int32_t>(reading.phase), reading.region, reading.state, reading.prefix}) {
      hash = MixHash(hash, value);
    }
    // Between characters, where one of ASCII may follow.
    accepts |= reading.phase == Phase::kFree && dfa_.Next(reading.state, 'a') != RegexDfa::kDead;
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
  const auto first = static_cast<int32_t>(readings_.size());
  readings_.insert(readings_.end(), made_.begin(), made_.end());
  states_.push_back(
      {.begin = first, .end = static_cast<int32_t>(readings_.size()), .accepts = accepts});
  by_hash_.emplace(hash, state);
  return state;
}

}  // namespace tlm
