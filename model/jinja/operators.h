// Python's operators on the values of a template.
#ifndef TLM_MODEL_JINJA_OPERATORS_H_
#define TLM_MODEL_JINJA_OPERATORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kModulo };
enum class CompareOp {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// INVALID_ARGUMENT where Python raises, and for integers beyond 64 bits, which Python allows.
// UNIMPLEMENTED for `%` of a text or a float and `*` of a list.
absl::StatusOr<Value> Apply(Heap* heap, BinaryOp op, const Value& left, const Value& right);

// Evaluates -operand.
absl::StatusOr<Value> Negate(const Value& operand);

// Returns the value of a bool or int; nullopt for other types.
std::optional<int64_t> AsInteger(const Value& value);

// INVALID_ARGUMENT where Python raises: 1 < 'a', 'a' in 1, an undefined operand of an order.
// UNIMPLEMENTED for an order of lists.
absl::StatusOr<bool> Compare(Heap* heap, CompareOp op, const Value& left, const Value& right);

// Evaluates left == right.
absl::StatusOr<bool> IsEqual(Heap* heap, const Value& left, const Value& right);

// INVALID_ARGUMENT unless `key` may be a key of a dict.
absl::Status CheckHashable(const Value& key);

// Returns the value of `key`, or null if the dict has no such key. INVALID_ARGUMENT when `key` is
// not hashable.
absl::StatusOr<const Value*> FindMember(Heap* heap, const Dict& dict, const Value& key);

// Adds a member, or replaces the value of the member with that key.
absl::Status SetMember(Heap* heap, const Value& key, const Value& value, Dict::Members* members);

// Returns the indices of `keys` in the order of sorted(), which keeps the order of equal keys.
absl::StatusOr<std::vector<size_t>> SortedOrder(Heap* heap, const std::vector<Value>& keys,
                                                bool reverse);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_OPERATORS_H_
