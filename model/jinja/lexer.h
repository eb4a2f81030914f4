// Divides template source into tokens, like Jinja's lexer with trim_blocks and lstrip_blocks on and
// keep_trailing_newline off.
#ifndef TLM_MODEL_JINJA_LEXER_H_
#define TLM_MODEL_JINJA_LEXER_H_

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/jinja/limits.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

struct Token {
  enum class Kind {
    kData,           // text between tags
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,
    kText,  // a literal, with its escapes resolved
    kNumber,
    kOperator,
    kEnd,  // the end of the template
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // as in the source, except for text literals
  Value number;      // an integer or a float

  bool IsOperator(std::string_view symbol) const {
    return kind == Kind::kOperator && text == symbol;
  }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

using TokenKind = Token::Kind;

// The last token is of kind kEnd. INVALID_ARGUMENT and UNIMPLEMENTED name the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// Returns the token's description for messages.
std::string DescribeToken(const Token& token);

// The tokens of a template for a parser that reads them in order.
class TokenStream {
 public:
  // `tokens` must end with one of kind kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }

  bool IsOperator(std::string_view symbol) const { return current().IsOperator(symbol); }
  bool IsName(std::string_view name) const { return current().IsName(name); }
  bool IsAnyName(std::initializer_list<std::string_view> names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return IsName(name); });
  }

  // Returns the current token and moves on to the next.
  Token Take() {
    Token token = current();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool TakeOperator(std::string_view symbol) {
    const bool found = IsOperator(symbol);
    if (found) Take();
    return found;
  }
  bool TakeName(std::string_view name) {
    const bool found = IsName(name);
    if (found) Take();
    return found;
  }

  // INVALID_ARGUMENT, naming the line, when the current token is another.
  absl::Status ExpectOperator(std::string_view symbol) {
    if (TakeOperator(symbol)) return absl::OkStatus();
    return Unexpected(fmt::format("'{}'", symbol));
  }
  absl::Status ExpectName(std::string_view name) {
    if (TakeName(name)) return absl::OkStatus();
    return Unexpected(fmt::format("'{}'", name));
  }
  absl::Status Expect(Token::Kind kind, std::string_view what) {
    if (current().kind != kind) return Unexpected(what);
    Take();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectAnyName() {
    if (current().kind != Token::Kind::kName) return Unexpected("a name");
    return Take().text;
  }
  absl::Status Unexpected(std::string_view wanted) const {
    return InvalidArgument("line {}: expected {}, got {}", line(), wanted,
                           DescribeToken(current()));
  }

 private:
  friend class Nesting;

  const std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
};

// Counts one level of brackets, operators or blocks while it lives.
class Nesting {
 public:
  explicit Nesting(TokenStream* tokens) : tokens_(tokens) { ++tokens_->nesting_; }
  ~Nesting() { --tokens_->nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  // INVALID_ARGUMENT when there are too many levels.
  absl::Status status() const { return CheckNesting(tokens_->nesting_, tokens_->line()); }

  static absl::Status CheckNesting(int levels, int line) {
    if (levels <= kMaxNesting) return absl::OkStatus();
    return InvalidArgument("line {}: the template nests deeper than the limit of {} levels", line,
                           kMaxNesting);
  }

 private:
  TokenStream* const tokens_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_LEXER_H_
