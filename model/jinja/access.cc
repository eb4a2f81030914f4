#include "model/jinja/access.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/builtins.h"
#include "model/jinja/operators.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

Value NoAttribute(Heap* heap, const Value& object, std::string_view name) {
  const std::string shown = Is<None>(object) ? "None" : fmt::format("{} object", TypeName(object));
  return heap->MakeUndefined(fmt::format("'{}' has no attribute {}", shown, Quoted(name)));
}

// Evaluates Python's getattr; nullopt where it raises AttributeError.
absl::StatusOr<std::optional<Value>> FindAttribute(Heap* heap, const Value& object,
                                                   std::string_view name) {
  if (const auto* space = std::get_if<Namespace*>(&object)) {
    TLM_RETURN_IF_ERROR(heap->Work((*space)->attributes.size() * sizeof(Value)));
    for (const auto& [key, value] : (*space)->attributes) {
      if (key == name) return value;
    }
    return std::nullopt;
  }
  if (const auto* attributes = std::get_if<Attributes*>(&object)) {
    TLM_ASSIGN_OR_RETURN(Value value, (*attributes)->Get(name));
    if (Is<Undefined>(value) && std::get<Undefined>(value).why == nullptr) return std::nullopt;
    return value;
  }
  return BindMethod(heap, object, name);
}

absl::StatusOr<std::optional<int64_t>> SliceBound(const Value& bound) {
  if (Is<None>(bound)) return std::nullopt;
  if (const std::optional<int64_t> integer = AsInteger(bound)) return integer;
  return InvalidArgument("slice indices must be integers or None, not {}", TypeName(bound));
}

// The items of a sequence that a slice takes: `count` items from `start` on, each `step` apart.
struct SliceIndices {
  int64_t start;
  int64_t step;
  int64_t count;
};

absl::StatusOr<SliceIndices> ResolveSlice(const SliceBounds& bounds, int64_t length) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> given_step, SliceBound(bounds.step));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> start, SliceBound(bounds.start));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> stop, SliceBound(bounds.stop));
  const int64_t step = given_step.value_or(1);
  if (step == 0) return InvalidArgument("slice step cannot be zero");
  const auto clamp = [&](const std::optional<int64_t>& bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t low = step < 0 ? -1 : 0;
    const int64_t high = step < 0 ? length - 1 : length;
    return std::clamp(*bound < 0 ? *bound + length : *bound, low, high);
  };
  const int64_t first = clamp(start, step < 0 ? length - 1 : 0);
  const int64_t last = clamp(stop, step < 0 ? -1 : length);
  const int64_t distance = step < 0 ? first - last : last - first;
  if (distance <= 0) return SliceIndices{first, step, 0};
  // Every item is at most `length` away, so all longer steps are alike.
  const int64_t stride =
      std::clamp(step, -std::max(length, int64_t{1}), std::max(length, int64_t{1}));
  return SliceIndices{first, stride, (distance - 1) / std::abs(stride) + 1};
}

absl::StatusOr<Value> SliceOfText(Heap* heap, const Text& text, const SliceIndices& slice) {
  if (slice.step != 1) return Unimplemented("a slice of a text with a step is not supported");
  TLM_RETURN_IF_ERROR(heap->Work(text.bytes.size()));
  const size_t start = ByteOffset(text.bytes, static_cast<size_t>(slice.start));
  const std::string_view rest = std::string_view(text.bytes).substr(start);
  const size_t length = ByteOffset(rest, static_cast<size_t>(slice.count));
  return heap->MakeText(std::string(rest.substr(0, length)), text.markup);
}

absl::StatusOr<Value> SliceOfItems(Heap* heap, const Sequence& all, const SliceIndices& slice) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(slice.count, sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(slice.count));
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(all.items[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return heap->MakeSequence(std::move(items), all.is_tuple);
}

// Evaluates Python's object[key]; nullopt where it raises LookupError or TypeError.
absl::StatusOr<std::optional<Value>> FindItem(Heap* heap, const Value& object, const Value& key) {
  if (const auto* dict = std::get_if<const Dict*>(&object)) {
    if (!CheckHashable(key).ok()) return std::nullopt;
    TLM_ASSIGN_OR_RETURN(const Value* const value, FindMember(heap, **dict, key));
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  const std::optional<int64_t> index = AsInteger(key);
  const int64_t length = LengthOf(object);
  if (!index) return std::nullopt;
  const int64_t at = *index < 0 ? *index + length : *index;
  if (at < 0 || at >= length) return std::nullopt;
  if (const Sequence* const sequence = AsSequence(object)) {
    return sequence->items[static_cast<size_t>(at)];
  }
  TLM_ASSIGN_OR_RETURN(Value character, SliceOfText(heap, *std::get<TextPtr>(object), {at, 1, 1}));
  return character;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Heap* heap, const Value& object, std::string_view name) {
  TLM_RETURN_IF_ERROR(CheckDefined(object));
  TLM_ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(heap, object, name));
  if (attribute) return *std::move(attribute);
  if (const auto* dict = std::get_if<const Dict*>(&object)) {
    TLM_ASSIGN_OR_RETURN(const Value* const member,
                         FindMember(heap, **dict, MakeConstantText(std::string(name))));
    if (member != nullptr) return *member;
  }
  return NoAttribute(heap, object, name);
}

absl::StatusOr<Value> GetItem(Heap* heap, const Value& object, const Value& key) {
  TLM_RETURN_IF_ERROR(CheckDefined(object));
  TLM_ASSIGN_OR_RETURN(std::optional<Value> item, FindItem(heap, object, key));
  if (item) return *std::move(item);
  if (const auto* name = std::get_if<TextPtr>(&key)) {
    TLM_ASSIGN_OR_RETURN(item, FindAttribute(heap, object, (*name)->bytes));
    return item ? *std::move(item) : NoAttribute(heap, object, (*name)->bytes);
  }
  return heap->MakeUndefined(fmt::format("{} object has no such element", TypeName(object)));
}

absl::StatusOr<Value> GetPath(Heap* heap, Value value, const Value& path) {
  if (Is<None>(path)) return value;
  const auto* const text = std::get_if<TextPtr>(&path);
  if (text == nullptr) return GetItem(heap, value, path);
  std::string_view rest = (*text)->bytes;
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    Value key = MakeConstantText(std::string(rest.substr(0, dot)));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + dot, index);
    if (dot > 0 && rest[0] != '-' && error == std::errc() && end == rest.data() + dot) key = index;
    TLM_ASSIGN_OR_RETURN(value, GetItem(heap, value, key));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

absl::StatusOr<Value> GetSlice(Heap* heap, const Value& object, const SliceBounds& bounds) {
  TLM_RETURN_IF_ERROR(CheckDefined(object));
  const auto* const text = std::get_if<TextPtr>(&object);
  if (text == nullptr && AsSequence(object) == nullptr) {
    return InvalidArgument("'{}' object is not subscriptable by a slice", TypeName(object));
  }
  TLM_ASSIGN_OR_RETURN(const SliceIndices slice, ResolveSlice(bounds, LengthOf(object)));
  if (text != nullptr) return SliceOfText(heap, **text, slice);
  return SliceOfItems(heap, *AsSequence(object), slice);
}

}  // namespace tlm::jinja
