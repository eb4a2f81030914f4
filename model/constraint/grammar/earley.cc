#include "model/constraint/grammar/earley.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/base/errors.h"

namespace tlm {

EarleyRecognizer::EarleyRecognizer(std::shared_ptr<const GrammarNetwork> network,
                                   const ConstraintLimits& limits)
    : network_(std::move(network)),
      max_states_(limits.max_states),
      max_bytes_(limits.max_bytes),
      regexes_(network_->regexes()),
      dfa_(regexes_, RegexSet::kNone, limits.max_states),
      frames_(1) {
  // An empty terminal before the root rule.
  made_.push_back({.node = network_->rule(network_->root()).start, .frame = kOuterFrame});
  start_ = Make();
}

Recognizer::Usage EarleyRecognizer::usage() const {
  const size_t bytes = regexes_.bytes() + dfa_.bytes() + states_.capacity() * sizeof(StateData) +
                       readings_.capacity() * sizeof(Reading) + next_.capacity() * sizeof(State) +
                       frames_.capacity() * sizeof(Frame) + places_.capacity() * sizeof(Place) +
                       kBytesPerHashEntry * (states_by_hash_.size() + frames_by_hash_.size());
  return {.bytes = bytes, .full = full_ || dfa_.full()};
}

EarleyRecognizer::State EarleyRecognizer::Next(State state, uint8_t byte) {
  const int32_t row = states_[static_cast<size_t>(state)].next;
  if (row < 0) return Step(state, byte);
  const State known = next_[static_cast<size_t>(row + network_->ClassOf(byte))];
  return known == kUnknown ? Step(state, byte) : known;
}

EarleyRecognizer::State EarleyRecognizer::Step(State state, uint8_t byte) {
  if (states_[static_cast<size_t>(state)].next < 0) {
    states_[static_cast<size_t>(state)].next = static_cast<int32_t>(next_.size());
    next_.resize(next_.size() + network_->classes().size(), kUnknown);
  }
  made_.clear();
  Spend(ReadingsOf(state).size());
  for (const Reading& reading : ReadingsOf(state)) {
    const ByteRegex rest = regexes_.Derivative(reading.rest, byte);
    if (rest != RegexSet::kNone) made_.push_back({reading.node, reading.frame, rest});
  }
  const State next = Make();
  const int32_t row = states_[static_cast<size_t>(state)].next;
  next_[static_cast<size_t>(row + network_->ClassOf(byte))] = next;
  return next;
}

ByteSet EarleyRecognizer::NextBytes(State state) {
  std::array<bool, 256> alive{};  // by class of bytes
  for (const uint8_t byte : network_->classes()) {
    if (full_) break;
    Spend(ReadingsOf(state).size());
    for (const Reading& reading : ReadingsOf(state)) {
      if (regexes_.Derivative(reading.rest, byte) == RegexSet::kNone) continue;
      alive[static_cast<size_t>(network_->ClassOf(byte))] = true;
      break;
    }
  }
  ByteSet bytes;
  for (int byte = 0; byte < 256; ++byte) {
    const auto of = static_cast<uint8_t>(byte);
    if (alive[static_cast<size_t>(network_->ClassOf(of))]) bytes.Add(of);
  }
  return bytes;
}

Recognizer::Part EarleyRecognizer::PartOf(State state) {
  StateData& of = states_[static_cast<size_t>(state)];
  if (of.part == kUnknown) {
    const std::span<const Reading> readings = ReadingsOf(state);
    of.is_rest = std::ranges::all_of(readings, [this](const Reading& reading) {
      return reading.frame == kOuterFrame && network_->IsEnd(reading.node);
    });
    const ByteRegex any = of.is_rest ? RestOf(of.accepts, readings) : NextTerminalsOf(readings);
    of.part = of.is_rest || !regexes_.HasEmpty(any) ? dfa_.StateOf(any) : RegexDfa::kDead;
  }
  if (of.part == RegexDfa::kDead) return {};
  return {.dfa = &dfa_, .state = of.part, .is_rest = of.is_rest};
}

ByteRegex EarleyRecognizer::RestOf(bool accepts, std::span<const Reading> readings) {
  std::vector<ByteRegex> rests;
  if (accepts) rests.push_back(RegexSet::kEmpty);
  for (const Reading& reading : readings) rests.push_back(reading.rest);
  return regexes_.Or(rests);
}

ByteRegex EarleyRecognizer::NextTerminalsOf(std::span<const Reading> readings) {
  if (readings.size() > kMaxPartReadings) return RegexSet::kEmpty;
  std::vector<ByteRegex> terminals;
  for (const Reading& reading : readings) {
    ByteRegex rest = reading.rest;
    if (regexes_.HasEmpty(rest)) {
      made_.clear();
      if (!Close({&reading, 1}) || made_.empty()) return RegexSet::kEmpty;
      std::vector<ByteRegex> following;
      for (const Reading& next : made_) following.push_back(next.rest);
      rest = regexes_.Concat(rest, regexes_.Or(following));
    }
    terminals.push_back(rest);
  }
  return regexes_.Or(terminals);
}

EarleyRecognizer::State EarleyRecognizer::Make() {
  if (!Close(std::vector<Reading>(made_))) {
    full_ = true;
    return kDead;
  }
  if (!rows_.empty()) MakeFrames();
  Simplify(made_);
  return Intern();
}

bool EarleyRecognizer::Close(std::span<const Reading> readings) {
  made_accepts_ = false;
  visited_.clear();
  returned_.clear();
  rows_.clear();
  row_of_.clear();
  for (const Reading& reading : readings) {
    if (regexes_.HasEmpty(reading.rest)) Visit({reading.node, reading.frame});
  }
  while (!work_.empty()) {
    if (visited_.size() > kMaxReadings || made_.size() > kMaxReadings || full()) {
      work_.clear();
      return false;
    }
    const Place place = work_.back();
    work_.pop_back();
    Expand(place);
  }
  return true;
}

void EarleyRecognizer::Visit(Place place) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(place.node)) << 32 |
                       static_cast<uint32_t>(place.frame);
  if (visited_.insert(key).second) work_.push_back(place);
}

