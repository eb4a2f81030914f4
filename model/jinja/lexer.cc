#include "model/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/limits.h"
#include "model/jinja/number_parsing.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

using Kind = Token::Kind;

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameByte(char c) { return IsNameStart(c) || IsDigitByte(c); }

// Line ends of all three kinds as \n, and without the one that ends the template.
std::string NormalizeNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool is_return = source[i] == '\r';
    if (is_return && i + 1 < source.size() && source[i + 1] == '\n') ++i;
    result += is_return ? '\n' : source[i];
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) {
      if (absl::Status status = LexData(); !status.ok()) {
        return WithContext(status, fmt::format("line {}", line_));
      }
    }
    Push(Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }
  bool LooksAt(std::string_view text) const {
    return std::string_view(source_).substr(position_).starts_with(text);
  }

  // Moves on by `count` bytes.
  void Advance(size_t count) {
    const auto begin = source_.begin() + static_cast<ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<ptrdiff_t>(count), '\n'));
    position_ += count;
    if (count > 0) at_line_start_ = source_[position_ - 1] == '\n';
  }

  void SkipSpaces() {
    const std::string_view rest = std::string_view(source_).substr(position_);
    Advance(rest.size() - StripLeft(rest, IsSpace).size());
  }

  Token& Push(Kind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
    return tokens_.back();
  }

  // `text` as it stands before a tag with `sign` behind its opening: '-' takes the white space in
  // front of it, and a tag alone on its line takes its indentation (lstrip_blocks) unless '+'.
  std::string_view Stripped(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return StripRight(text, IsSpace);
    if (sign == '+' || is_variable) return text;
    const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !at_line_start_) return text;
    return StripLeft(text.substr(line), IsSpace).empty() ? text.substr(0, line) : text;
  }

  // Takes the text up to the next tag, and the tag.
  absl::Status LexData() {
    const std::string_view rest = std::string_view(source_).substr(position_);
    size_t length = 0;
    for (;; ++length) {
      length = std::min(rest.find('{', length), rest.size());
      if (length + 1 >= rest.size()) length = rest.size();
      if (length == rest.size()) break;
      const char c = rest[length + 1];
      if (c == '{' || c == '%' || c == '#') break;
    }
    if (length == rest.size()) {
      Push(Kind::kData, std::string(rest));
      Advance(rest.size());
      return absl::OkStatus();
    }
    const char type = rest[length + 1];
    const char next = length + 2 < rest.size() ? rest[length + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::string_view data = Stripped(rest.substr(0, length), sign, type == '{');
    if (!data.empty()) Push(Kind::kData, std::string(data));
    Advance(length);
    if (type == '%') {
      if (const size_t tag = MatchTag("raw", false); tag > 0) return LexRaw(tag);
    }
    Advance(sign == '\0' ? 2 : 3);
    if (type == '#') return LexComment();
    return LexTag(type == '{');
  }

  // The length of "{% name %}" from here on, with the signs and spaces it may have; 0 when there is
  // something else. `trims`: whether the line end behind it belongs to it.
  size_t MatchTag(std::string_view name, bool trims) const {
    const std::string_view rest = std::string_view(source_).substr(position_);
    if (!rest.starts_with("{%")) return 0;
    std::string_view left = rest.substr(2);
    if (left.starts_with('-') || left.starts_with('+')) left.remove_prefix(1);
    left = StripLeft(left, IsSpace);
    if (!left.starts_with(name)) return 0;
    left = StripLeft(left.substr(name.size()), IsSpace);
    if (left.starts_with("-%}")) {
      left = StripLeft(left.substr(3), IsSpace);
    } else if (trims && left.starts_with("+%}")) {
      left.remove_prefix(3);
    } else if (left.starts_with("%}")) {
      left.remove_prefix(2);
      if (trims && left.starts_with('\n')) left.remove_prefix(1);
    } else {
      return 0;
    }
    return rest.size() - left.size();
  }

  absl::Status LexRaw(size_t tag) {
    Advance(tag);
    if (position_ == source_.size()) return absl::OkStatus();  // Jinja forgives this one
    const int line = line_;
    const bool at_line_start = at_line_start_;
    const size_t start = position_;
    for (;;) {
      position_ = source_.find("{%", position_);
      if (position_ == std::string::npos) {
        position_ = start;
        return InvalidArgument("Missing end of raw directive");
      }
      if (const size_t end = MatchTag("endraw", true); end > 0) {
        const char sign = Peek(2);
        at_line_start_ = at_line_start;
        const std::string_view text =
            Stripped(std::string_view(source_).substr(start, position_ - start), sign, false);
        if (!text.empty()) Push(Kind::kData, std::string(text)).line = line;
        const size_t stop = position_ + end;
        position_ = start;
        Advance(stop - start);
        return absl::OkStatus();
      }
      ++position_;
    }
  }

  absl::Status LexComment() {
    if (position_ == source_.size()) return absl::OkStatus();  // Jinja forgives this one
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return InvalidArgument("Missing end of comment tag");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2 - position_);
    if (sign == '-') {
      SkipSpaces();
    } else if (sign != '+' && Peek() == '\n') {
      Advance(1);
    }
    return absl::OkStatus();
  }

  // The inside of {{ }} or {% %}.
  absl::Status LexTag(bool is_variable) {
    Push(is_variable ? Kind::kVariableBegin : Kind::kBlockBegin);
    std::string open_brackets;
    for (;;) {
      SkipSpaces();
      if (position_ == source_.size()) return absl::OkStatus();  // the parser complains
      if (open_brackets.empty() && TakeTagEnd(is_variable)) return absl::OkStatus();
      TLM_RETURN_IF_ERROR(LexToken(&open_brackets));
    }
  }

  bool TakeTagEnd(bool is_variable) {
    const std::string_view end = is_variable ? "}}" : "%}";
    const char sign = Peek();
    const bool has_sign = (sign == '-' || (sign == '+' && !is_variable)) &&
                          std::string_view(source_).substr(position_ + 1).starts_with(end);
    if (!has_sign && !LooksAt(end)) return false;
    Push(is_variable ? Kind::kVariableEnd : Kind::kBlockEnd);
    Advance(has_sign ? 3 : 2);
    if (has_sign && sign == '-') {
      SkipSpaces();
    } else if (!has_sign && !is_variable && Peek() == '\n') {
      Advance(1);
    }
    return true;
  }

  absl::Status LexToken(std::string* open_brackets) {
    const char c = Peek();
    if (IsDigitByte(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t length = 1;
      while (IsNameByte(Peek(length))) ++length;
      if (length > kMaxNameBytes) {
        return InvalidArgument("a name of {} bytes, the limit is {}", length, kMaxNameBytes);
      }
      Push(Kind::kName, source_.substr(position_, length));
      Advance(length);
      return absl::OkStatus();
    }
    if (c == '\'' || c == '"') return LexText(c);
    return LexOperator(open_brackets);
  }

  // The digits from `start` on, single underscores between them, that `is_digit` accepts.
  template <typename IsDigit>
  size_t CountDigits(size_t start, IsDigit is_digit) const {
    size_t length = 0;
    while (is_digit(Peek(start + length)) ||
           (length > 0 && Peek(start + length) == '_' && is_digit(Peek(start + length + 1)))) {
      ++length;
    }
    return length;
  }

  absl::Status LexNumber() {
    const size_t whole = CountDigits(0, IsDigitByte);
    size_t length = whole;
    const bool behind_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (Peek(length) == '.' && IsDigitByte(Peek(length + 1))) {
      length += 1 + CountDigits(length + 1, IsDigitByte);
    }
    if (Peek(length) == 'e' || Peek(length) == 'E') {
      const size_t sign = Peek(length + 1) == '+' || Peek(length + 1) == '-' ? 1 : 0;
      const size_t digits = CountDigits(length + 1 + sign, IsDigitByte);
      if (digits > 0) length += 1 + sign + digits;
    }
    if (length > whole && !behind_dot) {
      const std::optional<double> real = ParseFloat(source_.substr(position_, length));
      Push(Kind::kFloat).real = real.value_or(0);
      Advance(length);
      return absl::OkStatus();
    }
    return LexInteger();
  }

  absl::Status LexInteger() {
    const char letter = Peek() == '0' ? static_cast<char>(Peek(1) | 0x20) : '\0';
    size_t length = 0;
    if (letter == 'x') {
      length = 2 + CountDigits(2, [](char c) {
                 return IsDigitByte(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
               });
    } else if (letter == 'o') {
      length = 2 + CountDigits(2, [](char c) { return c >= '0' && c <= '7'; });
    } else if (letter == 'b') {
      length = 2 + CountDigits(2, [](char c) { return c == '0' || c == '1'; });
    }
    if (length <= 2) {
      length = Peek() == '0' ? CountDigits(0, [](char c) { return c == '0'; })
                             : CountDigits(0, IsDigitByte);
    }
    const absl::StatusOr<std::optional<int64_t>> value =
        ParseInteger(source_.substr(position_, length), 0);
    if (!value.ok()) return value.status();
    Push(Kind::kInteger).integer = value->value_or(0);
    Advance(length);
    return absl::OkStatus();
  }

  absl::Status LexText(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return InvalidArgument("unexpected char {}", Quoted(std::string_view(&quote, 1)));
    }
    TLM_ASSIGN_OR_RETURN(std::string text, Unescape(std::string_view(source_).substr(
                                               position_ + 1, end - position_ - 1)));
    Push(Kind::kText, std::move(text));
    Advance(end + 1 - position_);
    return absl::OkStatus();
  }

  absl::Status LexOperator(std::string* open_brackets) {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    const auto found = std::find_if(kLong.begin(), kLong.end(),
                                    [&](std::string_view symbol) { return LooksAt(symbol); });
    if (found != kLong.end()) {
      Push(Kind::kOperator, std::string(*found));
      Advance(2);
      return absl::OkStatus();
    }
    const char c = Peek();
    if (kShort.find(c) == kShort.npos) return UnexpectedCharacter();
    if (c == '(' || c == '[' || c == '{') {
      *open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets->empty()) return InvalidArgument("unexpected '{}'", c);
      if (open_brackets->back() != c) {
        return InvalidArgument("unexpected '{}', expected '{}'", c, open_brackets->back());
      }
      open_brackets->pop_back();
    }
    Push(Kind::kOperator, std::string(1, c));
    Advance(1);
    return absl::OkStatus();
  }

  absl::Status UnexpectedCharacter() const {
    size_t next = position_;
    const char32_t c = NextCodePoint(source_, &next);
    const std::string shown = Quoted(source_.substr(position_, next - position_));
    if (c >= 0x80) return Unimplemented("a name with the character {} is not supported", shown);
    return InvalidArgument("unexpected char {}", shown);
  }

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case Kind::kData:
      return "template data";
    case Kind::kVariableBegin:
      return "'{{'";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kInteger:
    case Kind::kFloat:
      return "a number";
    case Kind::kEnd:
      return "end of template";
    default:
      return Quoted(token.text);
  }
}

}  // namespace tlm::jinja
