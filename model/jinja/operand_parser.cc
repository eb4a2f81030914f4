// The part of ExpressionParser for operands: literals, names and what stands behind them.
#include <algorithm>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/expression_parser.h"
#include "model/jinja/filters.h"
#include "model/jinja/heap.h"
#include "model/jinja/make_expression.h"

namespace tlm::jinja {
namespace {

using Kind = Token::Kind;

}  // namespace

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