void EarleyRecognizer::Expand(Place place) {
  if (network_->IsFinal(place.node)) Return(place.frame);
  Spend(2 + network_->EdgesOf(place.node).size());
  for (const GrammarNetwork::Edge& edge : network_->EdgesOf(place.node)) {
    const Place after = {edge.to, place.frame};
    switch (edge.kind) {
      case GrammarNetwork::Edge::Kind::kEmpty:
        Visit(after);
        break;
      case GrammarNetwork::Edge::Kind::kTerminal:
        made_.push_back({after.node, after.frame, edge.regex});
        if (regexes_.HasEmpty(edge.regex)) Visit(after);
        break;
      case GrammarNetwork::Edge::Kind::kCall:
        Call(edge.rule, after);
        break;
    }
  }
}

void EarleyRecognizer::Call(int32_t rule, Place after) {
  if (network_->rule(rule).nullable) Visit(after);
  const int32_t start = network_->rule(rule).start;
  // After the call its caller returns at once, so the call keeps the frame of its caller.
  if (network_->IsEnd(after.node)) return Visit({start, after.frame});
  const auto [row, is_new] = row_of_.emplace(rule, static_cast<int32_t>(rows_.size()));
  if (is_new) {
    rows_.push_back({.rule = rule});
    Visit({start, ~row->second});
  }
  rows_[static_cast<size_t>(row->second)].places.push_back(after);
}

void EarleyRecognizer::Return(int32_t frame) {
  // A call that began in this state has read nothing; Call() has already continued after it.
  if (frame < 0 || !returned_.insert(frame).second) return;
  if (frame == kOuterFrame) made_accepts_ = true;
  const Frame of = frames_[static_cast<size_t>(frame)];
  Spend(static_cast<size_t>(of.end - of.begin));
  for (int32_t i = of.begin; i < of.end; ++i) Visit(places_[static_cast<size_t>(i)]);
}

// Rows that refer to no other row become frames one by one; the other rows become a group.
void EarleyRecognizer::MakeFrames() {
  const auto is_open = [&](const Place& place) { return place.frame < 0; };
  const auto resolve = [&](Row& row) {
    for (Place& place : row.places) {
      if (place.frame >= 0) continue;
      const int32_t frame = rows_[static_cast<size_t>(~place.frame)].frame;
      if (frame != kUnknown) place.frame = frame;
    }
    return std::ranges::none_of(row.places, is_open);
  };
  std::vector<size_t> open;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (resolve(rows_[i])) {
      MakeFrameGroup(std::span(&i, 1));
    } else {
      open.push_back(i);
    }
  }
  for (const size_t i : open) resolve(rows_[i]);
  std::ranges::sort(open, {}, [&](size_t i) { return rows_[i].rule; });
  if (!open.empty()) MakeFrameGroup(open);
  for (Reading& reading : made_) {
    if (reading.frame < 0) reading.frame = rows_[static_cast<size_t>(~reading.frame)].frame;
  }
}

