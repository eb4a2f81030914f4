// Parses expressions such as `a.b[1:]|trim is defined and not c` into the syntax tree.
#ifndef TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
#define TLM_MODEL_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"

namespace tlm::jinja {

// Follows Jinja's own grammar and precedence. INVALID_ARGUMENT for a syntax error and for more than
// kMaxNesting levels, UNIMPLEMENTED for operators, filters, tests, methods and names that are not
// supported; both name the line.
class ExpressionParser {
 public:
  // `tokens` must outlive the parser.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  absl::StatusOr<ExpressionPtr> ParseExpression() { return ParseConditional(); }

  // Parses an expression, or a tuple without parentheses. A name equal to `end_name` ends the
  // tuple.
  struct TupleOptions {
    bool with_conditional = true;
    bool in_parentheses = false;  // an empty tuple is allowed
    std::string_view end_name = {};
  };
  absl::StatusOr<ExpressionPtr> ParseTuple(const TupleOptions& options);
  absl::StatusOr<ExpressionPtr> ParseTuple() { return ParseTuple(TupleOptions{}); }

  // Parses name(arguments) of a filter over `value`; the current token is the name.
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr value);

  // Makes an expression of a name.
  static absl::StatusOr<ExpressionPtr> MakeName(std::string name, int line);

 private:
  absl::StatusOr<ExpressionPtr> ParseConditional();
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseComparison();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcatenation();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseName();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseFiltersAndTests(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseAttribute(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr value);
  // Parses the arguments in parentheses into `call`, which already has its first part.
  absl::StatusOr<ExpressionPtr> ParseCall(Expression call);

  TokenStream& tokens_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
