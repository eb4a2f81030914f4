#include "model/jinja/access.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/comparison.h"
#include "model/jinja/iteration.h"
#include "model/jinja/methods.h"
#include "model/jinja/printing.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

absl::Status WhyUndefined(const Undefined& undefined) {
  return InvalidArgument("{}", undefined.why->bytes);
}

std::string Describe(const Value& object) {
  return Is<None>(object) ? "None" : fmt::format("{} object", TypeName(object));
}

// Python's getattr: nullopt where it raises AttributeError.
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
  if (IsUnsafeAttribute(object, name)) {
    return heap->MakeUndefined(fmt::format("access to attribute {} of '{}' object is unsafe.",
                                           Quoted(name), TypeName(object)));
  }
  return BindMethod(heap, object, name);
}

// `index` counted from the front; nullopt outside the sequence.
std::optional<int64_t> ResolveIndex(int64_t index, int64_t length) {
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return index;
}

absl::StatusOr<Value> TextAt(Heap* heap, const Text& text, int64_t index) {
  const auto at = static_cast<size_t>(index);
  if (text.is_ascii()) return heap->MakeText(text.bytes.substr(at, 1), text.markup);
  TLM_RETURN_IF_ERROR(heap->Work(text.bytes.size()));
  const size_t start = ByteOffset(text.bytes, at);
  size_t end = start;
  NextCodePoint(text.bytes, &end);
  return heap->MakeText(text.bytes.substr(start, end - start), text.markup);
}