void EarleyRecognizer::MakeFrameGroup(std::span<const size_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) rows_[rows[i]].frame = ~static_cast<int32_t>(i);
  // Frames of the group are numbered by their index in it, so that equal groups have equal content.
  size_t hash = rows.size();
  for (const size_t i : rows) {
    Row& row = rows_[i];
    for (Place& place : row.places) {
      if (place.frame < 0) place.frame = rows_[static_cast<size_t>(~place.frame)].frame;
    }
    std::ranges::sort(row.places);
    row.places.erase(std::unique(row.places.begin(), row.places.end()), row.places.end());
    hash = MixHash(hash, row.places.size());
    for (const Place& place : row.places) hash = MixHash(MixHash(hash, place.node), place.frame);
  }
  int32_t first = FindFrameGroup(hash, rows);
  if (first == kUnknown) {
    first = static_cast<int32_t>(frames_.size());
    frames_by_hash_.emplace(hash, FrameGroup{first, static_cast<int32_t>(rows.size())});
    for (const size_t i : rows) {
      const auto begin = static_cast<int32_t>(places_.size());
      for (const Place& place : rows_[i].places) {
        places_.push_back({place.node, place.frame < 0 ? first + ~place.frame : place.frame});
      }
      frames_.push_back({begin, static_cast<int32_t>(places_.size())});
    }
  }
  for (const size_t i : rows) rows_[i].frame = first + ~rows_[i].frame;
}

int32_t EarleyRecognizer::FindFrameGroup(size_t hash, std::span<const size_t> rows) const {
  const auto same = [&](const FrameGroup& group) {
    if (static_cast<size_t>(group.size) != rows.size()) return false;
    const auto same_place = [&](const Place& a, const Place& b) {
      return a.node == b.node && (a.frame < 0 ? group.first + ~a.frame : a.frame) == b.frame;
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      const Frame& frame = frames_[static_cast<size_t>(group.first) + i];
      const std::span known(places_.data() + frame.begin, places_.data() + frame.end);
      if (!std::ranges::equal(rows_[rows[i]].places, known, same_place)) return false;
    }
    return true;
  };
  const auto [begin, end] = frames_by_hash_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    if (same(known->second)) return known->second.first;
  }
  return kUnknown;
}

void EarleyRecognizer::Simplify(std::vector<Reading>& readings) {
  std::erase_if(readings, [](const Reading& r) { return r.rest == RegexSet::kEmpty; });
  std::ranges::sort(readings);
  size_t kept = 0;
  std::vector<ByteRegex> rests;
  for (size_t i = 0; i < readings.size();) {
    Reading reading = readings[i];
    rests.clear();
    for (; i < readings.size() && readings[i].node == reading.node &&
           readings[i].frame == reading.frame;
         ++i) {
      rests.push_back(readings[i].rest);
    }
    reading.rest = regexes_.Or(rests);
    readings[kept++] = reading;
  }
  readings.resize(kept);
}

EarleyRecognizer::State EarleyRecognizer::Intern() {
  if (made_.empty() && !made_accepts_) return kDead;
  size_t hash = made_accepts_ ? 1 : 0;
  for (const Reading& reading : made_) {
    hash = MixHash(hash, reading.node);
    hash = MixHash(hash, reading.frame);
    hash = MixHash(hash, reading.rest);
  }
  const auto [begin, end] = states_by_hash_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const StateData& of = states_[static_cast<size_t>(known->second)];
    if (of.accepts == made_accepts_ && std::ranges::equal(ReadingsOf(known->second), made_)) {
      return known->second;
    }
  }
  if (IsOverLimit() || regexes_.full()) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(states_.size());
  const auto first = static_cast<int32_t>(readings_.size());
  readings_.insert(readings_.end(), made_.begin(), made_.end());
  states_.push_back(
      {.begin = first, .end = static_cast<int32_t>(readings_.size()), .accepts = made_accepts_});
  states_by_hash_.emplace(hash, state);
  return state;
}

absl::StatusOr<RecognizerFactory> CompileGrammar(std::string_view gbnf,
                                                 const ConstraintLimits& limits, Budget& budget) {
  TLM_ASSIGN_OR_RETURN(auto network, GrammarNetwork::Compile(gbnf, limits, budget));
  if (EarleyRecognizer(network, limits).full()) {
    return ResourceExhausted(
        "the beginnings of its texts take more than {} states, {} bytes, or {} readings "
        "at a time",
        limits.max_states, limits.max_bytes, EarleyRecognizer::kMaxReadings);
  }
  return [network = std::move(network), limits] {
    return std::make_unique<EarleyRecognizer>(network, limits);
  };
}

}  // namespace tlm
