#include "model/jinja/evaluator.h"

#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/access.h"
#include "model/jinja/builtins.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

using Kind = Expression::Kind;

// Evaluates expressions of one scope.
class Evaluator {
 public:
  Evaluator(Heap* heap, const Scope& scope) : heap_(heap), scope_(scope) {}

  absl::StatusOr<Value> Evaluate(const Expression& node) {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.Enter());
    switch (node.kind) {
      case Kind::kLiteral:
        return node.value;
      case Kind::kName:
        if (const Value* const value = scope_.Find(node.name)) return *value;
        return heap_->MakeUndefined(fmt::format("'{}' is undefined", node.name));
      case Kind::kAnd:
      case Kind::kOr: {
        TLM_ASSIGN_OR_RETURN(Value left, Evaluate(*node.parts[0]));
        return IsTruthy(left) == (node.kind == Kind::kAnd) ? Evaluate(*node.parts[1]) : left;
      }
      case Kind::kComparison:
        return EvaluateComparison(node);
      case Kind::kConditional: {
        TLM_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.parts[1]));
        if (IsTruthy(condition)) return Evaluate(*node.parts[0]);
        if (node.parts[2] != nullptr) return Evaluate(*node.parts[2]);
        return heap_->MakeUndefined(
            "the inline if-expression evaluated to false and no else section was defined.");
      }
      case Kind::kCall:
        return EvaluateCall(node, nullptr);
      default:
        break;
    }
    // The other kinds use all parts, regardless of their values.
    TLM_ASSIGN_OR_RETURN(std::vector<Value> values, EvaluateParts(node));
    return Apply(node, std::move(values));
  }

  absl::StatusOr<Value> EvaluateCall(const Expression& node, const Value* caller) {
    TLM_ASSIGN_OR_RETURN(std::vector<Value> values, EvaluateParts(node));
    Arguments arguments = ArgumentsOf(node, &values);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    TLM_RETURN_IF_ERROR(CheckDefined(values[0]));
    const auto* const callable = std::get_if<const Callable*>(&values[0]);
    if (callable != nullptr) return (*callable)->Call(std::move(arguments));
    return InvalidArgument("'{}' object is not callable", TypeName(values[0]));
  }

 private:
  // Evaluates the parts; None for an omitted part.
  absl::StatusOr<std::vector<Value>> EvaluateParts(const Expression& node) {
    std::vector<Value> values;
    values.reserve(node.parts.size());
    for (const ExpressionPtr& part : node.parts) {
      values.emplace_back(None{});
      if (part != nullptr) {
        TLM_ASSIGN_OR_RETURN(values.back(), Evaluate(*part));
      }
    }
    return values;
  }

  static Arguments ArgumentsOf(const Expression& node, std::vector<Value>* values) {
    Arguments arguments;
    for (size_t i = 0; i < node.argument_names.size(); ++i) {
      const std::string& name = node.argument_names[i];
      Value& value = (*values)[i + 1];
      if (name.empty()) {
        arguments.positional.push_back(std::move(value));
      } else {
        arguments.named.emplace_back(name, std::move(value));
      }
    }
    return arguments;
  }

  absl::StatusOr<Value> EvaluateComparison(const Expression& node) {
    TLM_ASSIGN_OR_RETURN(Value left, Evaluate(*node.parts[0]));
    for (size_t i = 0; i < node.comparisons.size(); ++i) {
      TLM_ASSIGN_OR_RETURN(Value right, Evaluate(*node.parts[i + 1]));
      TLM_ASSIGN_OR_RETURN(const bool holds, Compare(heap_, node.comparisons[i], left, right));
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  absl::StatusOr<Value> MakeDict(const std::vector<Value>& values) {
    Dict::Members members;
    for (size_t i = 0; i < values.size(); i += 2) {
      TLM_RETURN_IF_ERROR(SetMember(heap_, values[i], values[i + 1], &members));
    }
    return heap_->MakeDict(std::move(members));
  }

  absl::StatusOr<Value> Concatenate(const std::vector<Value>& values) {
    std::string result;
    for (const Value& value : values) {
      TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap_, value));
      TLM_RETURN_IF_ERROR(heap_->CheckRoom(result.size() + text->bytes.size()));
      result += text->bytes;
    }
    return heap_->MakeText(std::move(result));
  }

  // Applies the operation of `node` to the values of its parts.
  absl::StatusOr<Value> Apply(const Expression& node, std::vector<Value> values) {
    switch (node.kind) {
      case Kind::kList:
      case Kind::kTuple:
        return heap_->MakeSequence(std::move(values), node.kind == Kind::kTuple);
      case Kind::kDict:
        return MakeDict(values);
      case Kind::kNot:
        return !IsTruthy(values[0]);
      case Kind::kNegate:
        return Negate(values[0]);
      case Kind::kBinary:
        return jinja::Apply(heap_, node.op, values[0], values[1]);
      case Kind::kConcatenation:
        return Concatenate(values);
      case Kind::kAttribute:
        return GetAttribute(heap_, values[0], node.name);
      case Kind::kItem:
        return GetItem(heap_, values[0], values[1]);
      case Kind::kSlice:
        return GetSlice(heap_, values[0], {values[1], values[2], values[3]});
      case Kind::kFilter:
        return ApplyFilter(heap_, node.name, values[0], ArgumentsOf(node, &values));
      default:  // kTest
        return ApplyTest(heap_, node.name, values[0], ArgumentsOf(node, &values));
    }
  }

  Heap* const heap_;
  const Scope& scope_;
};

}  // namespace

absl::StatusOr<Value> Evaluate(Heap* heap, const Scope& scope, const Expression& expression) {
  return Evaluator(heap, scope).Evaluate(expression);
}

absl::StatusOr<Value> EvaluateCall(Heap* heap, const Scope& scope, const Expression& call,
                                   const Value* caller) {
  return Evaluator(heap, scope).EvaluateCall(call, caller);
}

}  // namespace tlm::jinja
