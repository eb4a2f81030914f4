#include "model/constraint/bytes/pattern.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/bytes/char_classes.h"
#include "model/constraint/bytes/pattern_syntax.h"

namespace tlm {
namespace {

// Translates a tree to an expression, from the end of the pattern to its beginning. At each place
// it keeps the language of the rest of the text, so an assertion about the rest is an intersection.
// Assertions that look back depend only on the character before, so the rest is kept for each kind
// of character.
class PatternLowering {
 public:
  PatternLowering(RegexSet& regexes, std::string_view pattern, TextForm form)
      : regexes_(regexes),
        pattern_(pattern),
        form_(form),
        any_char_(Of(CharSet::All())),
        any_text_(AnyTextRegex(regexes, form)) {
    kinds_[kAfterWord] = WordCharacters();
    kinds_[kAfterBreak] = LineTerminators();
    kinds_[kAfterOther] = ~(WordCharacters() | LineTerminators());
  }

  absl::StatusOr<ByteRegex> Lower(const PatternNode& root, bool whole) {
    Rests rests = All(whole ? RegexSet::kEmpty : any_text_);
    TLM_RETURN_IF_ERROR(Prepend(root, &rests));
    ByteRegex regex = rests[kAtBegin];
    if (!whole) regex = SearchFor(rests);
    if (regexes_.full()) {
      return ResourceExhausted(
          "the pattern {} needs too many expressions, or has more than {} optional parts in a row",
          Quoted(pattern_), RegexSet::kMaxDepth);
    }
    return regex;
  }

 private:
  // The kind of character before a place in the text.
  enum Before { kAtBegin, kAfterWord, kAfterBreak, kAfterOther, kBefores };
  using Rests = std::array<ByteRegex, kBefores>;

  // Limit of copies of repetitions that contain assertions.
  static constexpr int kMaxCopies = 4'096;
  // The language of an unbounded repetition must stop changing within this many rounds.
  static constexpr int kMaxRounds = 8;

  static Rests All(ByteRegex regex) {
    Rests rests;
    rests.fill(regex);
    return rests;
  }
  ByteRegex Of(const CharSet& set) const {
    const auto [known, is_new] = by_set_.try_emplace(set.ranges(), RegexSet::kNone);
    if (is_new) known->second = CharRegex(regexes_, set, form_);
    return known->second;
  }
  ByteRegex Or(ByteRegex a, ByteRegex b) const {
    return a == any_text_ || b == any_text_ ? any_text_ : regexes_.Or(a, b);
  }
  ByteRegex And(ByteRegex a, ByteRegex b) const {
    if (a == any_text_) return b;
    return b == any_text_ ? a : regexes_.And(a, b);
  }
  ByteRegex Concat(ByteRegex first, ByteRegex rest) const {
    return rest == any_text_ && regexes_.HasEmpty(first) ? rest : regexes_.Concat(first, rest);
  }

  // The expression of a node without assertions.
  ByteRegex Plain(const PatternNode& node) const {
    std::vector<ByteRegex> parts;
    if (node.kind == PatternNode::kChars) return Of(node.chars);
    for (const PatternNode& part : node.parts) parts.push_back(Plain(part));
    switch (node.kind) {
      case PatternNode::kRepeat:
        return regexes_.Repeat(parts.front(), node.min, node.max);
      case PatternNode::kAlternatives:
        return regexes_.Or(parts);
      default:
        return regexes_.Concat(parts);
    }
  }

