#include "model/jinja/comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/iteration.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// bool, int and float compare as numbers, exactly: a long double holds every int64 and double.
std::optional<long double> AsNumber(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

std::string_view Symbol(CompareOp op) {
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

absl::Status CheckDefined(const Value& value) {
  if (const auto* undefined = std::get_if<Undefined>(&value)) {
    return InvalidArgument("{}", undefined->why->bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AreItemsEqual(Heap* heap, const Sequence& left, const Sequence& right) {
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left.items[i], right.items[i]));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> AreMembersEqual(Heap* heap, const Dict& left, const Dict& right) {
  if (left.members.size() != right.members.size()) return false;
  for (const auto& [key, value] : left.members) {
    TLM_ASSIGN_OR_RETURN(const Value* const other, FindMember(heap, right, key));
    if (other == nullptr) return false;
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, value, *other));
    if (!equal) return false;
  }
  return true;
}

bool AreRangesEqual(const Range& left, const Range& right) {
  return left.size == right.size &&
         (left.size == 0 ||
          (left.start == right.start && (left.size == 1 || left.step == right.step)));
}

// Of two values of one type that is not a number.
absl::StatusOr<bool> AreSameTypeEqual(Heap* heap, const Value& left, const Value& right) {
  if (const Sequence* const sequence = AsSequence(left)) {
    if (sequence == AsSequence(right)) return true;
    return AreItemsEqual(heap, *sequence, *AsSequence(right));
  }
  if (const auto* text = std::get_if<TextPtr>(&left)) {
    TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
    return (*text)->bytes == std::get<TextPtr>(right)->bytes;
  }
  if (const auto* dict = std::get_if<const Dict*>(&left)) {
    const Dict* const other = std::get<const Dict*>(right);
    if (*dict == other) return true;
    return AreMembersEqual(heap, **dict, *other);
  }
  if (const auto* range = std::get_if<const Range*>(&left)) {
    return AreRangesEqual(**range, *std::get<const Range*>(right));
  }
  if (const auto* view = std::get_if<DictView>(&left)) {
    const DictView& other = std::get<DictView>(right);
    return view->dict == other.dict && view->part == other.part;
  }
  if (const auto* space = std::get_if<Namespace*>(&left)) {
    return *space == std::get<Namespace*>(right);
  }
  if (const auto* generator = std::get_if<Generator*>(&left)) {
    return *generator == std::get<Generator*>(right);
  }
  if (const auto* attributes = std::get_if<Attributes*>(&left)) {
    return *attributes == std::get<Attributes*>(right);
  }
  if (const auto* callable = std::get_if<const Callable*>(&left)) {
    return *callable == std::get<const Callable*>(right);
  }
  return true;  // undefined or none
}

absl::StatusOr<std::partial_ordering> Order(Heap* heap, CompareOp op, const Value& left,
                                            const Value& right);

absl::StatusOr<std::partial_ordering> OrderItems(Heap* heap, CompareOp op, const Sequence& left,
                                                 const Sequence& right) {
  const size_t common = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < common; ++i) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left.items[i], right.items[i]));
    if (!equal) return Order(heap, op, left.items[i], right.items[i]);
  }
  return left.items.size() <=> right.items.size();
}

absl::StatusOr<std::partial_ordering> Order(Heap* heap, CompareOp op, const Value& left,
                                            const Value& right) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.status());
  TLM_RETURN_IF_ERROR(heap->Step());
  TLM_RETURN_IF_ERROR(CheckDefined(left));
  TLM_RETURN_IF_ERROR(CheckDefined(right));
  const std::optional<long double> left_number = AsNumber(left);
  const std::optional<long double> right_number = AsNumber(right);
  if (left_number && right_number) return *left_number <=> *right_number;
  if (left.index() == right.index()) {
    if (const auto* text = std::get_if<TextPtr>(&left)) {
      TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
      return (*text)->bytes <=> std::get<TextPtr>(right)->bytes;  // UTF-8 keeps the order
    }
    if (const Sequence* const sequence = AsSequence(left)) {
      return OrderItems(heap, op, *sequence, *AsSequence(right));
    }
  }
  return InvalidArgument("'{}' not supported between instances of '{}' and '{}'", Symbol(op),
                         TypeName(left), TypeName(right));
}

