// Expressions: from `a.b[1:]|trim is defined and not c` to the syntax tree.
#ifndef TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
#define TLM_MODEL_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"

namespace tlm::jinja {

// Follows Jinja's own grammar and precedence. INVALID_ARGUMENT for a fault of syntax and for more
// than kMaxNesting levels, UNIMPLEMENTED for operators, filters, tests, methods and names that are
// not supported; both name the line.
class ExpressionParser {
 public:
  // `tokens` outlives this.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  absl::StatusOr<ExpressionPtr> ParseExpression() { return ParseConditional(); }

  // An expression, or a tuple without parentheses. `end_name`: a name that ends the tuple.
  struct TupleOptions {
    bool with_conditional = true;
    bool in_parentheses = false;  // where an empty tuple may stand
    std::string_view end_name = {};
  };
  absl::StatusOr<ExpressionPtr> ParseTuple(const TupleOptions& options);
  absl::StatusOr<ExpressionPtr> ParseTuple() { return ParseTuple(TupleOptions{}); }

  // name(arguments) of a filter over `value`, from its name on.
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr value);

  // Where a name stands.
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
  // `call`, whose first part it has, with the arguments in parentheses.
  absl::StatusOr<ExpressionPtr> ParseCall(Expression call);

  TokenStream& tokens_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
