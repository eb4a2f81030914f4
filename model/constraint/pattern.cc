#include "model/constraint/pattern.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/char_set.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

struct PatternNode {
  enum Kind {
    kChars,
    kSequence,
    kAlternatives,
    kRepeat,
    kBegin,
    kEnd,
    kWordEdge,
    kNoWordEdge,
    kAhead,
    kNotAhead,
  };
  Kind kind = kSequence;
  CharSet chars;             // of kChars
  int32_t min = 1, max = 1;  // of kRepeat
  bool multiline = false;    // of kBegin and kEnd
  bool plain = true;         // no assertion inside
  size_t offset = 0;         // in the pattern
  std::vector<PatternNode> parts;
};

const CharSet& Digits() {
  static const auto* const kSet = new CharSet({{'0', '9'}});
  return *kSet;
}
const CharSet& WordCharacters() {
  static const auto* const kSet = new CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return *kSet;
}
const CharSet& LineTerminators() {
  static const auto* const kSet = new CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return *kSet;
}
// WhiteSpace and LineTerminator of ECMA-262.
const CharSet& Spaces() {
  static const auto* const kSet = new CharSet({{0x9, 0xd},
                                               {0x20, 0x20},
                                               {0xa0, 0xa0},
                                               {0x1680, 0x1680},
                                               {0x2000, 0x200a},
                                               {0x2028, 0x2029},
                                               {0x202f, 0x202f},
                                               {0x205f, 0x205f},
                                               {0x3000, 0x3000},
                                               {0xfeff, 0xfeff}});
  return *kSet;
}

