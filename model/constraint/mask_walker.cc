#include "model/constraint/mask_walker.h"

#include <algorithm>

namespace tlm {
namespace {

constexpr int kStepsBetweenLooks = 1024;
// Sets of states above this are not followed.
constexpr size_t kMaxReachStates = 64;

// How bytes from a lead byte to the end of a character follow each other in well-formed UTF-8 (The
// Unicode Standard, table 3-7). Numbers of states: bytes that remain, or one of the special ones.
enum Utf8State : uint8_t {
  kCharacterEnd,
  kOneLeft,
  kTwoLeft,
  kThreeLeft,
  kAfterE0,
  kAfterEd,
  kAfterF0,
  kAfterF4
};
struct Utf8Range {
  uint8_t first, last;
  Utf8State next;
};
constexpr Utf8Range kLeads[] = {{0xC2, 0xDF, kOneLeft},   {0xE0, 0xE0, kAfterE0},
                                {0xE1, 0xEC, kTwoLeft},   {0xED, 0xED, kAfterEd},
                                {0xEE, 0xEF, kTwoLeft},   {0xF0, 0xF0, kAfterF0},
                                {0xF1, 0xF3, kThreeLeft}, {0xF4, 0xF4, kAfterF4}};
constexpr Utf8Range kFollows[] = {{0, 0, kCharacterEnd},  {0x80, 0xBF, kCharacterEnd},
                                  {0x80, 0xBF, kOneLeft}, {0x80, 0xBF, kTwoLeft},
                                  {0xA0, 0xBF, kOneLeft}, {0x80, 0x9F, kOneLeft},
                                  {0x90, 0xBF, kTwoLeft}, {0x80, 0x8F, kTwoLeft}};

constexpr Utf8Range kLower[] = {{'a', 'z', kCharacterEnd}};
constexpr Utf8Range kUpper[] = {{'A', 'Z', kCharacterEnd}};
constexpr Utf8Range kDigits[] = {{'0', '9', kCharacterEnd}, {'_', '_', kCharacterEnd}};
constexpr Utf8Range kSigns[] = {{' ', '!', kCharacterEnd}, {'#', '/', kCharacterEnd},
                                {':', '@', kCharacterEnd}, {'[', '[', kCharacterEnd},
                                {']', '^', kCharacterEnd}, {'`', '`', kCharacterEnd},
                                {'{', '~', kCharacterEnd}};
// What each TokenTrie::Alphabet adds to the one before it, as first bytes of characters.
constexpr std::span<const Utf8Range> kAdded[] = {kLower, kUpper, kDigits, kSigns, kLeads};

// One step of the product of an automaton with that of an alphabet's characters.
class Product {
 public:
  Product(const Recognizer::Part& part, size_t alphabet) : part_(part), alphabet_(alphabet) {}

  // The states one character behind `from`. Sets `all` to false if some character leads to none.
  std::vector<RegexDfa::State> Step(const std::vector<RegexDfa::State>& from, bool& all) {
    open_.clear();
    ends_.clear();
    for (const RegexDfa::State state : from) {
      for (size_t i = 0; i <= alphabet_; ++i) {
        for (const Utf8Range& range : kAdded[i]) Follow(state, range, all);
      }
    }
    for (size_t i = 0; i < open_.size(); ++i) {  // grows
      const auto [state, inside] = open_[i];
      Follow(state, kFollows[inside], all);
    }
    return std::move(ends_);
  }

 private:
  void Follow(RegexDfa::State state, const Utf8Range& range, bool& all) {
    RegexDfa::State last = RegexDfa::kDead;
    for (int byte = range.first; byte <= range.last; ++byte) {
      const RegexDfa::State next = part_.dfa->Next(state, static_cast<uint8_t>(byte));
      if (next == RegexDfa::kDead || (!part_.is_rest && part_.dfa->Accepts(next))) {
        all = false;
        continue;
      }
      if (next == last) continue;
      last = next;
      if (range.next == kCharacterEnd) {
        if (std::find(ends_.begin(), ends_.end(), next) == ends_.end()) ends_.push_back(next);
      } else if (const std::pair inside(next, range.next);
                 std::find(open_.begin(), open_.end(), inside) == open_.end()) {
        open_.push_back(inside);
      }
    }
  }

