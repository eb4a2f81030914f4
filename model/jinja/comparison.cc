// Implements the comparisons of operators.h, and operations based on them: members of dicts,
// sorting.
#include <algorithm>
#include <numeric>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/operators.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Converts bool, int and float, which compare exactly as numbers: a long double holds every int64
// and double.
std::optional<long double> AsNumber(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  const std::optional<int64_t> integer = AsInteger(value);
  return integer ? std::optional<long double>(*integer) : std::nullopt;
}

absl::StatusOr<bool> AreItemsEqual(Heap* heap, const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  if (left.is_tuple != right.is_tuple || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left.items[i], right.items[i]));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> AreMembersEqual(Heap* heap, const Dict& left, const Dict& right) {
  if (&left == &right) return true;
  if (left.members.size() != right.members.size()) return false;
  for (const auto& [key, value] : left.members) {
    TLM_ASSIGN_OR_RETURN(const Value* const other, FindMember(heap, right, key));
    if (other == nullptr) return false;
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, value, *other));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<std::partial_ordering> Order(Heap* heap, CompareOp op, const Value& left,
                                            const Value& right) {
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  TLM_RETURN_IF_ERROR(heap->Step());
  TLM_RETURN_IF_ERROR(CheckDefined(left));
  TLM_RETURN_IF_ERROR(CheckDefined(right));
  const std::optional<long double> left_number = AsNumber(left);
  const std::optional<long double> right_number = AsNumber(right);
  if (left_number && right_number) return *left_number <=> *right_number;
  if (Is<TextPtr>(left) && Is<TextPtr>(right)) {
    TLM_RETURN_IF_ERROR(heap->WorkOn(left));
    // The order of UTF-8 bytes is the order of code points.
    return std::get<TextPtr>(left)->bytes <=> std::get<TextPtr>(right)->bytes;
  }
  if (AsSequence(left) != nullptr && AsSequence(right) != nullptr) {
    return Unimplemented("an order of lists is not supported");
  }
  return InvalidArgument("'{}' not supported between instances of '{}' and '{}'",
                         kSymbols[static_cast<size_t>(op)], TypeName(left), TypeName(right));
}

absl::StatusOr<bool> Contains(Heap* heap, const Value& container, const Value& item) {
  if (const auto* text = std::get_if<TextPtr>(&container)) {
    TLM_RETURN_IF_ERROR(heap->WorkOn(container));
    if (const auto* part = std::get_if<TextPtr>(&item)) {
      return FindText((*text)->bytes, (*part)->bytes) != std::string::npos;
    }
    return InvalidArgument("'in <string>' requires string as left operand, not {}", TypeName(item));
  }
  if (const auto* dict = std::get_if<const Dict*>(&container)) {
    TLM_ASSIGN_OR_RETURN(const Value* const member, FindMember(heap, **dict, item));
    return member != nullptr;
  }
  if (!IsIterable(container)) {
    return InvalidArgument("argument of type '{}' is not iterable", TypeName(container));
  }
  TLM_ASSIGN_OR_RETURN(const auto candidates, heap->Items(container));
  for (const Value& candidate : candidates) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, candidate, item));
    if (equal) return true;
  }
  return false;
}

// Equal values need no order.
absl::StatusOr<bool> IsBefore(Heap* heap, const Value& left, const Value& right) {
  TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left, right));
  return equal ? absl::StatusOr<bool>(false) : Compare(heap, CompareOp::kLess, left, right);
}

}  // namespace

absl::StatusOr<bool> IsEqual(Heap* heap, const Value& left, const Value& right) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.Enter());
  const std::optional<long double> left_number = AsNumber(left);
  const std::optional<long double> right_number = AsNumber(right);
  if (left_number || right_number) {
    return left_number && right_number && *left_number == *right_number;
  }
  if (left.index() != right.index()) return false;
  if (const Sequence* const sequence = AsSequence(left)) {
    return AreItemsEqual(heap, *sequence, *AsSequence(right));
  }
  if (const auto* text = std::get_if<TextPtr>(&left)) {
    TLM_RETURN_IF_ERROR(heap->WorkOn(left));
    return (*text)->bytes == std::get<TextPtr>(right)->bytes;
  }
  if (const auto* dict = std::get_if<const Dict*>(&left)) {
    return AreMembersEqual(heap, **dict, *std::get<const Dict*>(right));
  }
  if (Is<Undefined>(left) || Is<None>(left)) return true;
  // The other types are objects; each is equal only to itself.
  return std::visit(
      [&](const auto& value) -> bool {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
          return value == std::get<std::decay_t<decltype(value)>>(right);
        }
        return false;
      },
      left);
}

absl::StatusOr<bool> Compare(Heap* heap, CompareOp op, const Value& left, const Value& right) {
  if (op == CompareOp::kEqual || op == CompareOp::kNotEqual) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left, right));
    return equal == (op == CompareOp::kEqual);
  }
  if (op == CompareOp::kIn || op == CompareOp::kNotIn) {
    TLM_ASSIGN_OR_RETURN(const bool contains, Contains(heap, right, left));
    return contains == (op == CompareOp::kIn);
  }
  TLM_ASSIGN_OR_RETURN(const std::partial_ordering order, Order(heap, op, left, right));
  switch (op) {
    case CompareOp::kLess:
      return order < 0;
    case CompareOp::kLessEqual:
      return order <= 0;
    case CompareOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::Status CheckHashable(const Value& key) {
  const Sequence* const sequence = AsSequence(key);
  if (Is<const Dict*>(key) || (sequence != nullptr && !sequence->is_tuple)) {
    return InvalidArgument("unhashable type: '{}'", TypeName(key));
  }
  if (sequence == nullptr) return absl::OkStatus();
  for (const Value& item : sequence->items) TLM_RETURN_IF_ERROR(CheckHashable(item));
  return absl::OkStatus();
}

absl::StatusOr<const Value*> FindMember(Heap* heap, const Dict& dict, const Value& key) {
  TLM_RETURN_IF_ERROR(CheckHashable(key));
  TLM_RETURN_IF_ERROR(heap->Work(dict.members.size() * sizeof(Value)));
  const auto* const name = std::get_if<TextPtr>(&key);
  for (const auto& [candidate, value] : dict.members) {
    if (const auto* text = std::get_if<TextPtr>(&candidate)) {
      if (name == nullptr || (*text)->bytes.size() != (*name)->bytes.size()) continue;
      TLM_RETURN_IF_ERROR(heap->WorkOn(candidate));
      if ((*text)->bytes == (*name)->bytes) return &value;
    } else if (name == nullptr) {
      TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, candidate, key));
      if (equal) return &value;
    }
  }
  return nullptr;
}

absl::Status SetMember(Heap* heap, const Value& key, const Value& value, Dict::Members* members) {
  TLM_RETURN_IF_ERROR(CheckHashable(key));
  TLM_RETURN_IF_ERROR(heap->Work(members->size() * sizeof(Value)));
  for (auto& [candidate, old_value] : *members) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, candidate, key));
    if (!equal) continue;
    old_value = value;
    return absl::OkStatus();
  }
  members->emplace_back(key, value);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<size_t>> SortedOrder(Heap* heap, const std::vector<Value>& keys,
                                                bool reverse) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(static_cast<int64_t>(keys.size()), 2 * sizeof(size_t)));
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    if (reverse) std::swap(a, b);
    const absl::StatusOr<bool> less = IsBefore(heap, keys[a], keys[b]);
    status = less.status();
    return less.ok() && *less;
  });
  if (!status.ok()) return status;
  return order;
}

}  // namespace tlm::jinja
