#include "model/jinja/expression_parser.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/make_expression.h"

namespace tlm::jinja {
namespace {

using Kind = Token::Kind;

absl::StatusOr<ExpressionPtr> MakeBinary(BinaryOp op, ExpressionPtr left, ExpressionPtr right,
                                         int line) {
  const int depth = std::max(left->depth, right->depth);
  return Make(Binary{op, std::move(left), std::move(right)}, line, depth);
}

}  // namespace

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression(bool with_conditional) {
  return with_conditional ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(const TupleOptions& options) {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    const Kind kind = tokens_.current().kind;
    return kind == Kind::kVariableEnd || kind == Kind::kBlockEnd || tokens_.IsOperator(")") ||
           (!options.end_name.empty() && tokens_.IsName(options.end_name));
  };
  for (;;) {
    if (!items.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (at_end()) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(options.with_conditional));
    items.push_back(std::move(item));
    if (!tokens_.IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !options.in_parentheses) return tokens_.Unexpected("an expression");
  const int depth = DepthOf(items);
  return Make(SequenceLiteral{true, std::move(items)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  Nesting nesting(&tokens_);
  TLM_RETURN_IF_ERROR(nesting.status());
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (tokens_.TakeName("if")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (tokens_.TakeName("else")) {
      TLM_ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    const int depth = std::max({value->depth, condition->depth, DepthOf(otherwise)});
    TLM_ASSIGN_OR_RETURN(
        value, Make(Conditional{std::move(condition), std::move(value), std::move(otherwise)}, line,
                    depth));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.TakeName("or")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    const int depth = std::max(left->depth, right->depth);
    TLM_ASSIGN_OR_RETURN(
        left, Make(Logical{false, std::move(left), std::move(right)}, tokens_.line(), depth));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.TakeName("and")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    const int depth = std::max(left->depth, right->depth);
    TLM_ASSIGN_OR_RETURN(
        left, Make(Logical{true, std::move(left), std::move(right)}, tokens_.line(), depth));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  Nesting nesting(&tokens_);
  TLM_RETURN_IF_ERROR(nesting.status());
  const int line = tokens_.line();
  if (!tokens_.TakeName("not")) return ParseComparison();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  const int depth = operand->depth;
  return Make(Unary{Unary::Op::kNot, std::move(operand)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseComparison() {
  constexpr std::pair<std::string_view, CompareOp> kSymbols[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
  int depth = first->depth;
  for (;;) {
    CompareOp op = CompareOp::kIn;
    const auto* const symbol =
        std::find_if(std::begin(kSymbols), std::end(kSymbols),
                     [&](const auto& entry) { return tokens_.IsOperator(entry.first); });
    if (symbol != std::end(kSymbols)) {
      op = symbol->second;
      tokens_.Take();
    } else if (tokens_.IsName("not") && tokens_.ahead().IsName("in")) {
      op = CompareOp::kNotIn;
      tokens_.Take();
      tokens_.Take();
    } else if (!tokens_.TakeName("in")) {
      break;
    }
    TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    depth = std::max(depth, operand->depth);
    rest.emplace_back(op, std::move(operand));
  }
  if (rest.empty()) return first;
  return Make(Comparison{std::move(first), std::move(rest)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcatenation());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Token op = tokens_.Take();
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    TLM_ASSIGN_OR_RETURN(left, MakeBinary(op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract,
                                          std::move(left), std::move(right), op.line));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcatenation() {
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!tokens_.IsOperator("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (tokens_.TakeOperator("~")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    parts.push_back(std::move(part));
  }
  const int depth = DepthOf(parts);
  return Make(Concatenation{std::move(parts)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  constexpr std::pair<std::string_view, BinaryOp> kSymbols[] = {{"*", BinaryOp::kMultiply},
                                                                {"/", BinaryOp::kDivide},
                                                                {"//", BinaryOp::kFloorDivide},
                                                                {"%", BinaryOp::kModulo}};
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  for (;;) {
    const auto* const symbol =
        std::find_if(std::begin(kSymbols), std::end(kSymbols),
                     [&](const auto& entry) { return tokens_.IsOperator(entry.first); });
    if (symbol == std::end(kSymbols)) return left;
    const int line = tokens_.Take().line;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    TLM_ASSIGN_OR_RETURN(left, MakeBinary(symbol->second, std::move(left), std::move(right), line));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filters=*/true));
  while (tokens_.IsOperator("**")) {
    const int line = tokens_.Take().line;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filters=*/true));
    TLM_ASSIGN_OR_RETURN(left,
                         MakeBinary(BinaryOp::kPower, std::move(left), std::move(right), line));
  }
  return left;
}

}  // namespace tlm::jinja
