#include "model/jinja/evaluator.h"

#include <string>
#include <utility>
#include <variant>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/access.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/comparison.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {

absl::StatusOr<Value> Evaluator::Evaluate(const Expression& expression) {
  StackLevel level(heap_);
  TLM_RETURN_IF_ERROR(level.status());
  TLM_RETURN_IF_ERROR(heap_->Step());
  return std::visit(*this, expression.node);
}

absl::StatusOr<Arguments> Evaluator::EvaluateArguments(const std::vector<Argument>& arguments) {
  Arguments result;
  for (const Argument& argument : arguments) {
    TLM_ASSIGN_OR_RETURN(Value value, Evaluate(*argument.value));
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        result.positional.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        TLM_RETURN_IF_ERROR(AddNamed(argument.name, value, &result));
        break;
      case Argument::Kind::kList: {
        TLM_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(heap_, value));
        result.positional.insert(result.positional.end(), items.begin(), items.end());
        break;
      }
      case Argument::Kind::kDict:
        TLM_RETURN_IF_ERROR(SpreadDict(value, &result));
        break;
    }
  }
  return result;
}

absl::Status Evaluator::SpreadDict(const Value& value, Arguments* arguments) {
  const auto* const dict = std::get_if<const Dict*>(&value);
  if (dict == nullptr) {
    return InvalidArgument("argument after ** must be a mapping, not {}", TypeName(value));
  }
  for (const auto& [key, member] : (*dict)->members) {
    TLM_RETURN_IF_ERROR(heap_->Step());
    const auto* const name = std::get_if<TextPtr>(&key);
    if (name == nullptr) return InvalidArgument("keywords must be strings");
    TLM_RETURN_IF_ERROR(AddNamed((*name)->bytes, member, arguments));
  }
  return absl::OkStatus();
}

absl::Status Evaluator::AddNamed(const std::string& name, const Value& value,
                                 Arguments* arguments) {
  TLM_RETURN_IF_ERROR(heap_->Work(arguments->named.size() * sizeof(Value)));
  for (const auto& [other, other_value] : arguments->named) {
    if (other == name) return InvalidArgument("keyword argument {} repeats", Quoted(name));
  }
  arguments->named.emplace_back(name, value);
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::operator()(const Literal& node) { return node.value; }

absl::StatusOr<Value> Evaluator::operator()(const Name& node) {
  if (const Value* const value = scope_.Find(node.name)) return *value;
  if (node.name == "lipsum" || node.name == "cycler" || node.name == "joiner") {
    return Unimplemented("the function '{}' is not supported", node.name);
  }
  return heap_->MakeUndefined(fmt::format("'{}' is undefined", node.name));
}

absl::StatusOr<Value> Evaluator::operator()(const SequenceLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    TLM_ASSIGN_OR_RETURN(Value value, Evaluate(*item));
    items.push_back(std::move(value));
  }
  return node.is_tuple ? heap_->MakeTuple(std::move(items)) : heap_->MakeList(std::move(items));
}

absl::StatusOr<Value> Evaluator::operator()(const DictLiteral& node) {
  Dict::Members members;
  for (const auto& [key_expression, value_expression] : node.members) {
    TLM_ASSIGN_OR_RETURN(const Value key, Evaluate(*key_expression));
    TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*value_expression));
    TLM_RETURN_IF_ERROR(SetMember(heap_, key, value, &members));
  }
  return heap_->MakeDict(std::move(members));
}

absl::StatusOr<Value> Evaluator::operator()(const Unary& node) {
  TLM_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand));
  switch (node.op) {
    case Unary::Op::kNot:
      return !IsTruthy(operand);
    case Unary::Op::kNegate:
      return Negate(operand);
    default:
      return Posit(operand);
  }
}

absl::StatusOr<Value> Evaluator::operator()(const Binary& node) {
  TLM_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left));
  TLM_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right));
  return Apply(heap_, node.op, left, right);
}

absl::StatusOr<Value> Evaluator::operator()(const Logical& node) {
  TLM_ASSIGN_OR_RETURN(Value left, Evaluate(*node.left));
  if (IsTruthy(left) != node.is_and) return left;
  return Evaluate(*node.right);
}

absl::StatusOr<Value> Evaluator::operator()(const Concatenation& node) {
  std::vector<Value> parts;
  for (const ExpressionPtr& part : node.parts) {
    TLM_ASSIGN_OR_RETURN(Value value, Evaluate(*part));
    parts.push_back(std::move(value));
  }
  std::string result;
  for (const Value& part : parts) {
    TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap_, part));
    TLM_RETURN_IF_ERROR(heap_->CheckRoom(result.size() + text->bytes.size()));
    result += text->bytes;
  }
  return heap_->MakeText(std::move(result));
}

absl::StatusOr<Value> Evaluator::operator()(const Comparison& node) {
  TLM_ASSIGN_OR_RETURN(Value left, Evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    TLM_ASSIGN_OR_RETURN(Value right, Evaluate(*operand));
    TLM_ASSIGN_OR_RETURN(const bool holds, Compare(heap_, op, left, right));
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

absl::StatusOr<Value> Evaluator::operator()(const Conditional& node) {
  TLM_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.condition));
  if (IsTruthy(condition)) return Evaluate(*node.value);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise);
  return heap_->MakeUndefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

absl::StatusOr<Value> Evaluator::operator()(const AttributeOf& node) {
  TLM_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  return GetAttribute(heap_, object, node.name);
}

absl::StatusOr<Value> Evaluator::operator()(const ItemOf& node) {
  TLM_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  TLM_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.key));
  return GetItem(heap_, object, key);
}

absl::StatusOr<Value> Evaluator::operator()(const SliceOf& node) {
  TLM_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  SliceBounds bounds;
  for (const auto& [expression, bound] :
       {std::pair(&node.start, &bounds.start), std::pair(&node.stop, &bounds.stop),
        std::pair(&node.step, &bounds.step)}) {
    if (*expression == nullptr) continue;
    TLM_ASSIGN_OR_RETURN(*bound, Evaluate(**expression));
  }
  return GetSlice(heap_, object, bounds);
}

absl::StatusOr<Value> Evaluator::operator()(const Call& node) {
  return EvaluateCall(node, nullptr);
}

absl::StatusOr<Value> Evaluator::EvaluateCall(const Call& call, const Value* caller) {
  TLM_ASSIGN_OR_RETURN(const Value function, Evaluate(*call.function));
  TLM_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  if (const auto* callable = std::get_if<const Callable*>(&function)) {
    return (*callable)->Call(std::move(arguments));
  }
  if (const auto* undefined = std::get_if<Undefined>(&function)) {
    return InvalidArgument("{}", undefined->why->bytes);
  }
  return InvalidArgument("'{}' object is not callable", TypeName(function));
}

absl::StatusOr<Value> Evaluator::operator()(const Filtered& node) {
  TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  TLM_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.filter.arguments));
  return ApplyFilter(heap_, node.filter.name, value, std::move(arguments));
}

absl::StatusOr<Value> Evaluator::operator()(const Tested& node) {
  TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  TLM_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.arguments));
  return ApplyTest(heap_, node.name, value, std::move(arguments));
}

}  // namespace tlm::jinja
