#include "model/constraint/grammar/grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxQuoted = 64;  // bytes of a name in a message

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class GrammarParser {
 public:
  GrammarParser(std::string_view text, size_t max_nodes, Budget& budget)
      : text_(text), max_nodes_(max_nodes), budget_(budget) {}

  absl::StatusOr<Grammar> Parse() {
    if (const size_t invalid = FindInvalidUtf8(text_); invalid != text_.npos) {
      return InvalidArgument("not UTF-8 at byte {}", invalid);
    }
    Skip(true);
    while (!AtEnd()) {
      TLM_RETURN_IF_ERROR(ParseRule());
      Skip(true);
    }
    for (const auto& [place, rule] : references_) {
      if (grammar_.rules[static_cast<size_t>(rule)].body < 0) {
        return Malformed(place, "rule \"{}\" is not defined", NameOf(rule));
      }
    }
    const auto root = rule_ids_.find("root");
    if (root == rule_ids_.end()) return InvalidArgument("no rule is named \"root\"");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  template <typename... Args>
  absl::Status Malformed(size_t place, fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("{}: {}", Grammar::PlaceName(text_, place),
                           fmt::format(format, std::forward<Args>(args)...));
  }

  bool AtEnd() const { return at_ >= text_.size(); }
  // 0 at the end.
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view Name(size_t place) const {
    size_t end = place;
    while (end < text_.size() && IsNameByte(text_[end])) ++end;
    return text_.substr(place, end - place);
  }
  std::string_view NameOf(int32_t rule) const {
    return std::string_view(grammar_.rules[static_cast<size_t>(rule)].name).substr(0, kMaxQuoted);
  }
  // The character at at_, for a message.
  std::string Found() const {
    if (AtEnd()) return "the end";
    if (text_[at_] == '\n' || text_[at_] == '\r') return "the end of the line";
    return fmt::format("'{}'", text_.substr(at_, FirstCharacter(text_.substr(at_)).length));
  }

  // Skips blanks and comments.
  void Skip(bool newlines) {
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c == '#') {
        while (!AtEnd() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  // Skips blanks within a rule, and line ends if it is in parentheses or | follows.
  void SkipInRule(bool in_group) {
    Skip(in_group);
    const size_t here = at_;
    Skip(true);
    if (Peek() != '|') at_ = here;
  }

  int32_t RuleOf(std::string_view name) {
    const auto [found, is_new] =
        rule_ids_.emplace(std::string(name), static_cast<int32_t>(grammar_.rules.size()));
    if (is_new) grammar_.rules.push_back({.name = std::string(name)});
    return found->second;
  }

  absl::StatusOr<int32_t> Add(Grammar::Node node) {
    if (grammar_.nodes.size() >= max_nodes_) {
      return ResourceExhausted("{}: the grammar has more than {} parts",
                               Grammar::PlaceName(text_, node.place), max_nodes_);
    }
    int depth = 0;
    for (const int32_t part : node.parts) {
      depth = std::max<int>(depth, grammar_.nodes[static_cast<size_t>(part)].depth);
    }
    if (depth >= Grammar::kMaxDepth) return TooDeep(node.place);
    node.depth = static_cast<uint8_t>(depth + 1);
    TLM_RETURN_IF_ERROR(budget_.Spend(2, "reading the grammar"));
    grammar_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(grammar_.nodes.size() - 1);
  }
  absl::Status TooDeep(size_t place) const {
    return ResourceExhausted("{}: groups and repetitions are nested deeper than {}",
                             Grammar::PlaceName(text_, place), Grammar::kMaxDepth);
  }

  absl::Status ParseRule() {
    const size_t place = at_;
    const std::string_view name = Name(at_);
    if (name.empty()) return Malformed(at_, "expected the name of a rule, found {}", Found());
    at_ += name.size();
    Skip(false);
    if (text_.substr(at_, 3) != "::=") return Malformed(at_, "expected ::=, found {}", Found());
    at_ += 3;
    const int32_t rule = RuleOf(name);
    if (grammar_.rules[static_cast<size_t>(rule)].body >= 0) {
      return Malformed(place, "rule \"{}\" is defined twice", NameOf(rule));
    }
    Skip(true);
    const auto first = static_cast<int32_t>(grammar_.nodes.size());
    TLM_ASSIGN_OR_RETURN(const int32_t body, ParseAlternatives(0));
    Grammar::Rule& defined = grammar_.rules[static_cast<size_t>(rule)];
    defined.first = first;
    defined.body = body;
    defined.place = place;
    if (!AtEnd() && Peek() != '\n' && Peek() != '\r') {
      return Malformed(at_, "expected a symbol or the end of the line, found {}", Found());
    }
    return absl::OkStatus();
  }

  // `groups` is the number of open groups.
  absl::StatusOr<int32_t> ParseAlternatives(int groups) {
    Grammar::Node node = {.kind = Grammar::Kind::kAlternatives, .place = at_};
    do {
      Skip(!node.parts.empty() || groups > 0);
      TLM_ASSIGN_OR_RETURN(const int32_t sequence, ParseSequence(groups));
      node.parts.push_back(sequence);
    } while (Take('|'));
    if (node.parts.size() == 1) return node.parts[0];
    return Add(std::move(node));
  }

  absl::StatusOr<int32_t> ParseSequence(int groups) {
    Grammar::Node node = {.kind = Grammar::Kind::kSequence, .place = at_};
    while (true) {
      SkipInRule(groups > 0);
      if (AtEnd() || Peek() == '|' || Peek() == ')' || Peek() == '\n' || Peek() == '\r') break;
      TLM_ASSIGN_OR_RETURN(int32_t symbol, ParseSymbol(groups));
      TLM_ASSIGN_OR_RETURN(symbol, ParseRepetitions(symbol, groups));
      node.parts.push_back(symbol);
    }
    if (node.parts.size() == 1) return node.parts[0];
    return Add(std::move(node));
  }

  absl::StatusOr<int32_t> ParseSymbol(int groups) {
    const size_t place = at_;
    if (Take('"')) return ParseLiteral(place);
    if (Take('[')) return ParseClass(place);
    if (Take('.')) return AddClass(CharSet::All(), place);
    if (Take('(')) return ParseGroup(place, groups + 1);
    if (Peek() == '<' || (Peek() == '!' && Peek(1) == '<')) {
      return Malformed(place, "tokens (<...> and !<...>) are not supported");
    }
    const std::string_view name = Name(at_);
    if (name.empty()) return Malformed(at_, "expected a symbol, found {}", Found());
    at_ += name.size();
    const int32_t rule = RuleOf(name);
    references_.emplace_back(place, rule);
    return Add({.kind = Grammar::Kind::kRule, .index = rule, .place = place});
  }

  absl::StatusOr<int32_t> ParseGroup(size_t place, int groups) {
    if (groups >= Grammar::kMaxDepth) return TooDeep(place);
    TLM_ASSIGN_OR_RETURN(const int32_t node, ParseAlternatives(groups));
    if (!Take(')')) {
      return Malformed(at_, "expected ) for the group of {}, found {}",
                       Grammar::PlaceName(text_, place), Found());
    }
    return node;
  }

  absl::StatusOr<int32_t> ParseLiteral(size_t place) {
    std::string literal;
    while (!Take('"')) {
      if (AtEnd()) return Malformed(place, "the literal does not end");
      TLM_ASSIGN_OR_RETURN(const char32_t character, ParseCharacter());
      AppendUtf8(character, &literal);
    }
    grammar_.literals.push_back(std::move(literal));
    return Add({.kind = Grammar::Kind::kLiteral,
                .index = static_cast<int32_t>(grammar_.literals.size() - 1),
                .place = place});
  }

  absl::StatusOr<int32_t> ParseClass(size_t place) {
    const bool negated = Take('^');
    std::vector<CharSet::Range> ranges;
    while (!Take(']')) {
      if (AtEnd()) return Malformed(place, "the class does not end");
      const size_t first_place = at_;
      TLM_ASSIGN_OR_RETURN(const char32_t first, ParseCharacter());
      char32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        if (AtEnd()) return Malformed(place, "the class does not end");
        TLM_ASSIGN_OR_RETURN(last, ParseCharacter());
      }
      if (last < first) return Malformed(first_place, "the range ends before it begins");
      ranges.push_back({first, last});
    }
    if (ranges.empty()) return Malformed(place, "the class is empty");
    const CharSet set(std::move(ranges));
    return AddClass(negated ? ~set : set, place);
  }

  absl::StatusOr<int32_t> AddClass(CharSet set, size_t place) {
    const auto [found, is_new] =
        class_ids_.emplace(set.ranges(), static_cast<int32_t>(grammar_.classes.size()));
    if (is_new) grammar_.classes.push_back(std::move(set));
    return Add({.kind = Grammar::Kind::kClass, .index = found->second, .place = place});
  }

  // Reads a character of a literal or a class. The text must not be at its end.
  absl::StatusOr<char32_t> ParseCharacter() {
    if (Peek() != '\\') return NextCodePoint(text_, &at_);
    const size_t place = at_;
    const char escape = Peek(1);
    at_ = std::min(at_ + 2, text_.size());
    switch (escape) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return static_cast<char32_t>(escape);
      case 'x':
        return ParseHex(place, 2);
      case 'u':
        return ParseHex(place, 4);
      case 'U':
        return ParseHex(place, 8);
      default:
        return Malformed(place,
                         "the escape is none of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\x \\u \\U");
    }
  }

  absl::StatusOr<char32_t> ParseHex(size_t place, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = HexDigit(Peek());
      if (digit < 0) return Malformed(place, "the escape takes {} hexadecimal digits", digits);
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
      return Malformed(place, "U+{:04X} is not a character", value);
    }
    return static_cast<char32_t>(value);
  }

  // Reads any number of the suffixes * + ? {m} {m,} {m,n} after `node`.
  absl::StatusOr<int32_t> ParseRepetitions(int32_t node, int groups) {
    while (true) {
      SkipInRule(groups > 0);
      const size_t place = at_;
      Grammar::Node repeat = {
          .kind = Grammar::Kind::kRepeat, .max = Grammar::kUnbounded, .place = place};
      repeat.parts = {node};
      if (Take('+')) {
        repeat.min = 1;
      } else if (Take('?')) {
        repeat.max = 1;
      } else if (Take('{')) {
        TLM_RETURN_IF_ERROR(ParseBounds(place, repeat));
      } else if (!Take('*')) {
        return node;
      }
      TLM_ASSIGN_OR_RETURN(node, Add(std::move(repeat)));
    }
  }

  // Reads the bounds after {.
  absl::Status ParseBounds(size_t place, Grammar::Node& repeat) {
    TLM_ASSIGN_OR_RETURN(const std::optional<int32_t> min, ParseNumber());
    if (!min.has_value()) return Malformed(at_, "expected a number, found {}", Found());
    repeat.min = repeat.max = *min;
    if (Take(',')) {
      TLM_ASSIGN_OR_RETURN(const std::optional<int32_t> max, ParseNumber());
      repeat.max = max.value_or(Grammar::kUnbounded);
    }
    if (!Take('}')) return Malformed(at_, "expected }}, found {}", Found());
    if (repeat.max < repeat.min) {
      return Malformed(place, "{} repetitions at least, and {} at most", repeat.min, repeat.max);
    }
    return absl::OkStatus();
  }

  // Reads a number and the blanks around it; nullopt if there is no number.
  absl::StatusOr<std::optional<int32_t>> ParseNumber() {
    Skip(true);
    const size_t place = at_;
    int64_t value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      value = value * 10 + (Peek() - '0');
      if (value > Grammar::kMaxRepetitions) {
        return ResourceExhausted("{}: the limit of repetitions is {}",
                                 Grammar::PlaceName(text_, place), Grammar::kMaxRepetitions);
      }
    }
    if (at_ == place) return std::nullopt;
    Skip(true);
    return static_cast<int32_t>(value);
  }

  const std::string_view text_;
  const size_t max_nodes_;
  Budget& budget_;
  size_t at_ = 0;
  Grammar grammar_;
  std::unordered_map<std::string, int32_t> rule_ids_;
  std::map<std::vector<CharSet::Range>, int32_t> class_ids_;
  std::vector<std::pair<size_t, int32_t>> references_;  // place, rule
};

}  // namespace

absl::StatusOr<Grammar> Grammar::Parse(std::string_view gbnf, size_t max_nodes, Budget& budget) {
  return GrammarParser(gbnf, max_nodes, budget).Parse();
}

std::string Grammar::PlaceName(std::string_view gbnf, size_t place) {
  const std::string_view before = gbnf.substr(0, place);
  const size_t line_start = before.rfind('\n') + 1;  // 0 after npos
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     1 + CountCodePoints(before.substr(line_start)));
}

}  // namespace tlm
