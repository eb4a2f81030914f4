#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/number_parsing.h"

namespace tlm::jinja {
namespace {

absl::Status CheckDefined(const Value& value) {
  if (const auto* undefined = std::get_if<Undefined>(&value)) {
    return InvalidArgument("{}", undefined->why->bytes);
  }
  return absl::OkStatus();
}

// A float that int() refuses, infinity and NaN, gives the default where it is read from text.
absl::StatusOr<Value> IntegerOfText(std::string_view text, int64_t base, const Value& otherwise) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> integer, ParseInteger(text, base));
  if (integer) return *integer;
  const std::optional<double> real = ParseFloat(text);
  if (!real || !std::isfinite(*real)) return otherwise;
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> truncated, TruncateToInteger(*real));
  return truncated ? Value(*truncated) : otherwise;
}

absl::StatusOr<Value> Int(Heap*, const Value& value, const BoundArguments& args) {
  TLM_RETURN_IF_ERROR(CheckDefined(value));
  const Value otherwise = args.Get(0) != nullptr ? *args.Get(0) : Value(int64_t{0});
  TLM_ASSIGN_OR_RETURN(const int64_t base, args.Integer(1, 10));
  if (const auto* text = std::get_if<TextPtr>(&value)) {
    return IntegerOfText((*text)->bytes, base, otherwise);
  }
  if (const std::optional<int64_t> integer = AsInteger(value)) return *integer;
  const auto* const real = std::get_if<double>(&value);
  if (real == nullptr) return otherwise;
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> truncated, TruncateToInteger(*real));
  return truncated ? Value(*truncated) : otherwise;
}

absl::StatusOr<Value> Float(Heap*, const Value& value, const BoundArguments& args) {
  TLM_RETURN_IF_ERROR(CheckDefined(value));
  const Value otherwise = args.Get(0) != nullptr ? *args.Get(0) : Value(0.0);
  std::optional<double> real = AsDouble(value);
  if (const auto* text = std::get_if<TextPtr>(&value)) real = ParseFloat((*text)->bytes);
  return real ? Value(*real) : otherwise;
}

absl::StatusOr<Value> Abs(Heap*, const Value& value, const BoundArguments&) {
  TLM_RETURN_IF_ERROR(CheckDefined(value));
  if (const std::optional<int64_t> integer = AsInteger(value)) {
    return *integer < 0 ? Negate(*integer) : absl::StatusOr<Value>(*integer);
  }
  if (const auto* real = std::get_if<double>(&value)) return std::fabs(*real);
  return InvalidArgument("bad operand type for abs(): '{}'", TypeName(value));
}

// round(value, digits) of an int: itself unless digits are negative, then to a multiple of a power
// of ten, halves to the even one.
absl::StatusOr<Value> RoundInteger(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return int64_t{0};
  int64_t unit = 1;
  for (int64_t i = 0; i < -digits; ++i) unit *= 10;
  int64_t quotient = value / unit;
  const int64_t rest = std::abs(value % unit);
  if (rest > unit - rest || (rest == unit - rest && quotient % 2 != 0)) {
    quotient += value < 0 ? -1 : 1;
  }
  int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) return IntegerOverflow();
  return result;
}

// round(value, digits) of a float: by its exact decimal value, halves to the even digit.
double RoundDouble(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  return ParseFloat(fmt::format("{:.{}f}", value, static_cast<int>(digits))).value_or(value);
}

absl::StatusOr<Value> Round(Heap*, const Value& value, const BoundArguments& args) {
  TLM_RETURN_IF_ERROR(CheckDefined(value));
  TLM_ASSIGN_OR_RETURN(const int64_t digits, args.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const TextPtr given, args.MaybeText(1));
  const std::string method = given == nullptr ? "common" : given->bytes;
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("round: the method is common, ceil or floor, not {}", Quoted(method));
  }
  const std::optional<double> real = AsDouble(value);
  if (!real) return InvalidArgument("type {} cannot be rounded", TypeName(value));
  if (method == "common") {
    if (const auto integer = AsInteger(value)) return RoundInteger(*integer, digits);
    return RoundDouble(*real, digits);
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = *real * unit;
  if (!std::isfinite(scaled) || unit == 0) {
    return InvalidArgument("round: the number or its precision is too large");
  }
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return (whole + 0.0) / unit;  // Python goes through an int, which has no -0
}

absl::StatusOr<Value> Sum(Heap* heap, const Value& value, const BoundArguments& args) {
  Value sum = args.Get(1) != nullptr ? *args.Get(1) : Value(int64_t{0});
  if (Is<TextPtr>(sum)) return InvalidArgument("sum() can't sum strings");
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> items, Iterate(heap, value));
  for (;;) {
    Value item;
    TLM_ASSIGN_OR_RETURN(const bool more, items->Next(&item));
    if (!more) return sum;
    TLM_RETURN_IF_ERROR(heap->Step());
    if (const Value* const attribute = args.GetUnlessNone(0)) {
      TLM_ASSIGN_OR_RETURN(item, GetPath(heap, item, *attribute));
    }
    TLM_ASSIGN_OR_RETURN(sum, Apply(heap, BinaryOp::kAdd, sum, item));
  }
}

constexpr Filter kNumberFilters[] = {
    {"abs", {}, Abs},
    {"float", {0, {"default"}}, Float},
    {"int", {0, {"default", "base"}}, Int},
    {"round", {0, {"precision", "method"}}, Round},
    {"sum", {0, {"attribute", "start"}}, Sum},
};

}  // namespace

std::span<const Filter> NumberFilters() { return kNumberFilters; }

}  // namespace tlm::jinja
