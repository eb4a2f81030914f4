#include "model/jinja/lexer.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "model/base/json.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameByte(char c) { return IsNameStart(c) || IsDigitByte(c); }

// Replaces line ends of all three kinds by \n, and removes the one at the end of the template.
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

// Reads the digits of \xhh, \uhhhh or \Uhhhhhhhh, starting after its letter.
absl::Status TakeHex(std::string_view text, char letter, size_t* next, std::string* out) {
  const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  uint32_t value = 0;
  const std::string_view hex = text.substr(*next, digits);
  const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (hex.size() < digits || read.ptr != hex.data() + digits) {
    return InvalidArgument("truncated \\{} escape in a text", letter);
  }
  if (value > 0x10ffff) return InvalidArgument("illegal Unicode character in a text");
  if (value >= 0xd800 && value < 0xe000) {
    return Unimplemented("a surrogate (\\u{:04x}) in a text is not supported", value);
  }
  AppendUtf8(static_cast<char32_t>(value), out);
  *next += digits;
  return absl::OkStatus();
}

// Returns the content of a text literal between its quotes, with escapes resolved like Python's
// unicode-escape codec.
absl::StatusOr<std::string> Unescape(std::string_view literal) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv\n";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string result;
  for (size_t next = 0; next < literal.size();) {
    const char c = literal[next++];
    if (c != '\\' || next == literal.size()) {
      result += c;
      continue;
    }
    const char letter = literal[next];
    if (const size_t i = kLetters.find(letter); i != kLetters.npos) {
      if (i < kMeanings.size()) result += kMeanings[i];  // a line break continues the line
      ++next;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      ++next;
      TLM_RETURN_IF_ERROR(TakeHex(literal, letter, &next, &result));
    } else if (letter == 'N' || IsDigitByte(letter) || (letter & 0x80) != 0) {
      const char shown = (letter & 0x80) != 0 ? '?' : letter;
      return Unimplemented("the escape \\{} in a text is not supported", shown);
    } else {
      result += c;
    }
  }
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
    Push(TokenKind::kEnd);
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

  Token& Push(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text), {}});
    return tokens_.back();
  }

  // Returns the part of `text` that remains before a tag with `sign` after its opening: '-' removes
  // the white space before the tag, and a tag alone on its line loses its indentation
  // (lstrip_blocks) unless the sign is '+'.
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
      Push(TokenKind::kData, std::string(rest));
      Advance(rest.size());
      return absl::OkStatus();
    }
    const char type = rest[length + 1];
    const char next = length + 2 < rest.size() ? rest[length + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::string_view data = Stripped(rest.substr(0, length), sign, type == '{');
    if (!data.empty()) Push(TokenKind::kData, std::string(data));
    Advance(length);
    Advance(sign == '\0' ? 2 : 3);
    if (type == '#') return LexComment();
    const size_t raw = type == '%' ? WordTagLength("raw") : 0;
    if (raw > 0 && source_[position_ + raw - 3] != '+') return LexRaw(raw);
    return LexTag(type == '{');
  }

  // Returns the length from here, after the opening and sign, to the end of "{% word %}"; 0 for
  // another tag.
  size_t WordTagLength(std::string_view word) const {
    const std::string_view all = std::string_view(source_).substr(position_);
    std::string_view rest = StripLeft(all, IsSpace);
    if (!rest.starts_with(word)) return 0;
    rest = StripLeft(rest.substr(word.size()), IsSpace);
    if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
    return rest.starts_with("%}") ? all.size() - rest.size() + 2 : 0;
  }

  // Reads the text between {% raw %} and {% endraw %} unchanged. The position is inside a tag "raw"
  // that has `length` bytes left.
  absl::Status LexRaw(size_t length) {
    if (const char sign = TakeWordTag(length); sign == '-') SkipSpaces();
    const size_t start = position_;
    const bool at_line_start = at_line_start_;
    for (;;) {
      const size_t opening = source_.find("{%", position_);
      if (opening == std::string::npos) return InvalidArgument("Missing end of raw directive");
      Advance(opening + 2 - position_);
      const char sign = Peek() == '-' || Peek() == '+' ? Peek() : '\0';
      if (sign != '\0') Advance(1);
      const size_t end = WordTagLength("endraw");
      if (end == 0) continue;
      at_line_start_ = at_line_start;
      const std::string_view data = std::string_view(source_).substr(start, opening - start);
      if (const auto text = Stripped(data, sign, false); !text.empty()) {
        Push(TokenKind::kData, std::string(text));
      }
      const char end_sign = TakeWordTag(end);
      if (end_sign == '-') SkipSpaces();
      if (end_sign == '\0' && Peek() == '\n') Advance(1);
      return absl::OkStatus();
    }
  }

  // Moves past a tag that ends after `length` bytes and returns its sign; '\0' without one.
  char TakeWordTag(size_t length) {
    Advance(length);
    const char sign = source_[position_ - 3];
    return sign == '-' || sign == '+' ? sign : '\0';
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

  // Reads the inside of {{ }} or {% %}.
  absl::Status LexTag(bool is_variable) {
    Push(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin,
         is_variable ? "{{" : "{%");
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
    Push(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, std::string(end));
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
      Push(TokenKind::kName, source_.substr(position_, length));
      Advance(length);
      return absl::OkStatus();
    }
    if (c == '\'' || c == '"') return LexText(c);
    return LexOperator(open_brackets);
  }

  // Reads a decimal integer, or a float with a point or an exponent.
  absl::Status LexNumber() {
    size_t length = CountDigits(0);
    const size_t whole = length;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';  // as in users.0.name
    if (!after_dot && Peek(length) == '.' && IsDigitByte(Peek(length + 1))) {
      length += 1 + CountDigits(length + 1);
    }
    if (!after_dot && (Peek(length) | 0x20) == 'e') {
      const size_t sign = Peek(length + 1) == '+' || Peek(length + 1) == '-' ? 1 : 0;
      const size_t digits = CountDigits(length + 1 + sign);
      if (digits > 0) length += 1 + sign + digits;
    }
    const std::string text = source_.substr(position_, length);
    if (IsNameByte(Peek(length)) || (whole > 1 && text[0] == '0')) {
      return Unimplemented("the number {}{} is not supported, only decimal ones are", text,
                           IsNameByte(Peek(length)) ? source_.substr(position_ + length, 1) : "");
    }
    if (length > whole) {
      Push(TokenKind::kNumber, text).number = std::strtod(text.c_str(), nullptr);
    } else {
      int64_t value = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
      if (read.ec != std::errc()) {
        return InvalidArgument("integer overflow: integers have at most 64 bits");
      }
      Push(TokenKind::kNumber, text).number = value;
    }
    Advance(length);
    return absl::OkStatus();
  }

  size_t CountDigits(size_t start) const {
    size_t length = 0;
    while (IsDigitByte(Peek(start + length))) ++length;
    return length;
  }

  absl::Status LexText(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return InvalidArgument("unexpected char {}", Quoted(std::string_view(&quote, 1)));
    }
    TLM_ASSIGN_OR_RETURN(std::string text, Unescape(std::string_view(source_).substr(
                                               position_ + 1, end - position_ - 1)));
    Push(TokenKind::kText, std::move(text));
    Advance(end + 1 - position_);
    return absl::OkStatus();
  }

  absl::Status LexOperator(std::string* open_brackets) {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    const auto found = std::find_if(kLong.begin(), kLong.end(),
                                    [&](std::string_view symbol) { return LooksAt(symbol); });
    if (found != kLong.end()) {
      Push(TokenKind::kOperator, std::string(*found));
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
    Push(TokenKind::kOperator, std::string(1, c));
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
  if (token.kind == TokenKind::kData) return "template data";
  return token.kind == TokenKind::kEnd ? "end of template" : Quoted(token.text);
}

}  // namespace tlm::jinja
