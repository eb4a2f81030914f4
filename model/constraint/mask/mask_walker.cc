#include "model/constraint/mask/mask_walker.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace tlm {
namespace {

constexpr int kStepsBetweenChecks = 1024;
// ReachOf stops at a set of more states than this.
constexpr size_t kMaxReachStates = 64;

// Well-formed UTF-8 from a character's lead byte to its end (The Unicode Standard, table 3-7). A
// state is the number of bytes that remain, or one of the lead bytes with a narrower second byte.
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

// The product of a part's automaton with the automaton of an alphabet's characters.
class Product {
 public:
  Product(const Recognizer::Part& part, size_t alphabet) : part_(part), alphabet_(alphabet) {}

  // Returns the states after one character from the states `from`. Sets `all` to false if some
  // character leads out of the part or to a dead state.
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
  // Whether some character ended the part.
  bool part_ended() const { return part_ended_; }

 private:
  void Follow(RegexDfa::State state, const Utf8Range& range, bool& all) {
    RegexDfa::State last = RegexDfa::kDead;
    for (int byte = range.first; byte <= range.last; ++byte) {
      const RegexDfa::State next = part_.dfa->Next(state, static_cast<uint8_t>(byte));
      const bool ends = next != RegexDfa::kDead && !part_.is_rest && part_.dfa->Accepts(next);
      part_ended_ |= ends;
      if (next == RegexDfa::kDead || ends) {
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
  bool part_ended_ = false;
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
      inside_(TokenTrie::kMaxTextBytes + 1) {}

bool MaskWalker::Mark(Recognizer::State state, std::span<uint64_t> words) {
  exhausted_ = Exhausted();
  const Recognizer::Part part = recognizer_.PartOf(state);
  if (part.dfa == nullptr) {
    MarkRoots(state, words);
  } else {
    const PartMask& mask = PartMaskOf(part);
    OrInto(mask.words, words);
    for (const Ends& ends : mask.ends) MarkEnds(state, part, ends, words);
  }
  return !exhausted_ && !Exhausted();
}

// Checks the limits every kStepsBetweenChecks calls. Returns false once one is met.
bool MaskWalker::Step() {
  if (++steps_ % kStepsBetweenChecks == 0) exhausted_ |= Exhausted();
  return !exhausted_;
}

// Marks the tokens that end at the node.
void MaskWalker::MarkNode(uint32_t node, std::span<uint64_t> words) const {
  const uint32_t end = tokens_.nodes()[node + 1].tokens;
  for (uint32_t i = tokens_.nodes()[node].tokens; i < end; ++i)
    SetTokenBit(tokens_.order()[i], words);
}

// Marks tokens from a state that is in no part.
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

// Marks the tokens below a node. states_ has the node's state.
void MaskWalker::MarkBelow(uint32_t node, std::span<uint64_t> words) {
  const TokenTrie::Node* const nodes = tokens_.nodes().data();
  const uint32_t end = nodes[node].end, depth = nodes[node].depth;
  if (end == node + 1) return;
  const Recognizer::Part part = recognizer_.PartOf(states_[depth]);
  if (part.dfa != nullptr) {
    const Recognizer::State state = states_[depth];
    std::vector<Ends> all_ends;
    inside_[depth] = part.state;
    WalkPart(part, node + 1, end, words, all_ends);
    for (const Ends& ends : all_ends) {
      for (const uint32_t at : ends.nodes) MarkEnd(state, depth, at, words);
    }
    return;
  }
  for (uint32_t i = node + 1; i < end && Step();) {
    const TokenTrie::Node& at = nodes[i];
    const Recognizer::State next = recognizer_.Next(states_[at.depth - 1u], at.byte);
    if (next == Recognizer::kDead) {
      i = at.end;
      continue;
    }
    MarkNode(i, words);
    states_[at.depth] = next;
    if (at.end > i + 1 && recognizer_.PartOf(next).dfa != nullptr) {
      MarkBelow(i, words);
      i = at.end;
    } else {
      ++i;
    }
  }
}

// The bytes from the root to the node.
std::string_view MaskWalker::PathOf(uint32_t node) const {
  const TokenTrie::Node& at = tokens_.nodes()[node];
  return tokens_.Text(tokens_.order()[at.tokens]).substr(0, at.depth);
}

// Marks the tokens at and below a node that ends a part. `state` is the state of the node's
// ancestor at `depth`.
void MaskWalker::MarkEnd(Recognizer::State state, uint32_t depth, uint32_t node,
                         std::span<uint64_t> words) {
  for (const char byte : PathOf(node).substr(depth)) {
    state = recognizer_.Next(state, static_cast<uint8_t>(byte));
    if (state == Recognizer::kDead) return;
  }
  states_[tokens_.nodes()[node].depth] = state;
  MarkNode(node, words);
  MarkBelow(node, words);
}

// Marks the tokens that leave the part at `ends`. Nodes whose ends are alike are decided together
// by what may follow, all others one by one.
void MaskWalker::MarkEnds(Recognizer::State state, const Recognizer::Part& part, const Ends& ends,
                          std::span<uint64_t> words) {
  std::vector<uint32_t> all(ends.nodes.size());
  std::iota(all.begin(), all.end(), 0);
  constexpr size_t kFew = 4;
  if (all.size() <= kFew || ends.tails.empty()) {
    for (size_t i = 0; i < all.size() && Step(); ++i) MarkEnd(state, 0, ends.nodes[i], words);
    return;
  }
  std::vector<std::string> others;
  if (part.ends != nullptr && part.ends->EndsAlike(part.ends_state, ends.inside, others)) {
    const auto example = std::find_if(all.begin(), all.end(), [&](uint32_t i) {
      return std::find(others.begin(), others.end(), PathOf(ends.nodes[i])) == others.end();
    });
    if (example != all.end()) MarkAlike(state, ends, all, *example, words);
    for (const std::string& other : others) Recheck(state, other, words);
    return;
  }
  std::unordered_map<uint64_t, std::vector<uint32_t>> classes;
  for (const uint32_t i : all) {
    if (!Step()) return;
    std::optional<uint64_t> known;
    if (part.ends != nullptr) known = part.ends->EndClass(part.ends_state, PathOf(ends.nodes[i]));
    if (known.has_value()) {
      classes[*known].push_back(i);
    } else {
      MarkEnd(state, 0, ends.nodes[i], words);
    }
  }
  for (const auto& [number, alike] : classes) MarkAlike(state, ends, alike, alike.front(), words);
}

// Marks the tokens at and below nodes whose ends are alike. `alike` and `example` are indices in
// `ends.nodes`; what may follow `example` may follow all of them.
void MaskWalker::MarkAlike(Recognizer::State state, const Ends& ends,
                           std::span<const uint32_t> alike, uint32_t example,
                           std::span<uint64_t> words) {
  if (alike.size() == 1) return MarkEnd(state, 0, ends.nodes[example], words);
  Recognizer::State after = state;
  for (const char byte : PathOf(ends.nodes[example])) {
    after = recognizer_.Next(after, static_cast<uint8_t>(byte));
    if (after == Recognizer::kDead) return;
  }
  const std::vector<TailVerdict>& verdicts = TailsOf(after);
  for (const uint32_t i : alike) {
    for (uint32_t at = ends.tails_begin[i]; at < ends.tails_begin[i + 1]; ++at) {
      const auto& [token, tail] = ends.tails[at];
      if (verdicts[tail] == kAllowed ||
          (verdicts[tail] == kUnknown && Keeps(state, tokens_.Text(token)))) {
        SetTokenBit(token, words);
      }
    }
  }
}

// Which tails may follow a state, by tail. Tails that end a further part are kUnknown.
const std::vector<MaskWalker::TailVerdict>& MaskWalker::TailsOf(Recognizer::State state) {
  if (state == tails_state_) return tails_;
  tails_state_ = state;
  const std::vector<TokenTrie::Node>& nodes = tokens_.tails();
  tails_.assign(nodes.size(), kRefused);
  tails_[0] = kAllowed;
  states_[0] = state;
  for (uint32_t i = 1; i < nodes.size() && Step();) {
    const TokenTrie::Node& at = nodes[i];
    const Recognizer::State from = states_[at.depth - 1u];
    const Recognizer::State next = recognizer_.Next(from, at.byte);
    if (next == Recognizer::kDead) {
      i = at.end;
      continue;
    }
    const Recognizer::Part part = recognizer_.PartOf(from);
    if (part.dfa != nullptr && part.dfa->Accepts(part.dfa->Next(part.state, at.byte))) {
      std::fill(tails_.begin() + i, tails_.begin() + at.end, kUnknown);
      i = at.end;
      continue;
    }
    tails_[i] = kAllowed;
    states_[at.depth] = next;
    ++i;
  }
  return tails_;
}

// Decides anew, one by one, the tokens that begin with `end`.
void MaskWalker::Recheck(Recognizer::State state, std::string_view end, std::span<uint64_t> words) {
  const TokenTrie::Part& part = tokens_.part(TokenTrie::kBytes);
  uint32_t node = part.child[static_cast<uint8_t>(end[0])];
  if (node == TokenTrie::kNoNode) return;
  const std::vector<TokenTrie::Node>& nodes = tokens_.nodes();
  for (size_t i = 1; i < end.size(); ++i) {
    const uint32_t last = nodes[node].end;
    uint32_t child = node + 1;
    while (child < last && nodes[child].byte != static_cast<uint8_t>(end[i])) {
      child = nodes[child].end;
    }
    if (child >= last) return;
    node = child;
  }
  for (uint32_t i = nodes[node].tokens; i < nodes[nodes[node].end].tokens; ++i) {
    const auto id = static_cast<size_t>(tokens_.order()[i]);
    words[id / 64] &= ~(uint64_t{1} << (id % 64));
    if (Keeps(state, tokens_.Text(tokens_.order()[i]))) SetTokenBit(tokens_.order()[i], words);
  }
}

// Whether the text leads from the state to a live one.
bool MaskWalker::Keeps(Recognizer::State state, std::string_view text) {
  for (const char byte : text) {
    if (state == Recognizer::kDead) return false;
    state = recognizer_.Next(state, static_cast<uint8_t>(byte));
  }
  return state != Recognizer::kDead;
}

// The mask of a part, from the cache or computed.
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
  for (Ends& ends : mask.ends) {
    const bool quoted = std::all_of(ends.nodes.begin(), ends.nodes.end(), [&](uint32_t node) {
      return tokens_.nodes()[node].byte == '"';
    });
    for (size_t i = 0; quoted && i < ends.nodes.size(); ++i) {
      ends.tails_begin.push_back(static_cast<uint32_t>(ends.tails.size()));
      tokens_.AppendTails(ends.nodes[i], ends.tails);
    }
    ends.tails_begin.push_back(static_cast<uint32_t>(ends.tails.size()));
    end_bytes_ += sizeof ends + 2 * ends.nodes.size() * sizeof(uint32_t) +
                  ends.tails.size() * sizeof(TokenTrie::Tail);
  }
  return mask;
}

// Computes the mask of a part. It goes from the largest alphabet to the smallest, because a fact
// about the texts of an alphabet holds for the alphabets within it.
void MaskWalker::MarkPart(const Recognizer::Part& part, PartMask& mask) {
  const auto walk = [&](size_t alphabet) {
    const TokenTrie::Part& tokens = tokens_.part(alphabet);
    inside_[0] = part.state;
    WalkPart(part, tokens.begin, tokens.end, mask.words, mask.ends);
  };
  walk(TokenTrie::kBytes);
  if (part.takes_plain) {
    OrInto(tokens_.UpTo(TokenTrie::kText, kNoLimit), mask.words);
    return;
  }
  for (size_t alphabet = TokenTrie::kBytes; alphabet-- > 0;) {
    const Reach reach = ReachOf(part, alphabet);
    if (reach.all_live_to > 0) OrInto(tokens_.UpTo(alphabet, reach.all_live_to), mask.words);
    if (reach.none_live_from <= reach.all_live_to + 1 || reach.all_live_to == kNoLimit) return;
    const TokenTrie::Part& tokens = tokens_.part(alphabet);
    if (reach.all_live_to >= tokens.longest) continue;
    if (reach.all_live_to < TokenTrie::kMaxLength || !MarkLong(part, tokens, mask)) {
      walk(alphabet);
    }
  }
}

// Follows all texts of the alphabet at once, character by character.
MaskWalker::Reach MaskWalker::ReachOf(const Recognizer::Part& part, size_t alphabet) {
  Product product(part, alphabet);
  std::vector<RegexDfa::State> seen = {part.state}, from = {part.state};
  Reach reach{0, kNoLimit};
  bool all = true;
  for (size_t length = 1; length <= TokenTrie::kMaxLength + 1; ++length) {
    from = product.Step(from, all);
    if (all) reach.all_live_to = length;
    if (from.empty()) {
      // If a text ended the part, it may continue after it.
      if (!product.part_ended()) reach.none_live_from = length;
      return reach;
    }
    const size_t before = seen.size();
    for (const RegexDfa::State state : from) {
      if (std::find(seen.begin(), seen.end(), state) == seen.end()) seen.push_back(state);
    }
    if (seen.size() == before) {
      if (all) reach.all_live_to = kNoLimit;
      return reach;
    }
    // After the first dead end only none_live_from can still be found; one more step is tried.
    if (from.size() > kMaxReachStates || (!all && length > reach.all_live_to + 1)) return reach;
  }
  reach.all_live_to = std::min(reach.all_live_to, TokenTrie::kMaxLength);
  return reach;
}

// Marks the part's long tokens one by one. Returns false if one ends the part: then a walk is
// needed.
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

// Marks the tokens at the nodes [begin, end) that stay within the part, and collects the nodes that
// end it. inside_ has the automaton's state at their parent.
void MaskWalker::WalkPart(const Recognizer::Part& part, uint32_t begin, uint32_t end,
                          std::span<uint64_t> words, std::vector<Ends>& ends) {
  const TokenTrie::Node* const nodes = tokens_.nodes().data();
  for (uint32_t i = begin; i < end && Step();) {
    const TokenTrie::Node& at = nodes[i];
    const RegexDfa::State from = inside_[at.depth - 1u];
    const RegexDfa::State next = part.dfa->Next(from, at.byte);
    if (next == RegexDfa::kDead) {
      i = at.end;
      continue;
    }
    if (!part.is_rest && part.dfa->Accepts(next)) {
      const auto known = std::find_if(ends.begin(), ends.end(),
                                      [&](const Ends& some) { return some.inside == from; });
      (known != ends.end() ? *known : ends.emplace_back(Ends{from, {}, {}, {}})).nodes.push_back(i);
      i = at.end;
      continue;
    }
    MarkNode(i, words);
    inside_[at.depth] = next;
    ++i;
  }
}

size_t MaskWalker::bytes() const {
  return sizeof *this + parts_.size() * tokens_.words() * sizeof(uint64_t) + end_bytes_ +
         2 * states_.size() * sizeof(int32_t) + tails_.size();
}

}  // namespace tlm
