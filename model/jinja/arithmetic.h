// Python's operators on numbers, text and sequences.
#ifndef TLM_MODEL_JINJA_ARITHMETIC_H_
#define TLM_MODEL_JINJA_ARITHMETIC_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// INVALID_ARGUMENT where Python raises, and for integers beyond 64 bits, which Python has.
absl::StatusOr<Value> Apply(Heap* heap, BinaryOp op, const Value& left, const Value& right);

// -operand and +operand.
absl::StatusOr<Value> Negate(const Value& operand);
absl::StatusOr<Value> Posit(const Value& operand);

// What takes part in arithmetic: bool, int and float.
std::optional<double> AsDouble(const Value& value);
// bool and int.
std::optional<int64_t> AsInteger(const Value& value);

// "integer overflow": beyond 64 bits.
absl::Status IntegerOverflow();

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_ARITHMETIC_H_
