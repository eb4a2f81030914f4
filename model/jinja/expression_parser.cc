#include "model/jinja/expression_parser.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/builtins.h"

namespace tlm::jinja {
namespace {

using Kind = Expression::Kind;

constexpr std::string_view kUnsupportedNames[] = {"cycler", "joiner", "kwargs",
                                                  "lipsum", "self",   "varargs"};
constexpr std::string_view kUnsupportedOfLoop[] = {"changed", "cycle", "depth", "depth0"};

// Makes `node` with its depth.
absl::StatusOr<ExpressionPtr> Make(Expression node) {
  for (const ExpressionPtr& part : node.parts) {
    if (part != nullptr) node.depth = std::max(node.depth, part->depth);
  }
  ++node.depth;
  TLM_RETURN_IF_ERROR(Nesting::CheckNesting(node.depth, node.line));
  return std::make_unique<const Expression>(std::move(node));
}

template <typename... Parts>
absl::StatusOr<ExpressionPtr> Make(Expression node, Parts... parts) {
  (node.parts.push_back(std::move(parts)), ...);
  return Make(std::move(node));
}

}  // namespace

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(const TupleOptions& options) {
  Expression tuple{Kind::kTuple, tokens_.line()};
  bool is_tuple = false;
  const auto at_end = [&] {
    const TokenKind kind = tokens_.current().kind;
    return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd ||
           tokens_.IsOperator(")") ||
           (!options.end_name.empty() && tokens_.IsName(options.end_name));
  };
  for (;;) {
    if (!tuple.parts.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (at_end()) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr item,
                         options.with_conditional ? ParseConditional() : ParseOr());
    tuple.parts.push_back(std::move(item));
    if (!tokens_.IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.parts.empty()) return std::move(tuple.parts[0]);
  if (!is_tuple && !options.in_parentheses) return tokens_.Unexpected("an expression");
  return Make(std::move(tuple));
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
    TLM_ASSIGN_OR_RETURN(value, Make({Kind::kConditional, line}, std::move(value),
                                     std::move(condition), std::move(otherwise)));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.TakeName("or")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    TLM_ASSIGN_OR_RETURN(left, Make({Kind::kOr, line}, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.TakeName("and")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    TLM_ASSIGN_OR_RETURN(left, Make({Kind::kAnd, line}, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  Nesting nesting(&tokens_);
  TLM_RETURN_IF_ERROR(nesting.status());
  const int line = tokens_.line();
  if (!tokens_.TakeName("not")) return ParseComparison();
  TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return Make({Kind::kNot, line}, std::move(operand));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseComparison() {
  constexpr std::pair<std::string_view, CompareOp> kSymbols[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  Expression comparison{Kind::kComparison, tokens_.line()};
  for (;;) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    comparison.parts.push_back(std::move(operand));
    const auto* const symbol =
        std::find_if(std::begin(kSymbols), std::end(kSymbols),
                     [&](const auto& entry) { return tokens_.TakeOperator(entry.first); });
    if (symbol != std::end(kSymbols)) {
      comparison.comparisons.push_back(symbol->second);
    } else if (tokens_.TakeName("in")) {
      comparison.comparisons.push_back(CompareOp::kIn);
    } else if (tokens_.IsName("not") && tokens_.ahead().IsName("in")) {
      comparison.comparisons.push_back(CompareOp::kNotIn);
      tokens_.Take();
      tokens_.Take();
    } else {
      break;
    }
  }
  if (comparison.comparisons.empty()) return std::move(comparison.parts[0]);
  return Make(std::move(comparison));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcatenation());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Token symbol = tokens_.Take();
    Expression sum{Kind::kBinary, symbol.line};
    sum.op = symbol.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    TLM_ASSIGN_OR_RETURN(left, Make(std::move(sum), std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcatenation() {
  Expression concatenation{Kind::kConcatenation, tokens_.line()};
  do {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    concatenation.parts.push_back(std::move(part));
  } while (tokens_.TakeOperator("~"));
  if (concatenation.parts.size() == 1) return std::move(concatenation.parts[0]);
  return Make(std::move(concatenation));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  TLM_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filters=*/true));
  while (tokens_.IsOperator("*") || tokens_.IsOperator("%")) {
    const Token symbol = tokens_.Take();
    Expression product{Kind::kBinary, symbol.line};
    product.op = symbol.text == "*" ? BinaryOp::kMultiply : BinaryOp::kModulo;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filters=*/true));
    TLM_ASSIGN_OR_RETURN(left, Make(std::move(product), std::move(left), std::move(right)));
  }
  for (const std::string_view unsupported : {"/", "//", "**"}) {
    if (!tokens_.IsOperator(unsupported)) continue;
    return Unimplemented("line {}: the operator {} is not supported", tokens_.line(), unsupported);
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  Nesting nesting(&tokens_);
  TLM_RETURN_IF_ERROR(nesting.status());
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.TakeOperator("-")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
    TLM_ASSIGN_OR_RETURN(value, Make({Kind::kNegate, line}, std::move(operand)));
  } else {
    TLM_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  TLM_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  return with_filters ? ParseFiltersAndTests(std::move(value))
                      : absl::StatusOr<ExpressionPtr>(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  Expression literal{Kind::kLiteral, tokens_.line()};
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kText: {
      std::string text;
      while (tokens_.current().kind == TokenKind::kText) text += tokens_.Take().text;
      literal.value = MakeConstantText(std::move(text));
      return Make(std::move(literal));
    }
    case TokenKind::kNumber:
      literal.value = tokens_.Take().number;
      return Make(std::move(literal));
    default:
      break;
  }
  if (tokens_.TakeOperator("(")) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple({.in_parentheses = true}));
    TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return value;
  }
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::MakeName(std::string name, int line) {
  Expression node{Kind::kName, line};
  node.name = std::move(name);
  return Make(std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseName() {
  Token token = tokens_.Take();
  const std::string& name = token.text;
  Expression literal{Kind::kLiteral, token.line};
  if (name == "none" || name == "None") return Make(std::move(literal));
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    literal.value = name == "true" || name == "True";
    return Make(std::move(literal));
  }
  if (IsAmong(kUnsupportedNames, name)) {
    return Unimplemented("line {}: the special name '{}' is not supported", token.line, name);
  }
  return MakeName(std::move(token.text), token.line);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  Expression list{Kind::kList, tokens_.Take().line};
  while (!tokens_.IsOperator("]")) {
    if (!list.parts.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("]")) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.parts.push_back(std::move(item));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return Make(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  Expression dict{Kind::kDict, tokens_.Take().line};
  while (!tokens_.IsOperator("}")) {
    if (!dict.parts.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("}")) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict.parts.push_back(std::move(key));
    dict.parts.push_back(std::move(value));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Make(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      TLM_ASSIGN_OR_RETURN(value, ParseAttribute(std::move(value)));
    } else if (tokens_.IsOperator("[")) {
      TLM_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      Expression call{Kind::kCall, tokens_.line()};
      call.parts.push_back(std::move(value));
      TLM_ASSIGN_OR_RETURN(value, ParseCall(std::move(call)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  for (;;) {
    if (tokens_.TakeOperator("|")) {
      TLM_ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
    } else if (tokens_.TakeName("is")) {
      TLM_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  if (tokens_.current().kind == TokenKind::kNumber) {
    TLM_ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
    return Make({Kind::kItem, line}, std::move(object), std::move(index));
  }
  Expression attribute{Kind::kAttribute, line};
  TLM_ASSIGN_OR_RETURN(attribute.name, tokens_.ExpectAnyName());
  if (tokens_.IsOperator("(") && IsUnsupportedMethod(attribute.name)) {
    return Unimplemented("line {}: method '{}' is not supported", line, attribute.name);
  }
  const bool is_loop = object->kind == Kind::kName && object->name == "loop";
  if (is_loop && IsAmong(kUnsupportedOfLoop, attribute.name)) {
    return Unimplemented("line {}: loop.{} is not supported", line, attribute.name);
  }
  return Make(std::move(attribute), std::move(object));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  ExpressionPtr parts[3];
  bool is_slice = false;
  for (ExpressionPtr& part : parts) {
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) {
      TLM_ASSIGN_OR_RETURN(part, ParseExpression());
    }
    if (&part == &parts[2] || !tokens_.TakeOperator(":")) break;
    is_slice = true;
  }
  if (tokens_.IsOperator(",")) {
    return Unimplemented("line {}: a subscript with a comma is not supported", line);
  }
  if (!is_slice && parts[0] == nullptr) return tokens_.Unexpected("a subscript");
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (!is_slice) return Make({Kind::kItem, line}, std::move(object), std::move(parts[0]));
  return Make({Kind::kSlice, line}, std::move(object), std::move(parts[0]), std::move(parts[1]),
              std::move(parts[2]));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(Expression call) {
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.IsOperator(")")) {
    if (!call.argument_names.empty()) {
      TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
    }
    const int line = tokens_.line();
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return Unimplemented("line {}: * and ** in a call are not supported", line);
    }
    std::string name;
    if (tokens_.current().kind == TokenKind::kName && tokens_.ahead().IsOperator("=")) {
      name = tokens_.Take().text;
      tokens_.Take();
    } else if (!call.argument_names.empty() && !call.argument_names.back().empty()) {
      return InvalidArgument("line {}: invalid syntax for function call expression", line);
    }
    TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    call.parts.push_back(std::move(value));
    call.argument_names.push_back(std::move(name));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return Make(std::move(call));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr value) {
  Expression filter{Kind::kFilter, tokens_.line()};
  filter.parts.push_back(std::move(value));
  TLM_ASSIGN_OR_RETURN(filter.name, tokens_.ExpectAnyName());
  if (!IsFilter(filter.name)) {
    return Unimplemented("line {}: filter {} is not supported", filter.line, Quoted(filter.name));
  }
  return tokens_.IsOperator("(") ? ParseCall(std::move(filter)) : Make(std::move(filter));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr value) {
  Expression test{Kind::kTest, tokens_.line()};
  test.parts.push_back(std::move(value));
  const bool negated = tokens_.TakeName("not");
  TLM_ASSIGN_OR_RETURN(test.name, tokens_.ExpectAnyName());
  if (!IsTest(test.name)) {
    return Unimplemented("line {}: test {} is not supported", test.line, Quoted(test.name));
  }
  if (tokens_.IsName("is")) {
    return InvalidArgument("line {}: You cannot chain multiple tests with is", test.line);
  }
  const int line = test.line;
  absl::StatusOr<ExpressionPtr> result;
  if (tokens_.IsOperator("(")) {
    result = ParseCall(std::move(test));
  } else {
    const TokenKind kind = tokens_.current().kind;
    const bool starts_argument = kind == TokenKind::kName || kind == TokenKind::kText ||
                                 kind == TokenKind::kNumber || tokens_.IsOperator("[") ||
                                 tokens_.IsOperator("{");
    if (starts_argument && !tokens_.IsAnyName({"else", "or", "and"})) {
      TLM_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
      TLM_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
      test.parts.push_back(std::move(argument));
      test.argument_names.emplace_back();
    }
    result = Make(std::move(test));
  }
  if (!negated || !result.ok()) return result;
  return Make({Kind::kNot, line}, *std::move(result));
}

}  // namespace tlm::jinja
