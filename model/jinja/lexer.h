// Template source to tokens, as Jinja's lexer makes them with trim_blocks and lstrip_blocks on and
// keep_trailing_newline off.
#ifndef TLM_MODEL_JINJA_LEXER_H_
#define TLM_MODEL_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm::jinja {

struct Token {
  enum class Kind {
    kData,           // text between tags
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,
    kText,  // a literal, its escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the template
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // of data, names, text literals and operators
  int64_t integer = 0;
  double real = 0;

  bool IsOperator(std::string_view symbol) const {
    return kind == Kind::kOperator && text == symbol;
  }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// Ends with a token of kind kEnd. INVALID_ARGUMENT and UNIMPLEMENTED name the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// What a token is called in messages.
std::string DescribeToken(const Token& token);

// The content of a text literal between its quotes, with escapes resolved as Python's
// unicode-escape codec does.
absl::StatusOr<std::string> Unescape(std::string_view literal);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_LEXER_H_