bool IsLetterOrDigit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Reads a pattern into a tree.
class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<PatternNode> Parse() {
    if (pattern_.size() > kMaxPatternBytes) {
      return ResourceExhausted("the pattern {} has {} bytes, the limit is {}", Quoted(pattern_),
                               pattern_.size(), kMaxPatternBytes);
    }
    if (const size_t bad = FindInvalidUtf8(pattern_); bad != pattern_.npos) {
      return Bad(bad, "is not UTF-8");
    }
    TLM_ASSIGN_OR_RETURN(PatternNode node, Alternatives(0));
    if (position_ < pattern_.size()) return Bad(position_, "has a ) that closes no group");
    return node;
  }

 private:
  // The flags i, s and m, from where they are set to the end of the group.
  struct Flags {
    bool ignore_case = false, dot_all = false, multiline = false;
  };
  // A class or one character, of an escape or of a part of a class.
  struct ClassPart {
    CharSet chars;
    std::optional<char32_t> single;
  };

  absl::Status Bad(size_t offset, std::string_view what) const {
    return InvalidArgument("the pattern {} {} at byte {}", Quoted(pattern_), what, offset);
  }
  absl::Status TooMuch(size_t offset, std::string_view what, int limit) const {
    return ResourceExhausted("the pattern {} has more than {} {} at byte {}", Quoted(pattern_),
                             limit, what, offset);
  }
  std::string_view Rest() const { return pattern_.substr(position_); }
  bool AtEnd() const { return position_ >= pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[position_]; }
  bool Take(std::string_view text) {
    if (!Rest().starts_with(text)) return false;
    position_ += text.size();
    return true;
  }

  static PatternNode Assertion(PatternNode::Kind kind) {
    PatternNode node;
    node.kind = kind;
    node.plain = false;
    return node;
  }
  PatternNode Chars(CharSet set) const {
    PatternNode node;
    node.kind = PatternNode::kChars;
    node.chars = flags_.ignore_case ? WithOtherCases(set) : std::move(set);
    return node;
  }
  static void Append(PatternNode part, PatternNode* node) {
    node->plain = node->plain && part.plain;
    node->parts.push_back(std::move(part));
  }

  absl::StatusOr<PatternNode> Alternatives(int depth) {
    if (depth > kMaxPatternDepth) return TooMuch(position_, "groups in one another", depth - 1);
    PatternNode all;
    all.kind = PatternNode::kAlternatives;
    do {
      PatternNode sequence;
      while (!AtEnd() && Peek() != '|' && Peek() != ')') {
        TLM_RETURN_IF_ERROR(Term(depth, &sequence));
      }
      Append(std::move(sequence), &all);
    } while (Take("|"));
    if (all.parts.size() > 1) return all;
    PatternNode only = std::move(all.parts.front());
    return only;
  }

  // An atom or assertion, with its quantifier.
  absl::Status Term(int depth, PatternNode* sequence) {
    const size_t offset = position_;
    TLM_ASSIGN_OR_RETURN(std::optional<PatternNode> atom, Atom(depth));
    if (!atom.has_value()) return absl::OkStatus();  // flags
    atom->offset = offset;
    TLM_ASSIGN_OR_RETURN(const auto counts, Quantifier());
    if (!counts.has_value()) {
      Append(*std::move(atom), sequence);
      return absl::OkStatus();
    }
    PatternNode repeat;
    repeat.kind = PatternNode::kRepeat;
    repeat.min = counts->first;
    repeat.max = counts->second;
    repeat.offset = offset;
    Append(*std::move(atom), &repeat);
    Append(std::move(repeat), sequence);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::pair<int32_t, int32_t>>> Quantifier() {
    using Counts = std::pair<int32_t, int32_t>;
    std::optional<Counts> counts;
    if (Take("*")) {
      counts = Counts(0, RegexSet::kUnbounded);
    } else if (Take("+")) {
      counts = Counts(1, RegexSet::kUnbounded);
    } else if (Take("?")) {
      counts = Counts(0, 1);
    } else if (Peek() == '{') {
      TLM_ASSIGN_OR_RETURN(counts, Braces());
    }
    if (!counts.has_value()) return counts;
    Take("?");  // lazy: the same texts
    if (Peek() == '+')
      return Bad(position_, "has a possessive quantifier, which is not supported,");
    if (Peek() == '*' || Peek() == '?') return Bad(position_, "has a quantifier of nothing");
    if (Peek() == '{') {
      const size_t offset = position_;
      TLM_ASSIGN_OR_RETURN(const auto more, Braces());
      if (more.has_value()) return Bad(offset, "has a quantifier of nothing");
    }
    return counts;
  }

  // {m}, {m,} or {m,n}; nothing, and nothing read, if it is something else.
  absl::StatusOr<std::optional<std::pair<int32_t, int32_t>>> Braces() {
    const size_t offset = position_;
    const auto none = [&] {
      position_ = offset;
      return std::nullopt;
    };
    Take("{");
    const std::optional<int64_t> min = Count();
    if (!min.has_value()) return none();
    std::optional<int64_t> max = min;
    bool unbounded = false;
    if (Take(",")) {
      max = Count();
      unbounded = !max.has_value();
    }
    if (!Take("}")) return none();
    if (*min > kMaxPatternCount || (!unbounded && *max > kMaxPatternCount)) {
      return TooMuch(offset, "repetitions", kMaxPatternCount);
    }
    if (!unbounded && *max < *min) return Bad(offset, "has a quantifier with its numbers swapped");
    return std::pair(static_cast<int32_t>(*min),
                     unbounded ? RegexSet::kUnbounded : static_cast<int32_t>(*max));
  }

  // Digits; a number above all limits for one that is.
  std::optional<int64_t> Count() {
    const size_t begin = position_;
    int64_t count = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++position_) {
      count = std::min<int64_t>(count * 10 + (Peek() - '0'), kMaxPatternCount + 1);
    }
    if (position_ == begin) return std::nullopt;
    return count;
  }

  // Nothing for a group that only sets flags.
  absl::StatusOr<std::optional<PatternNode>> Atom(int depth) {
    const size_t offset = position_;
    switch (Peek()) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '\\':
        return EscapedAtom();
      case '.':
        Take(".");
        return Chars(flags_.dot_all ? CharSet::All() : ~LineTerminators());
      case '^':
      case '$': {
        PatternNode node = Assertion(Take("^") ? PatternNode::kBegin : PatternNode::kEnd);
        if (node.kind == PatternNode::kEnd) Take("$");
        node.multiline = flags_.multiline;
        return node;
      }
      case '*':
      case '+':
      case '?':
        return Bad(offset, "has a quantifier of nothing");
      case '{': {
        TLM_ASSIGN_OR_RETURN(const auto counts, Braces());
        if (counts.has_value()) return Bad(offset, "has a quantifier of nothing");
        break;
      }
      default:
        break;
    }
    return Chars(CharSet::Of(NextCodePoint(pattern_, &position_)));
  }

  absl::StatusOr<std::optional<PatternNode>> Group(int depth) {
    const size_t offset = position_;
    const Flags outer = flags_;
    std::optional<PatternNode::Kind> lookahead;
    if (Take("(?=")) {
      lookahead = PatternNode::kAhead;
    } else if (Take("(?!")) {
      lookahead = PatternNode::kNotAhead;
    } else {
      TLM_ASSIGN_OR_RETURN(const bool has_inside, GroupStart());
      if (!has_inside) return std::nullopt;
    }
    TLM_ASSIGN_OR_RETURN(PatternNode inside, Alternatives(depth + 1));
    if (!Take(")")) return Bad(offset, "has a group that is not closed");
    flags_ = outer;
    if (!lookahead.has_value()) return inside;
    PatternNode node = Assertion(*lookahead);
    node.parts.push_back(std::move(inside));
    return node;
  }

  // Of a group that is no lookahead. False for one that only sets flags, which is read whole.
  absl::StatusOr<bool> GroupStart() {
    const size_t offset = position_;
    Take("(");
    if (!Take("?")) {
      if (Peek() == '*') return Bad(offset, "has a control verb, which is not supported,");
      return true;
    }
    if (Take(":")) return true;
    if (Take("<=") || Take("<!")) return Bad(offset, "has a lookbehind, which is not supported,");
    if (Take("P=")) return Bad(offset, "has a reference back, which is not supported,");
    if (Take("<") || Take("P<")) return GroupName(offset);
    if (Take(">")) return Bad(offset, "has an atomic group, which is not supported,");
    if (Take("(")) return Bad(offset, "has a condition, which is not supported,");
    if (Take("#")) return Bad(offset, "has a comment, which is not supported,");
    if (Take("R") || Take("&") || Take("P>") || (Peek() >= '0' && Peek() <= '9')) {
      return Bad(offset, "has a recursion, which is not supported,");
    }
    return GroupFlags(offset);
  }

  absl::StatusOr<bool> GroupName(size_t offset) {
    const size_t begin = position_;
    while (!AtEnd() && Peek() != '>') {
      const char32_t c = NextCodePoint(pattern_, &position_);
      const bool is_first = position_ - begin == 1;
      const bool is_digit = c >= '0' && c <= '9';
      if (c < 0x80 && c != '_' && c != '$' && (!IsLetterOrDigit(c) || (is_digit && is_first))) {
        return Bad(offset, "has a group with a malformed name");
      }
    }
    if (position_ == begin || !Take(">")) return Bad(offset, "has a group with a malformed name");
    return true;
  }

  absl::StatusOr<bool> GroupFlags(size_t offset) {
    Flags flags = flags_;
    bool on = true, any = false;
    while (!AtEnd() && Peek() != ':' && Peek() != ')') {
      const char c = pattern_[position_++];
      if (c == '-' && on) {
        on = false;
        continue;
      }
      any = true;
      if (c == 'i') {
        flags.ignore_case = on;
      } else if (c == 's') {
        flags.dot_all = on;
      } else if (c == 'm') {
        flags.multiline = on;
      } else {
        return Bad(offset, "has a group of a kind that is not supported");
      }
    }
    if (AtEnd() || !any) return Bad(offset, "has a group of a kind that is not supported");
    flags_ = flags;
    return !Take(")") && Take(":");
  }

  absl::StatusOr<std::optional<PatternNode>> EscapedAtom() {
    for (const auto& [text, kind] :
         {std::pair("\\b", PatternNode::kWordEdge), std::pair("\\B", PatternNode::kNoWordEdge),
          std::pair("\\A", PatternNode::kBegin), std::pair("\\z", PatternNode::kEnd)}) {
      if (Take(text)) return Assertion(kind);
    }
    TLM_ASSIGN_OR_RETURN(ClassPart part, Escape());
    return Chars(std::move(part.chars));
  }

  static ClassPart Single(char32_t c) { return {CharSet::Of(c), c}; }
  // Of \D and the like: other cases first, as a character and its other case are one.
  ClassPart Whole(const CharSet& set, bool negated) const {
    if (!negated) return {set, std::nullopt};
    return {~(flags_.ignore_case ? WithOtherCases(set) : set), std::nullopt};
  }

  // What begins with a backslash, apart from assertions.
  absl::StatusOr<ClassPart> Escape() {
    const size_t offset = position_;
    Take("\\");
    if (AtEnd()) return Bad(offset, "has a \\ before nothing");
    const char32_t c = NextCodePoint(pattern_, &position_);
    switch (c) {
      case 'd':
      case 'D':
        return Whole(Digits(), c == 'D');
      case 'w':
      case 'W':
        return Whole(WordCharacters(), c == 'W');
      case 's':
      case 'S':
        return Whole(Spaces(), c == 'S');
      case 't':
        return Single('\t');
      case 'n':
        return Single('\n');
      case 'r':
        return Single('\r');
      case 'f':
        return Single('\f');
      case 'v':
        return Single('\v');
      case 'c':
        if (!IsLetterOrDigit(static_cast<unsigned char>(Peek())) || Peek() <= '9') break;
        return Single(static_cast<char32_t>(pattern_[position_++] & 31));
      case '0':
        if (Peek() >= '0' && Peek() <= '9') return Bad(offset, "has an octal escape");
        return Single(0);
      case 'x':
      case 'u':
        return CodeEscape(offset, c == 'x' ? 2 : 4);
      case 'p':
      case 'P':
        return Property(offset, c == 'P');
      case 'k':
        return Bad(offset, "has a reference back, which is not supported,");
      default:
        if (c >= '1' && c <= '9') {
          return Bad(offset, "has a reference back, which is not supported,");
        }
        if (!IsLetterOrDigit(c)) return Single(c);
    }
    return Bad(offset, "has an unknown escape");
  }

  std::optional<uint32_t> Hex(size_t digits) {
    uint32_t value = 0;
    if (position_ + digits > pattern_.size()) return std::nullopt;
    for (size_t i = 0; i < digits; ++i) {
      const char c = pattern_[position_ + i];
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return std::nullopt;
      }
    }
    position_ += digits;
    return value;
  }

  // Behind \x or \u.
  absl::StatusOr<ClassPart> CodeEscape(size_t offset, size_t digits) {
    std::optional<uint32_t> code;
    if (Take("{")) {
      const size_t length = Rest().substr(0, 16).find('}');
      if (length != std::string_view::npos && length > 0) code = Hex(std::min<size_t>(length, 8));
      if (!code.has_value() || !Take("}")) return Bad(offset, "has a malformed escape");
    } else {
      code = Hex(digits);
      if (!code.has_value()) return Bad(offset, "has a malformed escape");
      if (*code >= 0xd800 && *code <= 0xdbff && Take("\\u")) {
        const std::optional<uint32_t> low = Hex(4);
        if (low.has_value() && *low >= 0xdc00 && *low <= 0xdfff) {
          code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
        }
      }
    }
    if (*code >= 0xd800 && *code <= 0xdfff) {
      return Bad(offset, "has a surrogate that is part of no pair, which is not supported,");
    }
    if (*code > 0x10ffff) return Bad(offset, "has an escape beyond U+10FFFF");
    return Single(*code);
  }

  // Behind \p or \P.
  absl::StatusOr<ClassPart> Property(size_t offset, bool negated) {
    std::string_view name = Rest().substr(0, 1);
    if (Take("{")) {
      const size_t length = Rest().find('}');
      if (length == std::string_view::npos) return Bad(offset, "has a malformed escape");
      name = Rest().substr(0, length);
      position_ += length + 1;
    } else {
      position_ += name.size();
    }
    const std::optional<CharSet> set = CharsOfProperty(name);
    if (!set.has_value()) return Bad(offset, "has an unknown Unicode property");
    return Whole(*set, negated);
  }

  absl::StatusOr<std::optional<PatternNode>> Class() {
    const size_t offset = position_;
    Take("[");
    const bool negated = Take("^");
    std::vector<CharSet::Range> ranges;
    const auto add = [&ranges](const CharSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    while (!Take("]")) {
      if (AtEnd()) return Bad(offset, "has a class that is not closed");
      const size_t part_offset = position_;
      TLM_ASSIGN_OR_RETURN(const ClassPart first, OneOfClass());
      if (!Rest().starts_with("-") || Rest().starts_with("-]") || Rest().size() < 2) {
        add(first.chars);
        continue;
      }
      Take("-");
      TLM_ASSIGN_OR_RETURN(const ClassPart last, OneOfClass());
      if (!first.single.has_value() || !last.single.has_value()) {
        // Beside \w and the like a hyphen is one.
        ranges.push_back({'-', '-'});
        add(first.chars);
        add(last.chars);
      } else if (*first.single > *last.single) {
        return Bad(part_offset, "has a range with its ends swapped");
      } else {
        ranges.push_back({*first.single, *last.single});
      }
    }
    CharSet set(std::move(ranges));
    if (negated) set = ~(flags_.ignore_case ? WithOtherCases(set) : set);
    return Chars(std::move(set));
  }

  absl::StatusOr<ClassPart> OneOfClass() {
    if (Take("\\b")) return Single('\b');
    if (Peek() == '\\') return Escape();
    return Single(NextCodePoint(pattern_, &position_));
  }

  const std::string_view pattern_;
  size_t position_ = 0;
  Flags flags_;
};

