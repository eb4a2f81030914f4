#include "model/jinja/arithmetic.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/percent_format.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

std::string_view Symbol(BinaryOp op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(op)];
}

absl::Status DivisionByZero() { return InvalidArgument("division by zero"); }

absl::StatusOr<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return IntegerOverflow();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return IntegerOverflow();
  }
  return result;
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
    case BinaryOp::kDivide:
      if (right == 0) return DivisionByZero();
      return static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right));
    case BinaryOp::kPower:
      return PowerOfIntegers(left, right);
    default:  // floor division and its remainder
      if (right == 0) return DivisionByZero();
      if (right == -1) {  // the one division that can overflow
        if (op == BinaryOp::kModulo) return int64_t{0};
        return Negate(left);
      }
      const int64_t quotient = left / right;
      const int64_t remainder = left % right;
      const bool round_down = remainder != 0 && (remainder < 0) != (right < 0);
      if (op == BinaryOp::kModulo) return round_down ? remainder + right : remainder;
      return round_down ? quotient - 1 : quotient;
  }
  if (overflow) return IntegerOverflow();
  return result;
}

// The floor of left / right and what is left over, as CPython's float_divmod computes them.
std::pair<double, double> DivideWithRemainder(double left, double right) {
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder == 0) {
    remainder = std::copysign(0.0, right);
  } else if ((right < 0) != (remainder < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, left / right), remainder};
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return {floor, remainder};
}

absl::StatusOr<Value> PowerOfDoubles(double base, double exponent) {
  if (base == 0 && exponent < 0) {
    return InvalidArgument("0.0 cannot be raised to a negative power");
  }
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent)) {
    return Unimplemented("a power that is a complex number is not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    return InvalidArgument("float overflow in **");
  }
  return result;
}

absl::StatusOr<Value> ApplyToDoubles(BinaryOp op, double left, double right) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && right == 0) return DivisionByZero();
  switch (op) {
    case BinaryOp::kAdd:
      return left + right;
    case BinaryOp::kSubtract:
      return left - right;
    case BinaryOp::kMultiply:
      return left * right;
    case BinaryOp::kDivide:
      return left / right;
    case BinaryOp::kFloorDivide:
      return DivideWithRemainder(left, right).first;
    case BinaryOp::kModulo:
      return DivideWithRemainder(left, right).second;
    default:
      return PowerOfDoubles(left, right);
  }
}

absl::StatusOr<Value> AddTexts(Heap* heap, const Text& left, const Text& right) {
  const bool markup = left.markup || right.markup;
  const auto escaped = [&](const Text& text) {
    return markup && !text.markup ? EscapeHtml(text.bytes) : text.bytes;
  };
  TLM_RETURN_IF_ERROR(heap->CheckRoom(left.bytes.size() + right.bytes.size()));
  return heap->MakeText(escaped(left) + escaped(right), markup);
}

absl::StatusOr<std::vector<Value>> JoinItems(Heap* heap, const Sequence& left,
                                             const Sequence& right) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return items;
}

absl::StatusOr<std::vector<Value>> RepeatItems(Heap* heap, const Sequence& sequence,
                                               int64_t times) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(times, sequence.items.size() * sizeof(Value)));
  std::vector<Value> items;
  if (sequence.items.empty()) return items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return items;
}

absl::StatusOr<Value> RepeatText(Heap* heap, const Text& text, int64_t times) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(times, text.bytes.size()));
  std::string result;
  if (text.bytes.empty()) times = 0;
  for (int64_t i = 0; i < times; ++i) result += text.bytes;
  return heap->MakeText(std::move(result), text.markup);
}

absl::Status WrongOperands(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kAdd && (Is<TextPtr>(left) || AsSequence(left) != nullptr)) {
    return InvalidArgument("can only concatenate {0} (not \"{1}\") to {0}", TypeName(left),
                           TypeName(right));
  }
  return InvalidArgument("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(op),
                         TypeName(left), TypeName(right));
}