// Python's object[key]: nullopt where it raises LookupError or TypeError.
absl::StatusOr<std::optional<Value>> FindItem(Heap* heap, const Value& object, const Value& key) {
  if (const auto* dict = std::get_if<const Dict*>(&object)) {
    if (!CheckHashable(key).ok()) return std::nullopt;
    TLM_ASSIGN_OR_RETURN(const Value* const value, FindMember(heap, **dict, key));
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  const std::optional<int64_t> index = AsInteger(key);
  const std::optional<int64_t> length = Length(object);
  if (!index || !length || Is<DictView>(object)) return std::nullopt;
  const std::optional<int64_t> at = ResolveIndex(*index, *length);
  if (!at) return std::nullopt;
  if (const Sequence* const sequence = AsSequence(object)) {
    return sequence->items[static_cast<size_t>(*at)];
  }
  if (const auto* range = std::get_if<const Range*>(&object)) return Value((*range)->At(*at));
  return TextAt(heap, *std::get<TextPtr>(object), *at);
}

absl::StatusOr<std::optional<int64_t>> SliceBound(const Value& bound) {
  if (Is<None>(bound)) return std::nullopt;
  if (const std::optional<int64_t> integer = AsInteger(bound)) return integer;
  return InvalidArgument("slice indices must be integers or None, not {}", TypeName(bound));
}

absl::StatusOr<Value> SliceOfText(Heap* heap, const Text& text, const SliceIndices& slice) {
  TLM_RETURN_IF_ERROR(heap->Work(text.bytes.size()));
  const auto offset = [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    return text.is_ascii() ? at : ByteOffset(text.bytes, at);
  };
  if (slice.count == 0) return heap->MakeText("", text.markup);
  if (slice.step == 1) {
    const size_t start = offset(slice.start);
    const size_t end = offset(slice.start + slice.count);
    return heap->MakeText(text.bytes.substr(start, end - start), text.markup);
  }
  TLM_RETURN_IF_ERROR(heap->CheckRoom(text.length * sizeof(size_t)));
  std::vector<size_t> starts;
  starts.reserve(text.length + 1);
  for (size_t next = 0; next < text.bytes.size(); NextCodePoint(text.bytes, &next)) {
    starts.push_back(next);
  }
  starts.push_back(text.bytes.size());
  std::string result;
  for (int64_t i = 0; i < slice.count; ++i) {
    const auto at = static_cast<size_t>(slice.start + i * slice.step);
    result += text.bytes.substr(starts[at], starts[at + 1] - starts[at]);
  }
  return heap->MakeText(std::move(result), text.markup);
}

absl::StatusOr<Value> SliceOfItems(Heap* heap, const Value& object, const SliceIndices& slice) {
  const std::vector<Value>& all = AsSequence(object)->items;
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(slice.count, sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(slice.count));
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(all[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  if (Is<const List*>(object)) return heap->MakeList(std::move(items));
  return heap->MakeTuple(std::move(items));
}

absl::StatusOr<Value> SliceOfRange(Heap* heap, const Range& range, const SliceIndices& slice) {
  int64_t step = 0;
  if (__builtin_mul_overflow(range.step, slice.step, &step)) return IntegerOverflow();
  const auto at = [&](int64_t index, int64_t* value) {
    return !__builtin_mul_overflow(range.step, index, value) &&
           !__builtin_add_overflow(range.start, *value, value);
  };
  int64_t start = 0;
  int64_t stop = 0;
  if (!at(slice.start, &start) || !at(slice.stop, &stop)) return IntegerOverflow();
  return heap->Own(std::make_unique<Range>(start, stop, step, slice.count));
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Heap* heap, const Value& object, std::string_view name) {
  if (const auto* undefined = std::get_if<Undefined>(&object)) return WhyUndefined(*undefined);
  TLM_ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(heap, object, name));
  if (attribute) return *std::move(attribute);
  if (const auto* dict = std::get_if<const Dict*>(&object)) {
    TLM_ASSIGN_OR_RETURN(const Value* const member,
                         FindMember(heap, **dict, MakeConstantText(std::string(name))));
    if (member != nullptr) return *member;
  }
  return heap->MakeUndefined(
      fmt::format("'{}' has no attribute {}", Describe(object), Quoted(name)));
}

absl::StatusOr<Value> GetItem(Heap* heap, const Value& object, const Value& key) {
  if (const auto* undefined = std::get_if<Undefined>(&object)) return WhyUndefined(*undefined);
  TLM_ASSIGN_OR_RETURN(std::optional<Value> item, FindItem(heap, object, key));
  if (item) return *std::move(item);
  if (const auto* name = std::get_if<TextPtr>(&key)) {
    TLM_ASSIGN_OR_RETURN(std::optional<Value> attribute,
                         FindAttribute(heap, object, (*name)->bytes));
    if (attribute) return *std::move(attribute);
    return heap->MakeUndefined(
        fmt::format("'{}' has no attribute {}", Describe(object), Quoted((*name)->bytes)));
  }
  return heap->MakeUndefined(fmt::format("{} has no such element", Describe(object)));
}

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
  if (distance <= 0) return SliceIndices{first, last, step, 0};
  // No item lies further than `length` away, so longer steps are all alike.
  const int64_t stride =
      std::clamp(step, -std::max(length, int64_t{1}), std::max(length, int64_t{1}));
  return SliceIndices{first, last, stride, (distance - 1) / std::abs(stride) + 1};
}

absl::StatusOr<Value> GetSlice(Heap* heap, const Value& object, const SliceBounds& bounds) {
  if (const auto* undefined = std::get_if<Undefined>(&object)) return WhyUndefined(*undefined);
  const auto* const text = std::get_if<TextPtr>(&object);
  const auto* const range = std::get_if<const Range*>(&object);
  if (text == nullptr && range == nullptr && AsSequence(object) == nullptr) {
    return InvalidArgument("'{}' object is not subscriptable by a slice", TypeName(object));
  }
  TLM_ASSIGN_OR_RETURN(const SliceIndices slice, ResolveSlice(bounds, *Length(object)));
  if (text != nullptr) return SliceOfText(heap, **text, slice);
  if (range == nullptr) return SliceOfItems(heap, object, slice);
  return SliceOfRange(heap, **range, slice);
}

}  // namespace tlm::jinja