// Turns a tree into an expression, from the end of the pattern to its beginning. What is carried is
// the language of the rest of the text behind the place that was reached; so an assertion about the
// rest is an intersection. Assertions that look back see only the character before: the rest is
// carried for each kind of it.
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
  // What stands before a place in the text.
  enum Before { kAtBegin, kAfterWord, kAfterBreak, kAfterOther, kBefores };
  using Rests = std::array<ByteRegex, kBefores>;

  // Of copies of repetitions that hold assertions.
  static constexpr int kMaxCopies = 4'096;
  // Rounds in which the meaning of an unbounded repetition must settle.
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

  // Of a node without assertions.
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

  // Puts the node before the rests.
  absl::Status Prepend(const PatternNode& node, Rests* rests) {
    if (node.plain && node.kind != PatternNode::kSequence) {
      PrependPlain(Plain(node), rests);
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
        Rests ahead = All(any_text_);
        TLM_RETURN_IF_ERROR(Prepend(node.parts.front(), &ahead));
        for (size_t i = 0; i < kBefores; ++i) {
          if (node.kind == PatternNode::kNotAhead) ahead[i] = NotBegin(ahead[i]);
          (*rests)[i] = And(ahead[i], (*rests)[i]);
        }
        return absl::OkStatus();
      }
      default:
        PrependAssertion(node, rests);
        return absl::OkStatus();
    }
  }

  // The texts that are not of the language.
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

  void PrependPlain(ByteRegex regex, Rests* rests) const {
    const Rests behind = *rests;
    const bool may_be_empty = regexes_.HasEmpty(regex);
    if (behind == All(behind[kAtBegin])) {
      *rests = All(Concat(regex, behind[kAtBegin]));
      return;
    }
    // Something must stand before what tells places apart.
    ByteRegex some = RegexSet::kNone;
    if (behind[kAfterWord] == behind[kAfterBreak] && behind[kAfterWord] == behind[kAfterOther]) {
      const ByteRegex not_empty =
          may_be_empty ? And(regex, regexes_.Concat(any_char_, any_text_)) : regex;
      some = Concat(not_empty, behind[kAfterWord]);
    } else {
      for (const Before before : {kAfterWord, kAfterBreak, kAfterOther}) {
        const ByteRegex ending = regexes_.Concat(any_text_, Of(kinds_[before]));
        if (behind[before] == RegexSet::kNone) continue;
        some = Or(some, regexes_.Concat(regexes_.And(regex, ending), behind[before]));
      }
    }
    for (size_t i = 0; i < kBefores; ++i) {
      (*rests)[i] = may_be_empty ? Or(some, behind[i]) : some;
    }
  }

  absl::Status PrependAlternatives(const PatternNode& node, Rests* rests) {
    const Rests behind = *rests;
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
      Rests one = behind;
      TLM_RETURN_IF_ERROR(Prepend(part, &one));
      add(one);
    }
    if (!plain.empty()) {
      Rests one = behind;
      PrependPlain(regexes_.Or(plain), &one);
      add(one);
    }
    *rests = all;
    return absl::OkStatus();
  }

  // Of something with assertions inside.
  absl::Status PrependRepeat(const PatternNode& node, Rests* rests) {
    const PatternNode& inside = node.parts.front();
    const Rests behind = *rests;
    if (node.max == RegexSet::kUnbounded) {
      TLM_ASSIGN_OR_RETURN(const bool done, PrependTempered(node, rests));
      if (done) return absl::OkStatus();
      TLM_RETURN_IF_ERROR(PrependUnbounded(node, rests));
    } else {
      for (int32_t i = node.min; i < node.max; ++i) {
        const Rests before = *rests;
        TLM_RETURN_IF_ERROR(PrependCopy(inside, rests));
        for (size_t j = 0; j < kBefores; ++j) (*rests)[j] = Or((*rests)[j], behind[j]);
        if (*rests == before) break;  // more change nothing
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

  // The alternatives that a node stands for, with those inside of its sequences; itself if there
  // would be too many.
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

  // x* is the least X with X = x X | rest: found by substituting until nothing changes.
  // Alternatives without assertions are repeated at once, as A X | Y has the solution A* Y.
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
    const Rests behind = *rests;
    PrependPlain(loop, rests);
    for (int round = 0; round < kMaxRounds; ++round) {
      const Rests before = *rests;
      *rests = behind;
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

  // ((?!x)C)* before the end of the text: texts over C with x at no place before the end.
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

  // Texts with what `rests` says at the begin or behind some character.
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
  std::array<CharSet, kBefores> kinds_;  // the character before; none for kAtBegin
  int copies_ = 0;
};

}  // namespace

absl::StatusOr<ByteRegex> ParsePattern(RegexSet& regexes, std::string_view pattern,
                                       PatternOptions options) {
  TLM_ASSIGN_OR_RETURN(const PatternNode root, PatternParser(pattern).Parse());
  return PatternLowering(regexes, pattern, options.form).Lower(root, options.whole);
}

}  // namespace tlm
