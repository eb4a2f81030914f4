#include "model/constraint/bytes/pattern_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/bytes/char_classes.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

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
  // The flags i, s and m. They hold from the place where they are set to the end of the group.
  struct Flags {
    bool ignore_case = false, dot_all = false, multiline = false;
  };
  // The characters of an escape or of a part of a class.
  struct ClassPart {
    CharSet chars;                   // in ECMA-262
    CharSet in_python;               // in Python's re
    std::optional<char32_t> single;  // set for a single character, which may end a range
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

  // Reads an atom or assertion with its quantifier.
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
    Take("?");  // a lazy quantifier matches the same texts
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

  // Reads {m}, {m,} or {m,n}. For anything else reads nothing and returns nullopt.
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

  // Reads digits. A number that is too large becomes a number above all limits.
  std::optional<int64_t> Count() {
    const size_t begin = position_;
    int64_t count = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++position_) {
      count = std::min<int64_t>(count * 10 + (Peek() - '0'), kMaxPatternCount + 1);
    }
    if (position_ == begin) return std::nullopt;
    return count;
  }

  // Returns nullopt for a group that only sets flags.
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

  // Reads the start of a group that is not a lookahead. If the group only sets flags, reads all of
  // it and returns false.
  absl::StatusOr<bool> GroupStart() {
    const size_t offset = position_;
    Take("(");
    if (!Take("?")) {
      if (Peek() == '*') return Bad(offset, "has a control verb, which is not supported,");
      return true;
    }
    if (Take(":")) return true;
    if (Take("<=") || Take("<!")) return Bad(offset, "has a lookbehind, which is not supported,");
    if (Take("P=")) return Bad(offset, "has a backreference, which is not supported,");
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
    return Chars(part.chars & part.in_python);
  }

  static ClassPart Single(char32_t c) { return {CharSet::Of(c), CharSet::Of(c), c}; }
  // A class such as \D. Other cases are added before the negation, because a character and its
  // other case count as one.
  ClassPart Whole(const CharSet& set, bool negated) const { return Whole(set, set, negated); }
  ClassPart Whole(const CharSet& set, const CharSet& in_python, bool negated) const {
    if (!negated) return {set, in_python, std::nullopt};
    return {Without(set), Without(in_python), std::nullopt};
  }
  CharSet Without(const CharSet& set) const {
    return ~(flags_.ignore_case ? WithOtherCases(set) : set);
  }

  // Reads an escape that is not an assertion.
  absl::StatusOr<ClassPart> Escape() {
    const size_t offset = position_;
    Take("\\");
    if (AtEnd()) return Bad(offset, "has a \\ before nothing");
    const char32_t c = NextCodePoint(pattern_, &position_);
    switch (c) {
      case 'd':
      case 'D':
        return Whole(Digits(), *CharsOfProperty("Nd"), c == 'D');
      case 'w':
      case 'W':
        return Whole(WordCharacters(), PythonWordCharacters(), c == 'W');
      case 's':
      case 'S':
        return Whole(Spaces(), PythonSpaces(), c == 'S');
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
        return Bad(offset, "has a backreference, which is not supported,");
      default:
        if (c >= '1' && c <= '9') {
          return Bad(offset, "has a backreference, which is not supported,");
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

  // Reads the rest of an escape after \x or \u.
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

  // Reads the rest of an escape after \p or \P.
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
    std::vector<CharSet::Range> ranges, in_python;
    const auto add = [&](const ClassPart& part) {
      const auto &chars = part.chars.ranges(), &python = part.in_python.ranges();
      ranges.insert(ranges.end(), chars.begin(), chars.end());
      in_python.insert(in_python.end(), python.begin(), python.end());
    };
    while (!Take("]")) {
      if (AtEnd()) return Bad(offset, "has a class that is not closed");
      const size_t part_offset = position_;
      TLM_ASSIGN_OR_RETURN(const ClassPart first, OneOfClass());
      if (!Rest().starts_with("-") || Rest().starts_with("-]") || Rest().size() < 2) {
        add(first);
        continue;
      }
      Take("-");
      TLM_ASSIGN_OR_RETURN(const ClassPart last, OneOfClass());
      if (!first.single.has_value() || !last.single.has_value()) {
        // Next to \w and similar classes a hyphen is a literal.
        add(Single('-'));
        add(first);
        add(last);
      } else if (*first.single > *last.single) {
        return Bad(part_offset, "has a range with its ends swapped");
      } else {
        const CharSet range = CharSet::Of(*first.single, *last.single);
        add({range, range, std::nullopt});
      }
    }
    const ClassPart part =
        Whole(CharSet(std::move(ranges)), CharSet(std::move(in_python)), negated);
    return Chars(part.chars & part.in_python);
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

}  // namespace

absl::StatusOr<PatternNode> ReadPattern(std::string_view pattern) {
  return PatternParser(pattern).Parse();
}

}  // namespace tlm
