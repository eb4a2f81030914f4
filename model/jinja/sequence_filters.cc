#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/access.h"
#include "model/jinja/comparison.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/number_parsing.h"
#include "model/jinja/text_methods.h"
#include "model/text/casing.h"

namespace tlm::jinja {
namespace {

absl::StatusOr<Value> LengthFilter(Heap*, const Value& value, const BoundArguments&) {
  if (const std::optional<int64_t> length = Length(value)) return *length;
  return InvalidArgument("object of type '{}' has no len()", TypeName(value));
}

absl::StatusOr<Value> First(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> items, Iterate(heap, value));
  Value item;
  TLM_ASSIGN_OR_RETURN(const bool found, items->Next(&item));
  return found ? item : heap->MakeUndefined("No first item, sequence was empty.");
}

absl::StatusOr<Value> Last(Heap* heap, const Value& value, const BoundArguments&) {
  if (AsSequence(value) != nullptr || Is<TextPtr>(value)) {
    if (IsTruthy(value)) return GetItem(heap, value, int64_t{-1});
  } else {
    TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, CollectReversed(heap, value));
    if (!items.empty()) return items[0];
  }
  return heap->MakeUndefined("No last item, sequence was empty.");
}

absl::StatusOr<Value> ListFilter(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(heap, value));
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> Default(Heap* heap, const Value& value, const BoundArguments& args) {
  if (!Is<Undefined>(value) && (!args.Truth(1, false) || IsTruthy(value))) return value;
  if (args.Get(0) != nullptr) return *args.Get(0);
  return heap->MakeText("");
}

absl::StatusOr<Value> Items(Heap* heap, const Value& value, const BoundArguments&) {
  if (Is<Undefined>(value)) return heap->MakeGenerator(IterateOver({}), value);
  const auto* const dict = std::get_if<const Dict*>(&value);
  if (dict == nullptr) return InvalidArgument("Can only get item pairs from a mapping.");
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<Iterator> items,
                       Iterate(heap, DictView{*dict, DictView::Part::kItems}));
  return heap->MakeGenerator(std::move(items), value);
}

absl::StatusOr<Value> Reverse(Heap* heap, const Value& value, const BoundArguments&) {
  if (Is<TextPtr>(value)) return GetSlice(heap, value, {None{}, None{}, int64_t{-1}});
  if (Is<Generator*>(value)) {
    TLM_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(heap, value));
    std::reverse(items.begin(), items.end());
    return heap->MakeList(std::move(items));
  }
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items, CollectReversed(heap, value));
  return heap->MakeGenerator(IterateOver(std::move(items)), value);
}

absl::StatusOr<Value> IgnoreCase(Heap* heap, Value value) {
  const auto* const text = std::get_if<TextPtr>(&value);
  if (text == nullptr) return value;
  TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
  return heap->MakeText(ToLower((*text)->bytes));
}

// What an item is sorted, grouped or told apart by.
absl::StatusOr<Value> KeyOf(Heap* heap, const Value& item, const Value* attribute,
                            bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr) {
    TLM_ASSIGN_OR_RETURN(key, GetPath(heap, item, *attribute));
  }
  return case_sensitive ? key : IgnoreCase(heap, std::move(key));
}

// The paths of "a,b" for sort; a single one otherwise.
absl::StatusOr<std::vector<Value>> SortPaths(Heap* heap, const Value* attribute) {
  if (attribute == nullptr) return std::vector<Value>{None{}};
  const auto* const text = std::get_if<TextPtr>(attribute);
  if (text == nullptr) return std::vector<Value>{*attribute};
  std::vector<Value> paths;
  std::string_view rest = (*text)->bytes;
  for (;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    TLM_ASSIGN_OR_RETURN(Value path, heap->MakeText(std::string(rest.substr(0, comma))));
    paths.push_back(std::move(path));
    if (comma == rest.size()) return paths;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<Value> Reorder(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> result;
  result.reserve(items.size());
  for (const size_t i : order) result.push_back(items[i]);
  return result;
}

absl::StatusOr<Value> Sort(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, value));
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> paths, SortPaths(heap, args.GetUnlessNone(2)));
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& path : paths) {
      TLM_ASSIGN_OR_RETURN(Value part, KeyOf(heap, item, &path, args.Truth(1, false)));
      parts.push_back(std::move(part));
    }
    TLM_ASSIGN_OR_RETURN(Value key, heap->MakeList(std::move(parts)));
    keys.push_back(std::move(key));
  }
  TLM_ASSIGN_OR_RETURN(const int64_t reverse, args.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(heap, keys, reverse != 0));
  return heap->MakeList(Reorder(items, order));
}