absl::StatusOr<bool> Contains(Heap* heap, const Value& container, const Value& item) {
  if (const auto* text = std::get_if<TextPtr>(&container)) {
    TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
    if (const auto* part = std::get_if<TextPtr>(&item)) {
      return FindText((*text)->bytes, (*part)->bytes) != std::string::npos;
    }
    return InvalidArgument("'in <string>' requires string as left operand, not {}", TypeName(item));
  }
  if (const auto* dict = std::get_if<const Dict*>(&container)) {
    TLM_ASSIGN_OR_RETURN(const Value* const member, FindMember(heap, **dict, item));
    return member != nullptr;
  }
  absl::StatusOr<std::unique_ptr<Iterator>> items = Iterate(heap, container);
  if (!items.ok()) {
    return InvalidArgument("argument of type '{}' is not iterable", TypeName(container));
  }
  for (;;) {
    Value candidate;
    TLM_ASSIGN_OR_RETURN(const bool more, (*items)->Next(&candidate));
    if (!more) return false;
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, candidate, item));
    if (equal) return true;
  }
}

}  // namespace

absl::StatusOr<bool> IsEqual(Heap* heap, const Value& left, const Value& right) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.status());
  TLM_RETURN_IF_ERROR(heap->Step());
  const std::optional<long double> left_number = AsNumber(left);
  const std::optional<long double> right_number = AsNumber(right);
  if (left_number || right_number) {
    return left_number && right_number && *left_number == *right_number;
  }
  if (left.index() != right.index()) return false;
  return AreSameTypeEqual(heap, left, right);
}

absl::StatusOr<bool> IsLess(Heap* heap, const Value& left, const Value& right) {
  TLM_ASSIGN_OR_RETURN(const auto order, Order(heap, CompareOp::kLess, left, right));
  return order < 0;
}

absl::StatusOr<bool> Compare(Heap* heap, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual:
      return IsEqual(heap, left, right);
    case CompareOp::kNotEqual: {
      TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, left, right));
      return !equal;
    }
    case CompareOp::kIn:
      return Contains(heap, right, left);
    case CompareOp::kNotIn: {
      TLM_ASSIGN_OR_RETURN(const bool contains, Contains(heap, right, left));
      return !contains;
    }
    default:
      break;
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
  if (const auto* tuple = std::get_if<const Tuple*>(&key)) {
    for (const Value& item : (*tuple)->items) TLM_RETURN_IF_ERROR(CheckHashable(item));
  } else if (Is<const List*>(key) || Is<const Dict*>(key) || Is<DictView>(key)) {
    return InvalidArgument("unhashable type: '{}'", TypeName(key));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Value*> FindMember(Heap* heap, const Dict& dict, const Value& key) {
  TLM_RETURN_IF_ERROR(CheckHashable(key));
  TLM_RETURN_IF_ERROR(heap->Work(dict.members.size() * sizeof(Value)));
  const auto* const name = std::get_if<TextPtr>(&key);
  for (const auto& [candidate, value] : dict.members) {
    if (const auto* text = std::get_if<TextPtr>(&candidate)) {
      if (name == nullptr || (*text)->bytes.size() != (*name)->bytes.size()) continue;
      TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
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
  std::vector<size_t> merged(keys.size());
  // Merging by hand, because comparisons can fail.
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t start = 0; start < keys.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, keys.size());
      const size_t end = std::min(start + 2 * width, keys.size());
      size_t left = start;
      size_t right = middle;
      for (size_t i = start; i < end; ++i) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          TLM_ASSIGN_OR_RETURN(take_right, reverse ? IsLess(heap, a, b) : IsLess(heap, b, a));
        }
        merged[i] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace tlm::jinja