absl::StatusOr<Value> AddSequences(Heap* heap, const Value& left, const Value& right) {
  if (const auto* text = std::get_if<TextPtr>(&left)) {
    return AddTexts(heap, **text, *std::get<TextPtr>(right));
  }
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items,
                       JoinItems(heap, *AsSequence(left), *AsSequence(right)));
  if (Is<const List*>(left)) return heap->MakeList(std::move(items));
  return heap->MakeTuple(std::move(items));
}

absl::StatusOr<Value> Repeat(Heap* heap, const Value& value, int64_t times) {
  if (const auto* text = std::get_if<TextPtr>(&value)) return RepeatText(heap, **text, times);
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items, RepeatItems(heap, *AsSequence(value), times));
  if (Is<const List*>(value)) return heap->MakeList(std::move(items));
  return heap->MakeTuple(std::move(items));
}

}  // namespace

absl::Status IntegerOverflow() {
  return InvalidArgument("integer overflow: integers have at most 64 bits");
}

std::optional<int64_t> AsInteger(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  return std::nullopt;
}

std::optional<double> AsDouble(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const std::optional<int64_t> integer = AsInteger(value)) {
    return static_cast<double>(*integer);
  }
  return std::nullopt;
}

absl::StatusOr<Value> Apply(Heap* heap, BinaryOp op, const Value& left, const Value& right) {
  for (const Value* const operand : {&left, &right}) {
    if (op == BinaryOp::kModulo && Is<TextPtr>(left)) break;  // formats what is undefined
    if (const auto* undefined = std::get_if<Undefined>(operand)) {
      return InvalidArgument("{}", undefined->why->bytes);
    }
  }
  const std::optional<int64_t> left_integer = AsInteger(left);
  const std::optional<int64_t> right_integer = AsInteger(right);
  if (left_integer && right_integer && !(op == BinaryOp::kPower && *right_integer < 0)) {
    return ApplyToIntegers(op, *left_integer, *right_integer);
  }
  const std::optional<double> left_double = AsDouble(left);
  const std::optional<double> right_double = AsDouble(right);
  if (left_double && right_double) return ApplyToDoubles(op, *left_double, *right_double);
  const auto has_items = [](const Value& v) { return Is<TextPtr>(v) || AsSequence(v) != nullptr; };
  if (op == BinaryOp::kModulo && Is<TextPtr>(left)) {
    return PercentFormat(heap, std::get<TextPtr>(left), right);
  }
  if (op == BinaryOp::kAdd && has_items(left) && left.index() == right.index()) {
    return AddSequences(heap, left, right);
  }
  if (op == BinaryOp::kMultiply) {
    if (has_items(left) && right_integer) return Repeat(heap, left, *right_integer);
    if (has_items(right) && left_integer) return Repeat(heap, right, *left_integer);
  }
  return WrongOperands(op, left, right);
}

absl::StatusOr<Value> Negate(const Value& operand) {
  if (const std::optional<int64_t> integer = AsInteger(operand)) {
    if (*integer == std::numeric_limits<int64_t>::min()) return IntegerOverflow();
    return -*integer;
  }
  if (const auto* real = std::get_if<double>(&operand)) return -*real;
  if (const auto* undefined = std::get_if<Undefined>(&operand)) {
    return InvalidArgument("{}", undefined->why->bytes);
  }
  return InvalidArgument("bad operand type for unary -: '{}'", TypeName(operand));
}

absl::StatusOr<Value> Posit(const Value& operand) {
  if (const std::optional<int64_t> integer = AsInteger(operand)) return *integer;
  if (Is<double>(operand)) return operand;
  if (const auto* undefined = std::get_if<Undefined>(&operand)) {
    return InvalidArgument("{}", undefined->why->bytes);
  }
  return InvalidArgument("bad operand type for unary +: '{}'", TypeName(operand));
}

}  // namespace tlm::jinja