  // Sets `rests` to the rests with the node before them.
  absl::Status Prepend(const PatternNode& node, Rests* rests) {
    if (node.plain && node.kind != PatternNode::kSequence) {
      PrependPlain(Plain(node), rests, &node);
      return absl::OkStatus();
    }
    switch (node.kind) {
      case PatternNode::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) {
          TLM_RETURN_IF_ERROR(Prepend(node.parts[i], rests));
        }
        return absl::OkStatus();
      case PatternNode::kAlternatives:
        return PrependAlternatives(node, rests);
      case PatternNode::kRepeat:
        return PrependRepeat(node, rests);
      case PatternNode::kAhead:
      case PatternNode::kNotAhead: {
        // kAny instead of any_text_: once a prefix has matched, the expression simplifies to kAny,
        // and its complement to kNone.
        Rests ahead = All(RegexSet::kAny);
        TLM_RETURN_IF_ERROR(Prepend(node.parts.front(), &ahead));
        for (size_t i = 0; i < kBefores; ++i) {
          if (node.kind == PatternNode::kNotAhead) ahead[i] = NotBegin(ahead[i]);
          // RegexSet::And instead of And, because `ahead` holds more than texts.
          (*rests)[i] = regexes_.And(ahead[i], (*rests)[i]);
        }
        return absl::OkStatus();
      }
      default:
        PrependAssertion(node, rests);
        return absl::OkStatus();
    }
  }

  // The texts that are not in the language.
  ByteRegex NotBegin(ByteRegex regex) const {
    if (regex == any_text_) return RegexSet::kNone;
    if (regex == RegexSet::kNone) return any_text_;
    return regexes_.And(regexes_.Not(regex), any_text_);
  }

  void PrependAssertion(const PatternNode& node, Rests* rests) const {
    const ByteRegex word = regexes_.Concat(Of(WordCharacters()), any_text_);
    for (size_t i = 0; i < kBefores; ++i) {
      ByteRegex& rest = (*rests)[i];
      switch (node.kind) {
        case PatternNode::kBegin:
          if (i != kAtBegin && (i != kAfterBreak || !node.multiline)) rest = RegexSet::kNone;
          break;
        case PatternNode::kEnd:
          if (node.multiline) {
            const ByteRegex line = regexes_.Concat(Of(LineTerminators()), any_text_);
            rest = And(regexes_.Or(RegexSet::kEmpty, line), rest);
          } else {
            rest = regexes_.HasEmpty(rest) ? RegexSet::kEmpty : RegexSet::kNone;
          }
          break;
        default: {
          const bool is_edge = node.kind == PatternNode::kWordEdge;
          rest = And((i == kAfterWord) == is_edge ? NotBegin(word) : word, rest);
        }
      }
    }
  }

  // The texts of an expression that end in a character of the kind. `node` is the expression's
  // node, or null. For a repeated set of characters the last character follows from the node.
  ByteRegex EndingIn(Before kind, ByteRegex regex, const PatternNode* node) const {
    const bool is_repeat = node != nullptr && node->kind == PatternNode::kRepeat;
    const PatternNode* inside = is_repeat ? &node->parts.front() : node;
    if (inside == nullptr || inside->kind != PatternNode::kChars) {
      return regexes_.And(regex, regexes_.Concat(any_text_, Of(kinds_[kind])));
    }
    const ByteRegex last = Of(inside->chars & kinds_[kind]);
    if (!is_repeat) return last;
    if (node->max == 0) return RegexSet::kNone;
    const int32_t max = node->max == RegexSet::kUnbounded ? node->max : node->max - 1;
    const int32_t min = std::max(node->min - 1, 0);
    return regexes_.Concat(regexes_.Repeat(Of(inside->chars), min, max), last);
  }

  void PrependPlain(ByteRegex regex, Rests* rests, const PatternNode* node = nullptr) const {
    const Rests after = *rests;
    const bool may_be_empty = regexes_.HasEmpty(regex);
    if (after == All(after[kAtBegin])) {
      *rests = All(Concat(regex, after[kAtBegin]));
      return;
    }
    // Something must come before a place where the kinds of character matter.
    ByteRegex some = RegexSet::kNone;
    if (after[kAfterWord] == after[kAfterBreak] && after[kAfterWord] == after[kAfterOther]) {
      const ByteRegex not_empty =
          may_be_empty ? And(regex, regexes_.Concat(any_char_, any_text_)) : regex;
      some = Concat(not_empty, after[kAfterWord]);
    } else {
      for (const Before before : {kAfterWord, kAfterBreak, kAfterOther}) {
        if (after[before] == RegexSet::kNone) continue;
        some = Or(some, regexes_.Concat(EndingIn(before, regex, node), after[before]));
      }
    }
    for (size_t i = 0; i < kBefores; ++i) {
      (*rests)[i] = may_be_empty ? Or(some, after[i]) : some;
    }
  }