  const Recognizer::Part part_;
  const size_t alphabet_;
  std::vector<std::pair<RegexDfa::State, Utf8State>> open_;
  std::vector<RegexDfa::State> ends_;
};

void OrInto(std::span<const uint64_t> from, std::span<uint64_t> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
}

}  // namespace

MaskWalker::MaskWalker(const TokenTrie& tokens, Recognizer& recognizer, size_t max_state_bytes,
                       size_t max_bytes)
    : tokens_(tokens),
      recognizer_(recognizer),
      max_state_bytes_(max_state_bytes),
      max_parts_(std::max<size_t>(1, max_bytes / (tokens.words() * sizeof(uint64_t)))),
      states_(TokenTrie::kMaxTextBytes + 1),
      next_bytes_(TokenTrie::kMaxTextBytes + 1) {}

bool MaskWalker::Mark(Recognizer::State state, std::span<uint64_t> words) {
  exhausted_ = Exhausted();
  const Recognizer::Part part = recognizer_.PartOf(state);
  if (part.dfa == nullptr) {
    MarkRoots(state, words);
  } else {
    const PartMask& mask = PartMaskOf(part);
    OrInto(mask.words, words);
    MarkEnds(state, mask.ends, words);
  }
  return !exhausted_ && !Exhausted();
}

// Now and then looks at the limits; false once one is met.
bool MaskWalker::Step() {
  if (++steps_ % kStepsBetweenLooks == 0) exhausted_ |= Exhausted();
  return !exhausted_;
}

void MaskWalker::MarkNode(uint32_t node, std::span<uint64_t> words) const {
  const uint32_t end = tokens_.nodes()[node + 1].tokens;
  for (uint32_t i = tokens_.nodes()[node].tokens; i < end; ++i)
    SetTokenBit(tokens_.order()[i], words);
}

void MaskWalker::MarkRoots(Recognizer::State state, std::span<uint64_t> words) {
  const ByteSet bytes = recognizer_.NextBytes(state);
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    if (!bytes.Has(byte)) continue;
    const Recognizer::State next = recognizer_.Next(state, byte);
    if (next == Recognizer::kDead) continue;
    states_[1] = next;
    for (size_t alphabet = 0; alphabet < TokenTrie::kAlphabets; ++alphabet) {
      const uint32_t node = tokens_.part(alphabet).child[byte];
      if (node == TokenTrie::kNoNode) continue;
      MarkNode(node, words);
      MarkBelow(node, words);
    }
  }
}

// What is below a node whose state is known.
void MaskWalker::MarkBelow(uint32_t node, std::span<uint64_t> words) {
  const TokenTrie::Node* const nodes = tokens_.nodes().data();
  const uint32_t end = nodes[node].end;
  if (end == node + 1) return;
  next_bytes_[nodes[node].depth] = recognizer_.NextBytes(states_[nodes[node].depth]);
  for (uint32_t i = node + 1; i < end && Step();) {
    const TokenTrie::Node& at = nodes[i];
    if (!next_bytes_[at.depth - 1u].Has(at.byte)) {
      i = at.end;
      continue;
    }
    const Recognizer::State next = recognizer_.Next(states_[at.depth - 1u], at.byte);
    if (next == Recognizer::kDead) {
      i = at.end;
      continue;
    }
    MarkNode(i, words);
    if (at.end > i + 1) {
      states_[at.depth] = next;
      next_bytes_[at.depth] = recognizer_.NextBytes(next);
    }
    ++i;
  }
}

void MaskWalker::MarkEnds(Recognizer::State state, std::span<const uint32_t> ends,
                          std::span<uint64_t> words) {
  std::string_view previous;
  for (const uint32_t end : ends) {
    const TokenTrie::Node& node = tokens_.nodes()[end];
    const std::string_view path = tokens_.Text(tokens_.order()[node.tokens]).substr(0, node.depth);
    states_[0] = state;
    size_t depth = 0;
    while (depth < previous.size() && depth < path.size() && previous[depth] == path[depth]) {
      ++depth;
    }
    for (; depth < path.size(); ++depth) {
      const Recognizer::State from = states_[depth];
      states_[depth + 1] = from == Recognizer::kDead
                               ? from
                               : recognizer_.Next(from, static_cast<uint8_t>(path[depth]));
    }
    previous = path;
    if (!Step()) return;
    if (states_[depth] == Recognizer::kDead) continue;
    MarkNode(end, words);
    MarkBelow(end, words);
  }
}

