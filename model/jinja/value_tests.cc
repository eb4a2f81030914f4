#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/access.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/comparison.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

using TestFunction = absl::StatusOr<bool> (*)(Heap* heap, const Value& value, const Value* other);

// `takes_argument`: whether it is asked of two values, as in `is divisibleby(3)`.
struct Test {
  std::string_view name;
  bool takes_argument;
  TestFunction function;
};

template <typename... Types>
absl::StatusOr<bool> IsAny(Heap*, const Value& value, const Value*) {
  return (Is<Types>(value) || ...);
}

template <CompareOp op>
absl::StatusOr<bool> CompareWith(Heap* heap, const Value& value, const Value* other) {
  return Compare(heap, op, value, *other);
}

absl::StatusOr<bool> IsRemainder(Heap* heap, const Value& value, int64_t divisor,
                                 int64_t remainder) {
  TLM_ASSIGN_OR_RETURN(const Value rest, Apply(heap, BinaryOp::kModulo, value, divisor));
  return IsEqual(heap, rest, remainder);
}

absl::StatusOr<bool> IsOdd(Heap* heap, const Value& value, const Value*) {
  return IsRemainder(heap, value, 2, 1);
}

absl::StatusOr<bool> IsEven(Heap* heap, const Value& value, const Value*) {
  return IsRemainder(heap, value, 2, 0);
}

absl::StatusOr<bool> IsDivisible(Heap* heap, const Value& value, const Value* other) {
  TLM_ASSIGN_OR_RETURN(const Value rest, Apply(heap, BinaryOp::kModulo, value, *other));
  return IsEqual(heap, rest, int64_t{0});
}

absl::StatusOr<bool> IsDefined(Heap*, const Value& value, const Value*) {
  return !Is<Undefined>(value);
}

template <bool wanted>
absl::StatusOr<bool> IsBool(Heap*, const Value& value, const Value*) {
  const auto* const truth = std::get_if<bool>(&value);
  return truth != nullptr && *truth == wanted;
}

// str(value).islower() and the like.
absl::StatusOr<bool> AskText(Heap* heap, const Value& value, std::string_view method) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  TLM_ASSIGN_OR_RETURN(const Value bound, GetAttribute(heap, text, method));
  TLM_ASSIGN_OR_RETURN(const Value answer, std::get<const Callable*>(bound)->Call({}));
  return IsTruthy(answer);
}

absl::StatusOr<bool> IsLowerText(Heap* heap, const Value& value, const Value*) {
  return AskText(heap, value, "islower");
}

absl::StatusOr<bool> IsUpperText(Heap* heap, const Value& value, const Value*) {
  return AskText(heap, value, "isupper");
}

absl::StatusOr<bool> IsSequenceValue(Heap*, const Value& value, const Value*) {
  return Length(value).has_value() && !Is<DictView>(value);
}

absl::StatusOr<bool> IsIterableValue(Heap*, const Value& value, const Value*) {
  return IsIterable(value);
}

absl::StatusOr<bool> IsEscaped(Heap*, const Value& value, const Value*) {
  const auto* const text = std::get_if<TextPtr>(&value);
  return text != nullptr && (*text)->markup;
}

absl::StatusOr<bool> IsFilterName(Heap*, const Value& value, const Value*) {
  const auto* const text = std::get_if<TextPtr>(&value);
  return text != nullptr && IsFilter((*text)->bytes);
}

absl::StatusOr<bool> IsTestName(Heap*, const Value& value, const Value*) {
  const auto* const text = std::get_if<TextPtr>(&value);
  return text != nullptr && IsTest((*text)->bytes);
}

// Python's `is`: equality for what it keeps one copy of, identity of containers.
absl::StatusOr<bool> IsSame(Heap* heap, const Value& value, const Value* other) {
  if (value.index() != other->index()) return false;
  if (AsSequence(value) != nullptr) return AsSequence(value) == AsSequence(*other);
  if (const auto* dict = std::get_if<const Dict*>(&value)) {
    return *dict == std::get<const Dict*>(*other);
  }
  return IsEqual(heap, value, *other);
}

constexpr Test kTests[] = {
    {"!=", true, CompareWith<CompareOp::kNotEqual>},
    {"<", true, CompareWith<CompareOp::kLess>},
    {"<=", true, CompareWith<CompareOp::kLessEqual>},
    {"==", true, CompareWith<CompareOp::kEqual>},
    {">", true, CompareWith<CompareOp::kGreater>},
    {">=", true, CompareWith<CompareOp::kGreaterEqual>},
    {"boolean", false, IsAny<bool>},
    {"callable", false, IsAny<const Callable*, Undefined>},
    {"defined", false, IsDefined},
    {"divisibleby", true, IsDivisible},
    {"eq", true, CompareWith<CompareOp::kEqual>},
    {"equalto", true, CompareWith<CompareOp::kEqual>},
    {"escaped", false, IsEscaped},
    {"even", false, IsEven},
    {"false", false, IsBool<false>},
    {"filter", false, IsFilterName},
    {"float", false, IsAny<double>},
    {"ge", true, CompareWith<CompareOp::kGreaterEqual>},
    {"greaterthan", true, CompareWith<CompareOp::kGreater>},
    {"gt", true, CompareWith<CompareOp::kGreater>},
    {"in", true, CompareWith<CompareOp::kIn>},
    {"integer", false, IsAny<int64_t>},
    {"iterable", false, IsIterableValue},
    {"le", true, CompareWith<CompareOp::kLessEqual>},
    {"lessthan", true, CompareWith<CompareOp::kLess>},
    {"lower", false, IsLowerText},
    {"lt", true, CompareWith<CompareOp::kLess>},
    {"mapping", false, IsAny<const Dict*>},
    {"ne", true, CompareWith<CompareOp::kNotEqual>},
    {"none", false, IsAny<None>},
    {"number", false, IsAny<bool, int64_t, double>},
    {"odd", false, IsOdd},
    {"sameas", true, IsSame},
    {"sequence", false, IsSequenceValue},
    {"string", false, IsAny<TextPtr>},
    {"test", false, IsTestName},
    {"true", false, IsBool<true>},
    {"undefined", false, IsAny<Undefined>},
    {"upper", false, IsUpperText},
};

const Test* FindTest(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTests), std::end(kTests),
                                         [&](const Test& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool IsTest(std::string_view name) { return FindTest(name) != nullptr; }

absl::StatusOr<bool> ApplyTest(Heap* heap, std::string_view name, const Value& value,
                               Arguments arguments) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.status());
  TLM_RETURN_IF_ERROR(heap->Step());
  const Test* const test = FindTest(name);
  if (test == nullptr) return InvalidArgument("No test named {}.", Quoted(name));
  const size_t wanted = test->takes_argument ? 1 : 0;
  if (arguments.positional.size() != wanted || !arguments.named.empty()) {
    return InvalidArgument("test {} takes {} argument(s)", name, wanted);
  }
  return test->function(heap, value, wanted == 1 ? &arguments.positional[0] : nullptr);
}

}  // namespace tlm::jinja