absl::StatusOr<Value> DictSort(Heap* heap, const Value& value, const BoundArguments& args) {
  const auto* const dict = std::get_if<const Dict*>(&value);
  if (dict == nullptr) return InvalidArgument("dictsort needs a dict, not {}", TypeName(value));
  TLM_ASSIGN_OR_RETURN(const TextPtr by, args.MaybeText(1));
  if (by != nullptr && by->bytes != "key" && by->bytes != "value") {
    return InvalidArgument("You can only sort by either \"key\" or \"value\"");
  }
  const bool by_value = by != nullptr && by->bytes == "value";
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [name, member] : (*dict)->members) {
    TLM_ASSIGN_OR_RETURN(Value item, heap->MakeTuple({name, member}));
    items.push_back(std::move(item));
    TLM_ASSIGN_OR_RETURN(Value key,
                         KeyOf(heap, by_value ? member : name, nullptr, args.Truth(0, false)));
    keys.push_back(std::move(key));
  }
  TLM_ASSIGN_OR_RETURN(const int64_t reverse, args.Integer(2, 0));
  TLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(heap, keys, reverse != 0));
  return heap->MakeList(Reorder(items, order));
}

absl::StatusOr<Value> Unique(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, value));
  std::vector<Value> result;
  Dict::Members seen;
  for (const Value& item : items) {
    TLM_ASSIGN_OR_RETURN(const Value key,
                         KeyOf(heap, item, args.GetUnlessNone(1), args.Truth(0, false)));
    const size_t before = seen.size();
    TLM_RETURN_IF_ERROR(SetMember(heap, key, None{}, &seen));
    if (seen.size() > before) result.push_back(item);
  }
  return heap->MakeGenerator(IterateOver(std::move(result)), value);
}

template <bool greatest>
absl::StatusOr<Value> Extreme(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, value));
  if (items.empty()) return heap->MakeUndefined("No aggregated item, sequence was empty.");
  Value best;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(Value key,
                         KeyOf(heap, items[i], args.GetUnlessNone(1), args.Truth(0, false)));
    bool better = i == 0;
    if (!better) {
      TLM_ASSIGN_OR_RETURN(
          better, Compare(heap, greatest ? CompareOp::kGreater : CompareOp::kLess, key, best_key));
    }
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

absl::StatusOr<Value> Batch(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, value));
  TLM_ASSIGN_OR_RETURN(const int64_t given, args.Integer(0, 1));
  // Python compares lengths with the count, so that none matches a count below one.
  const size_t count = given > 0 ? static_cast<size_t>(given) : items.size() + 1;
  std::vector<Value> batches;
  for (size_t start = 0; start < items.size();) {
    const size_t end = start + std::min(count, items.size() - start);
    std::vector<Value> batch(items.begin() + static_cast<ptrdiff_t>(start),
                             items.begin() + static_cast<ptrdiff_t>(end));
    if (const Value* const fill = args.GetUnlessNone(1); fill != nullptr && given > 0) {
      TLM_RETURN_IF_ERROR(heap->CheckRoomFor(given, sizeof(Value)));
      batch.resize(count, *fill);
    }
    TLM_ASSIGN_OR_RETURN(Value list, heap->MakeList(std::move(batch)));
    batches.push_back(std::move(list));
    start = end;
  }
  return heap->MakeGenerator(IterateOver(std::move(batches)), value);
}

constexpr Parameters kDefault = {0, {"default_value", "boolean"}};
constexpr Parameters kExtreme = {0, {"case_sensitive", "attribute"}};

constexpr Filter kSequenceFilters[] = {
    {"batch", {1, {"linecount", "fill_with"}}, Batch},
    {"count", kNoParameters, LengthFilter},
    {"d", kDefault, Default},
    {"default", kDefault, Default},
    {"dictsort", {0, {"case_sensitive", "by", "reverse"}}, DictSort},
    {"first", kNoParameters, First},
    {"items", kNoParameters, Items},
    {"last", kNoParameters, Last},
    {"length", kNoParameters, LengthFilter},
    {"list", kNoParameters, ListFilter},
    {"max", kExtreme, Extreme<true>},
    {"min", kExtreme, Extreme<false>},
    {"reverse", kNoParameters, Reverse},
    {"sort", {0, {"reverse", "case_sensitive", "attribute"}}, Sort},
    {"unique", {0, {"case_sensitive", "attribute"}}, Unique},
};

}  // namespace

std::span<const Filter> SequenceFilters() { return kSequenceFilters; }

absl::StatusOr<Value> GetPath(Heap* heap, Value value, const Value& path) {
  if (Is<None>(path)) return value;
  const auto* const text = std::get_if<TextPtr>(&path);
  if (text == nullptr) return GetItem(heap, value, path);
  std::string_view rest = (*text)->bytes;
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    Value key = MakeConstantText(std::string(part));
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) {
      TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> index, ParseInteger(part, 10));
      if (index) key = *index;
    }
    TLM_ASSIGN_OR_RETURN(value, GetItem(heap, value, key));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace tlm::jinja
