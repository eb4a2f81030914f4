// Implements the arithmetic of operators.h.
#include <limits>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/operators.h"

namespace tlm::jinja {
namespace {

absl::Status IntegerOverflow() {
  return InvalidArgument("integer overflow: integers have at most 64 bits");
}

// Returns the value of an int or float; bool counts as int.
std::optional<double> AsDouble(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  const std::optional<int64_t> integer = AsInteger(value);
  return integer ? std::optional<double>(static_cast<double>(*integer)) : std::nullopt;
}

absl::StatusOr<Value> ApplyToIntegers(BinaryOp op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOp::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOp::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    default:
      if (right == 0) return InvalidArgument("division by zero");
      if (right == -1) return int64_t{0};  // the one division that can overflow
      result = left % right;
      if (result != 0 && (result < 0) != (right < 0)) result += right;
  }
  if (overflow) return IntegerOverflow();
  return result;
}

absl::StatusOr<Value> ApplyToDoubles(BinaryOp op, double left, double right) {
  switch (op) {
    case BinaryOp::kAdd:
      return left + right;
    case BinaryOp::kSubtract:
      return left - right;
    case BinaryOp::kMultiply:
      return left * right;
    default:
      return Unimplemented("% of a float is not supported");
  }
}

// Works like markupsafe.escape: & < > ' " become entities.
std::string EscapeHtml(std::string_view text) {
  constexpr std::string_view kEscaped = "&<>'\"";
  constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string result;
  for (const char c : text) {
    const size_t i = kEscaped.find(c);
    if (i == kEscaped.npos) {
      result += c;
    } else {
      result += kEntities[i];
    }
  }
  return result;
}

absl::StatusOr<Value> AddTexts(Heap* heap, const Text& left, const Text& right) {
  const bool markup = left.markup || right.markup;
  const auto escaped = [&](const Text& text) {
    return markup && !text.markup ? EscapeHtml(text.bytes) : text.bytes;
  };
  TLM_RETURN_IF_ERROR(heap->CheckRoom(left.bytes.size() + right.bytes.size()));
  return heap->MakeText(escaped(left) + escaped(right), markup);
}

absl::StatusOr<Value> AddSequences(Heap* heap, const Sequence& left, const Sequence& right) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return heap->MakeSequence(std::move(items), left.is_tuple);
}

absl::StatusOr<Value> RepeatText(Heap* heap, const Text& text, int64_t times) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(times, text.bytes.size()));
  std::string result;
  if (text.bytes.empty()) times = 0;
  for (int64_t i = 0; i < times; ++i) result += text.bytes;
  return heap->MakeText(std::move(result), text.markup);
}

absl::Status WrongOperands(BinaryOp op, const Value& left, const Value& right) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "%"};
  const bool has_items = Is<TextPtr>(left) || AsSequence(left) != nullptr;
  if (op == BinaryOp::kModulo && Is<TextPtr>(left)) {
    return Unimplemented("% of a text is not supported");
  }
  if (op == BinaryOp::kMultiply && (AsSequence(left) != nullptr || AsSequence(right) != nullptr)) {
    return Unimplemented("* of a list is not supported");
  }
  if (op == BinaryOp::kAdd && has_items) {
    return InvalidArgument("can only concatenate {0} (not \"{1}\") to {0}", TypeName(left),
                           TypeName(right));
  }
  return InvalidArgument("unsupported operand type(s) for {}: '{}' and '{}'",
                         kSymbols[static_cast<size_t>(op)], TypeName(left), TypeName(right));
}

}  // namespace

std::optional<int64_t> AsInteger(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  return std::nullopt;
}

absl::StatusOr<Value> Apply(Heap* heap, BinaryOp op, const Value& left, const Value& right) {
  TLM_RETURN_IF_ERROR(CheckDefined(left));
  TLM_RETURN_IF_ERROR(CheckDefined(right));
  const std::optional<int64_t> left_integer = AsInteger(left);
  const std::optional<int64_t> right_integer = AsInteger(right);
  if (left_integer && right_integer) return ApplyToIntegers(op, *left_integer, *right_integer);
  const std::optional<double> left_double = AsDouble(left);
  const std::optional<double> right_double = AsDouble(right);
  if (left_double && right_double) return ApplyToDoubles(op, *left_double, *right_double);
  const auto* const left_text = std::get_if<TextPtr>(&left);
  const auto* const right_text = std::get_if<TextPtr>(&right);
  if (op == BinaryOp::kAdd) {
    if (left_text != nullptr && right_text != nullptr) {
      return AddTexts(heap, **left_text, **right_text);
    }
    const Sequence* const items = AsSequence(left);
    const Sequence* const more = AsSequence(right);
    if (items != nullptr && more != nullptr && items->is_tuple == more->is_tuple) {
      return AddSequences(heap, *items, *more);
    }
  }
  if (op == BinaryOp::kMultiply) {
    if (left_text != nullptr && right_integer) return RepeatText(heap, **left_text, *right_integer);
    if (right_text != nullptr && left_integer) return RepeatText(heap, **right_text, *left_integer);
  }
  return WrongOperands(op, left, right);
}

absl::StatusOr<Value> Negate(const Value& operand) {
  TLM_RETURN_IF_ERROR(CheckDefined(operand));
  if (const std::optional<int64_t> integer = AsInteger(operand)) {
    if (*integer == std::numeric_limits<int64_t>::min()) return IntegerOverflow();
    return -*integer;
  }
  if (const auto* real = std::get_if<double>(&operand)) return -*real;
  return InvalidArgument("bad operand type for unary -: '{}'", TypeName(operand));
}

}  // namespace tlm::jinja