const MaskWalker::PartMask& MaskWalker::PartMaskOf(const Recognizer::Part& part) {
  const std::pair key(part.dfa, part.state);
  const auto found = parts_.find(key);
  if (found != parts_.end()) return found->second;
  if (parts_.size() >= max_parts_ || end_bytes_ > max_parts_ * tokens_.words()) {
    parts_.clear();
    end_bytes_ = 0;
  }
  PartMask& mask = parts_[key];
  mask.words.resize(tokens_.words());
  MarkPart(part, mask);
  end_bytes_ += mask.ends.size() * sizeof(uint32_t);
  return mask;
}

// Alphabets from the largest on: what is known of one holds for those within it.
void MaskWalker::MarkPart(const Recognizer::Part& part, PartMask& mask) {
  WalkPart(part, TokenTrie::kBytes, mask);
  for (size_t alphabet = TokenTrie::kBytes; alphabet-- > 0;) {
    const Reach reach = ReachOf(part, alphabet);
    if (reach.all > 0) OrInto(tokens_.UpTo(alphabet, reach.all), mask.words);
    if (reach.none <= reach.all + 1 || reach.all == kNoLimit) return;
    const TokenTrie::Part& tokens = tokens_.part(alphabet);
    if (reach.all >= tokens.longest) continue;
    if (reach.all < TokenTrie::kMaxLength || !MarkLong(part, tokens, mask)) {
      WalkPart(part, alphabet, mask);
    }
  }
}

MaskWalker::Reach MaskWalker::ReachOf(const Recognizer::Part& part, size_t alphabet) {
  Product product(part, alphabet);
  std::vector<RegexDfa::State> seen = {part.state}, from = {part.state};
  Reach reach{0, kNoLimit};
  bool all = true;
  for (size_t length = 1; length <= TokenTrie::kMaxLength + 1; ++length) {
    from = product.Step(from, all);
    if (all) reach.all = length;
    if (from.empty()) {
      reach.none = length;
      return reach;
    }
    const size_t before = seen.size();
    for (const RegexDfa::State state : from) {
      if (std::find(seen.begin(), seen.end(), state) == seen.end()) seen.push_back(state);
    }
    if (seen.size() == before) {
      if (all) reach.all = kNoLimit;
      return reach;
    }
    // Beyond the first step with dead ends only the lack of any way on is of use, soon.
    if (from.size() > kMaxReachStates || (!all && length > reach.all + 1)) return reach;
  }
  reach.all = std::min(reach.all, TokenTrie::kMaxLength);
  return reach;
}

// The long tokens alone; false if one ends the part, which a walk must find.
bool MaskWalker::MarkLong(const Recognizer::Part& part, const TokenTrie::Part& tokens,
                          PartMask& mask) {
  for (const int32_t id : tokens.long_tokens) {
    RegexDfa::State state = part.state;
    for (const char byte : tokens_.Text(id)) {
      state = part.dfa->Next(state, static_cast<uint8_t>(byte));
      if (state == RegexDfa::kDead) break;
      if (!part.is_rest && part.dfa->Accepts(state)) return false;
    }
    if (state != RegexDfa::kDead) SetTokenBit(id, mask.words);
  }
  return true;
}

void MaskWalker::WalkPart(const Recognizer::Part& part, size_t alphabet, PartMask& mask) {
  const TokenTrie::Node* const nodes = tokens_.nodes().data();
  const TokenTrie::Part& tokens = tokens_.part(alphabet);
  states_[0] = part.state;
  for (uint32_t i = tokens.begin; i < tokens.end && Step();) {
    const TokenTrie::Node& at = nodes[i];
    const RegexDfa::State next = part.dfa->Next(states_[at.depth - 1u], at.byte);
    if (next == RegexDfa::kDead) {
      i = at.end;
      continue;
    }
    if (!part.is_rest && part.dfa->Accepts(next)) {
      mask.ends.push_back(i);
      i = at.end;
      continue;
    }
    MarkNode(i, mask.words);
    states_[at.depth] = next;
    ++i;
  }
}

size_t MaskWalker::bytes() const {
  return sizeof *this + parts_.size() * tokens_.words() * sizeof(uint64_t) + end_bytes_ +
         states_.size() * (sizeof(int32_t) + sizeof(ByteSet));
}

}  // namespace tlm