  absl::Status PrependAlternatives(const PatternNode& node, Rests* rests) {
    const Rests after = *rests;
    std::vector<ByteRegex> plain;
    Rests all = All(RegexSet::kNone);
    const auto add = [&](const Rests& more) {
      for (size_t i = 0; i < kBefores; ++i) all[i] = Or(all[i], more[i]);
    };
    for (const PatternNode& part : node.parts) {
      if (part.plain) {
        plain.push_back(Plain(part));
        continue;
      }
      Rests one = after;
      TLM_RETURN_IF_ERROR(Prepend(part, &one));
      add(one);
    }
    if (!plain.empty()) {
      Rests one = after;
      PrependPlain(regexes_.Or(plain), &one);
      add(one);
    }
    *rests = all;
    return absl::OkStatus();
  }

  // Repeats a node that contains assertions.
  absl::Status PrependRepeat(const PatternNode& node, Rests* rests) {
    const PatternNode& inside = node.parts.front();
    const Rests after = *rests;
    if (node.max == RegexSet::kUnbounded) {
      TLM_ASSIGN_OR_RETURN(const bool done, PrependTempered(node, rests));
      if (done) return absl::OkStatus();
      TLM_RETURN_IF_ERROR(PrependUnbounded(node, rests));
    } else {
      for (int32_t i = node.min; i < node.max; ++i) {
        const Rests before = *rests;
        TLM_RETURN_IF_ERROR(PrependCopy(inside, rests));
        for (size_t j = 0; j < kBefores; ++j) (*rests)[j] = Or((*rests)[j], after[j]);
        if (*rests == before) break;  // further copies change nothing
      }
    }
    for (int32_t i = 0; i < node.min; ++i) {
      const Rests before = *rests;
      TLM_RETURN_IF_ERROR(PrependCopy(inside, rests));
      if (*rests == before) break;
    }
    return absl::OkStatus();
  }

  absl::Status PrependCopy(const PatternNode& inside, Rests* rests) {
    if (++copies_ > kMaxCopies || regexes_.full()) {
      return ResourceExhausted(
          "the pattern {} repeats assertions too often at byte {}: the limit is {} copies",
          Quoted(pattern_), inside.offset, kMaxCopies);
    }
    return Prepend(inside, rests);
  }

  // The node as alternatives, including those inside of its sequences. If there would be too many,
  // the node itself.
  static std::vector<PatternNode> Branches(const PatternNode& node) {
    constexpr size_t kMaxBranches = 32;
    std::vector<PatternNode> branches;
    if (node.kind == PatternNode::kAlternatives) {
      for (const PatternNode& part : node.parts) {
        for (PatternNode& branch : Branches(part)) branches.push_back(std::move(branch));
      }
    } else if (node.kind == PatternNode::kSequence && NotPlain(node) == 1) {
      const auto is_plain = [](const PatternNode& part) { return part.plain; };
      const auto other = std::find_if_not(node.parts.begin(), node.parts.end(), is_plain);
      for (PatternNode& branch : Branches(*other)) {
        PatternNode sequence = node;
        sequence.plain = branch.plain;
        sequence.parts[static_cast<size_t>(other - node.parts.begin())] = std::move(branch);
        branches.push_back(std::move(sequence));
      }
    }
    if (branches.empty() || branches.size() > kMaxBranches) return {node};
    return branches;
  }
  static std::ptrdiff_t NotPlain(const PatternNode& node) {
    return std::count_if(node.parts.begin(), node.parts.end(),
                         [](const PatternNode& part) { return !part.plain; });
  }

