// Expressions: from `a.b[1:]|trim is defined and not c` to the syntax tree.
#ifndef TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
#define TLM_MODEL_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/token_stream.h"

namespace tlm::jinja {

// Follows Jinja's own grammar and precedence. INVALID_ARGUMENT for a fault of syntax and for more
// than kMaxNesting levels, UNIMPLEMENTED for filters, tests and names that are not supported; both
// name the line.
class ExpressionParser {
 public:
  // `tokens` outlives this.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  absl::StatusOr<ExpressionPtr> ParseExpression(bool with_conditional = true);

  // An expression, or a tuple without parentheses. `end_name`: a name that ends the tuple.
  struct TupleOptions {
    bool with_conditional = true;
    bool in_parentheses = false;  // where an empty tuple may stand
    std::string_view end_name = {};
  };
  absl::StatusOr<ExpressionPtr> ParseTuple(const TupleOptions& options);
  absl::StatusOr<ExpressionPtr> ParseTuple() { return ParseTuple(TupleOptions{}); }

  // name(arguments) of a filter, from its name on.
  absl::StatusOr<FilterCall> ParseFilterCall();

  // Between these two stands the body of a macro: which special names it reads that are not among
  // its parameters.
  void EnterMacro(const std::vector<std::pair<std::string, ExpressionPtr>>& parameters);
  SpecialNames LeaveMacro();

 private:
  absl::StatusOr<ExpressionPtr> ParseConditional();
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseComparison();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcatenation();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
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
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr function);
  absl::StatusOr<std::vector<Argument>> ParseArguments();
  absl::StatusOr<Argument> ParseArgument();
  absl::StatusOr<std::vector<Argument>> ParseTestArguments();

  TokenStream& tokens_;

  struct Macro {
    std::vector<std::string> parameters;
    SpecialNames special;
  };
  void NoteSpecialName(std::string_view name);
  std::vector<Macro> macros_;  // around the current token
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_EXPRESSION_PARSER_H_
