#include "model/chat/expression_parser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/chat/filters.h"
#include "model/chat/heap.h"

namespace tlm::jinja {
namespace {

using Kind = Token::Kind;

int DepthOf(const ExpressionPtr& part) { return part == nullptr ? 0 : part->depth; }

int DepthOf(const std::vector<Argument>& arguments) {
  int deepest = 0;
  for (const Argument& argument : arguments) deepest = std::max(deepest, argument.value->depth);
  return deepest;
}

int DepthOf(const std::vector<ExpressionPtr>& parts) {
  int deepest = 0;
  for (const ExpressionPtr& part : parts) deepest = std::max(deepest, part->depth);
  return deepest;
}

// `node` over parts of which the deepest has `depth` levels.
template <typename Node>
absl::StatusOr<ExpressionPtr> Make(Node node, int line, int depth) {
  TLM_RETURN_IF_ERROR(Nesting::CheckNesting(depth + 1, line));
  return std::make_unique<const Expression>(Expression{std::move(node), line, depth + 1});
}

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

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  Nesting nesting(&tokens_);
  TLM_RETURN_IF_ERROR(nesting.status());
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const Unary::Op op = tokens_.Take().text == "-" ? Unary::Op::kNegate : Unary::Op::kPosit;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
    const int depth = operand->depth;
    TLM_ASSIGN_OR_RETURN(value, Make(Unary{op, std::move(operand)}, line, depth));
  } else {
    TLM_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  TLM_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  return with_filters ? ParseFiltersAndTests(std::move(value))
                      : absl::StatusOr<ExpressionPtr>(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case Kind::kName:
      return ParseName();
    case Kind::kText: {
      std::string text;
      while (tokens_.current().kind == Kind::kText) text += tokens_.Take().text;
      return Make(Literal{MakeConstantText(std::move(text))}, line, 0);
    }
    case Kind::kInteger:
      return Make(Literal{tokens_.Take().integer}, line, 0);
    case Kind::kFloat:
      return Make(Literal{tokens_.Take().real}, line, 0);
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

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseName() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Make(Literal{true}, token.line, 0);
  if (name == "false" || name == "False") return Make(Literal{false}, token.line, 0);
  if (name == "none" || name == "None") return Make(Literal{None{}}, token.line, 0);
  if (name == "self") {
    return Unimplemented("line {}: the special name '{}' is not supported", token.line, name);
  }
  NoteSpecialName(name);
  return Make(Name{name}, token.line, 0);
}

void ExpressionParser::EnterMacro(
    const std::vector<std::pair<std::string, ExpressionPtr>>& parameters) {
  Macro& macro = macros_.emplace_back();
  for (const auto& [name, otherwise] : parameters) macro.parameters.push_back(name);
}

SpecialNames ExpressionParser::LeaveMacro() {
  const SpecialNames special = macros_.back().special;
  macros_.pop_back();
  return special;
}

void ExpressionParser::NoteSpecialName(std::string_view name) {
  if (name != "caller" && name != "varargs" && name != "kwargs") return;
  for (Macro& macro : macros_) {
    const auto& known = macro.parameters;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    macro.special.caller = macro.special.caller || name == "caller";
    macro.special.varargs = macro.special.varargs || name == "varargs";
    macro.special.kwargs = macro.special.kwargs || name == "kwargs";
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.IsOperator("]")) {
    if (!items.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("]")) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    items.push_back(std::move(item));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  const int depth = DepthOf(items);
  return Make(SequenceLiteral{false, std::move(items)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  const int line = tokens_.Take().line;
  DictLiteral dict;
  int depth = 0;
  while (!tokens_.IsOperator("}")) {
    if (!dict.members.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("}")) break;
    TLM_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    depth = std::max({depth, key->depth, value->depth});
    dict.members.emplace_back(std::move(key), std::move(value));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Make(std::move(dict), line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      TLM_ASSIGN_OR_RETURN(value, ParseAttribute(std::move(value)));
    } else if (tokens_.IsOperator("[")) {
      TLM_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      TLM_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  for (;;) {
    const int line = tokens_.line();
    if (tokens_.TakeOperator("|")) {
      TLM_ASSIGN_OR_RETURN(FilterCall filter, ParseFilterCall());
      const int depth = std::max(value->depth, DepthOf(filter.arguments));
      TLM_ASSIGN_OR_RETURN(value, Make(Filtered{std::move(value), std::move(filter)}, line, depth));
    } else if (tokens_.TakeName("is")) {
      TLM_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      TLM_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  const int depth = object->depth;
  if (tokens_.current().kind == Kind::kName) {
    return Make(AttributeOf{std::move(object), tokens_.Take().text}, line, depth);
  }
  if (tokens_.current().kind != Kind::kInteger) return tokens_.Unexpected("a name or number");
  TLM_ASSIGN_OR_RETURN(ExpressionPtr key, Make(Literal{tokens_.Take().integer}, line, 0));
  return Make(ItemOf{std::move(object), std::move(key)}, line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  ExpressionPtr parts[3];
  bool is_slice = false;
  const auto at_end = [&] { return tokens_.IsOperator("]") || tokens_.IsOperator(","); };
  for (ExpressionPtr& part : parts) {
    if (!tokens_.IsOperator(":") && !at_end()) {
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
  const int depth =
      std::max({object->depth, DepthOf(parts[0]), DepthOf(parts[1]), DepthOf(parts[2])});
  if (!is_slice) return Make(ItemOf{std::move(object), std::move(parts[0])}, line, depth);
  return Make(
      SliceOf{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
      line, depth);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr function) {
  const int line = tokens_.line();
  TLM_ASSIGN_OR_RETURN(std::vector<Argument> arguments, ParseArguments());
  const int depth = std::max(function->depth, DepthOf(arguments));
  return Make(Call{std::move(function), std::move(arguments)}, line, depth);
}

absl::StatusOr<std::vector<Argument>> ExpressionParser::ParseArguments() {
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  std::vector<Argument> arguments;
  while (!tokens_.IsOperator(")")) {
    if (!arguments.empty()) {
      TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
    }
    const int line = tokens_.line();
    TLM_ASSIGN_OR_RETURN(Argument argument, ParseArgument());
    // Kinds come in the order of their enumeration: *list is the last but **dict and name=value.
    using ArgumentKind = Argument::Kind;
    const ArgumentKind last = arguments.empty() ? ArgumentKind::kPositional : arguments.back().kind;
    const bool repeats =
        argument.kind == last && last != ArgumentKind::kPositional && last != ArgumentKind::kNamed;
    const bool named_behind_list =
        argument.kind == ArgumentKind::kNamed && last == ArgumentKind::kList;
    if (repeats || (argument.kind < last && !named_behind_list)) {
      return InvalidArgument("line {}: invalid syntax for function call expression", line);
    }
    arguments.push_back(std::move(argument));
  }
  TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return arguments;
}

absl::StatusOr<Argument> ExpressionParser::ParseArgument() {
  Argument argument{Argument::Kind::kPositional, "", nullptr};
  if (tokens_.TakeOperator("*")) {
    argument.kind = Argument::Kind::kList;
  } else if (tokens_.TakeOperator("**")) {
    argument.kind = Argument::Kind::kDict;
  } else if (tokens_.current().kind == Kind::kName && tokens_.ahead().IsOperator("=")) {
    argument.kind = Argument::Kind::kNamed;
    argument.name = tokens_.Take().text;
    tokens_.Take();
  }
  TLM_ASSIGN_OR_RETURN(argument.value, ParseExpression());
  return argument;
}

absl::StatusOr<FilterCall> ExpressionParser::ParseFilterCall() {
  const int line = tokens_.line();
  FilterCall filter;
  TLM_ASSIGN_OR_RETURN(filter.name, tokens_.ExpectAnyName());
  if (!IsFilter(filter.name)) {
    return Unimplemented("line {}: filter {} is not supported", line, Quoted(filter.name));
  }
  if (tokens_.IsOperator("(")) {
    TLM_ASSIGN_OR_RETURN(filter.arguments, ParseArguments());
  }
  return filter;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr value) {
  const int line = tokens_.line();
  const bool negated = tokens_.TakeName("not");
  TLM_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectAnyName());
  if (!IsTest(name)) {
    return Unimplemented("line {}: test {} is not supported", line, Quoted(name));
  }
  TLM_ASSIGN_OR_RETURN(std::vector<Argument> arguments, ParseTestArguments());
  const int depth = std::max(value->depth, DepthOf(arguments));
  TLM_ASSIGN_OR_RETURN(
      ExpressionPtr test,
      Make(Tested{std::move(value), std::move(name), std::move(arguments)}, line, depth));
  if (!negated) return test;
  return Make(Unary{Unary::Op::kNot, std::move(test)}, line, depth + 1);
}

absl::StatusOr<std::vector<Argument>> ExpressionParser::ParseTestArguments() {
  if (tokens_.IsOperator("(")) return ParseArguments();
  std::vector<Argument> arguments;
  const Kind kind = tokens_.current().kind;
  const bool starts_argument = kind == Kind::kName || kind == Kind::kText ||
                               kind == Kind::kInteger || kind == Kind::kFloat ||
                               tokens_.IsOperator("[") || tokens_.IsOperator("{");
  if (!starts_argument || tokens_.IsAnyName({"else", "or", "and"})) return arguments;
  if (tokens_.IsName("is")) {
    return InvalidArgument("line {}: You cannot chain multiple tests with is", tokens_.line());
  }
  TLM_ASSIGN_OR_RETURN(ExpressionPtr value, ParsePrimary());
  TLM_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  arguments.push_back({Argument::Kind::kPositional, "", std::move(value)});
  return arguments;
}

}  // namespace tlm::jinja