  // x* before `rest` is the least X with X = x X | rest. Substitutes until nothing changes.
  // Alternatives A without assertions are repeated at once, because X = A X | Y has the solution A*
  // Y.
  absl::Status PrependUnbounded(const PatternNode& node, Rests* rests) {
    const std::vector<PatternNode> branches = Branches(node.parts.front());
    std::vector<ByteRegex> plain;
    std::vector<const PatternNode*> others;
    for (const PatternNode& branch : branches) {
      if (branch.plain) {
        plain.push_back(Plain(branch));
      } else {
        others.push_back(&branch);
      }
    }
    const ByteRegex loop = regexes_.Repeat(regexes_.Or(plain), 0, RegexSet::kUnbounded);
    const Rests after = *rests;
    PrependPlain(loop, rests);
    for (int round = 0; round < kMaxRounds; ++round) {
      const Rests before = *rests;
      *rests = after;
      for (const PatternNode* other : others) {
        Rests one = before;
        TLM_RETURN_IF_ERROR(PrependCopy(*other, &one));
        for (size_t i = 0; i < kBefores; ++i) (*rests)[i] = Or((*rests)[i], one[i]);
      }
      PrependPlain(loop, rests);
      if (*rests == before) return absl::OkStatus();
    }
    return InvalidArgument(
        "the pattern {} has an assertion in an unbounded repetition, which is not supported there, "
        "at byte {}",
        Quoted(pattern_), node.offset);
  }

  // ((?!x)C)* before the end of the text: the texts over C in which x matches at no place before
  // the end.
  absl::StatusOr<bool> PrependTempered(const PatternNode& node, Rests* rests) {
    const PatternNode& inside = node.parts.front();
    if (*rests != All(RegexSet::kEmpty) || inside.kind != PatternNode::kSequence ||
        inside.parts.size() != 2 || inside.parts[0].kind != PatternNode::kNotAhead ||
        inside.parts[1].kind != PatternNode::kChars) {
      return false;
    }
    Rests ahead = All(any_text_);
    TLM_RETURN_IF_ERROR(Prepend(inside.parts[0].parts.front(), &ahead));
    const ByteRegex some = regexes_.Concat(any_char_, any_text_);
    for (ByteRegex& rest : ahead) rest = And(rest, some);
    const ByteRegex loop = regexes_.Repeat(Of(inside.parts[1].chars), node.min, node.max);
    for (size_t i = 0; i < kBefores; ++i) {
      Rests from_here = ahead;
      from_here[kAtBegin] = ahead[i];
      (*rests)[i] = And(NotBegin(SearchFor(from_here)), loop);
    }
    return true;
  }

  // The texts with a rest in `rests` at their beginning or after any of their characters.
  ByteRegex SearchFor(const Rests& rests) const {
    if (rests == All(rests[kAtBegin])) return Concat(any_text_, rests[kAtBegin]);
    Rests found = rests;
    found[kAtBegin] = RegexSet::kNone;
    ByteRegex later = RegexSet::kNone;
    if (found[kAfterWord] == found[kAfterBreak] && found[kAfterWord] == found[kAfterOther]) {
      later = regexes_.Concat(regexes_.Concat(any_char_, any_text_), found[kAfterWord]);
    } else {
      for (const Before before : {kAfterWord, kAfterBreak, kAfterOther}) {
        later =
            Or(later, regexes_.Concat(std::array{any_text_, Of(kinds_[before]), found[before]}));
      }
    }
    return Or(rests[kAtBegin], later);
  }

  RegexSet& regexes_;
  const std::string_view pattern_;
  const TextForm form_;
  mutable std::map<std::vector<CharSet::Range>, ByteRegex> by_set_;
  const ByteRegex any_char_;
  const ByteRegex any_text_;
  std::array<CharSet, kBefores> kinds_;  // the characters of each kind; empty for kAtBegin
  int copies_ = 0;
};

}  // namespace

absl::StatusOr<ByteRegex> ParsePattern(RegexSet& regexes, std::string_view pattern,
                                       PatternOptions options) {
  TLM_ASSIGN_OR_RETURN(const PatternNode root, ReadPattern(pattern));
  return PatternLowering(regexes, pattern, options.form).Lower(root, options.whole);
}

}  // namespace tlm
