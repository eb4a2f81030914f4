// Implements the filters over sequences and dicts, the filters of numbers, and the methods of
// Python's dict.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/access.h"
#include "model/jinja/builtins.h"
#include "model/jinja/operators.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

using Values = std::vector<Value>;

absl::StatusOr<Value> Length(Heap*, const Value& self, const BoundArguments&) {
  const int64_t length = LengthOf(self);
  if (length >= 0) return length;
  return InvalidArgument("object of type '{}' has no len()", TypeName(self));
}

absl::StatusOr<Value> First(Heap* heap, const Value& self, const BoundArguments&) {
  if (const auto* generator = std::get_if<Generator*>(&self)) {
    const Values& items = (*generator)->items->items;
    if ((*generator)->next < items.size()) return items[(*generator)->next++];
  } else {
    TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
    if (!items.empty()) return items[0];
  }
  return heap->MakeUndefined("No first item, sequence was empty.");
}

absl::Status CheckReversible(const Value& value) {
  if (LengthOf(value) >= 0) return absl::OkStatus();
  return InvalidArgument("'{}' object is not reversible", TypeName(value));
}

absl::StatusOr<Value> Last(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_RETURN_IF_ERROR(CheckReversible(self));
  if (Is<TextPtr>(self) && IsTruthy(self)) return GetItem(heap, self, int64_t{-1});
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  if (!items.empty()) return items.back();
  return heap->MakeUndefined("No last item, sequence was empty.");
}

absl::StatusOr<Value> List(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  return heap->MakeList(Values(items.begin(), items.end()));
}

absl::StatusOr<Value> Default(Heap* heap, const Value& self, const BoundArguments& args) {
  if (!Is<Undefined>(self) && (!args.Truth(1, false) || IsTruthy(self))) return self;
  if (args.Get(0) != nullptr) return *args.Get(0);
  return heap->MakeText("");
}

absl::StatusOr<Value> Reverse(Heap* heap, const Value& self, const BoundArguments&) {
  if (Is<TextPtr>(self)) return GetSlice(heap, self, {None{}, None{}, int64_t{-1}});
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  Values reversed(items.rbegin(), items.rend());
  if (Is<Generator*>(self)) return heap->MakeList(std::move(reversed));
  return heap->MakeGenerator(std::move(reversed));
}

absl::StatusOr<Values> ItemsOf(Heap* heap, const Dict& dict) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(dict.members.size() * (sizeof(Value) + sizeof(Sequence))));
  Values items;
  for (const auto& [key, value] : dict.members) {
    TLM_ASSIGN_OR_RETURN(items.emplace_back(), heap->MakeSequence({key, value}, true));
  }
  return items;
}

absl::StatusOr<Value> Items(Heap* heap, const Value& self, const BoundArguments&) {
  Values items;
  if (const auto* dict = std::get_if<const Dict*>(&self)) {
    TLM_ASSIGN_OR_RETURN(items, ItemsOf(heap, **dict));
  } else if (!Is<Undefined>(self)) {
    return InvalidArgument("Can only get item pairs from a mapping.");
  }
  return heap->MakeGenerator(std::move(items));
}

// Returns the key by which items are sorted and compared.
absl::StatusOr<Value> KeyOf(Heap* heap, const Value& item, const Value* attribute,
                            bool case_sensitive) {
  TLM_ASSIGN_OR_RETURN(Value key, GetPath(heap, item, attribute == nullptr ? None{} : *attribute));
  const auto* const text = std::get_if<TextPtr>(&key);
  if (text == nullptr || case_sensitive) return key;
  TLM_RETURN_IF_ERROR(heap->WorkOn(key));
  return heap->MakeText(ToLower((*text)->bytes));
}

// Evaluates sorted(items) by an attribute of theirs; null: by the items themselves.
absl::StatusOr<Value> Sorted(Heap* heap, std::span<const Value> items, const Value* attribute,
                             bool case_sensitive, bool reverse) {
  Values keys;
  for (const Value& item : items) {
    TLM_ASSIGN_OR_RETURN(keys.emplace_back(), KeyOf(heap, item, attribute, case_sensitive));
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(heap, keys, reverse));
  Values result;
  for (const size_t i : order) result.push_back(items[i]);
  return heap->MakeList(std::move(result));
}

absl::StatusOr<Value> Sort(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  const Value* const attribute = args.GetUnlessNone(2);
  const auto* const path = attribute == nullptr ? nullptr : std::get_if<TextPtr>(attribute);
  if (path != nullptr && (*path)->bytes.find(',') != std::string::npos) {
    return Unimplemented("sort by several attributes is not supported");
  }
  TLM_ASSIGN_OR_RETURN(const int64_t reverse, args.Integer(0, 0));
  return Sorted(heap, items, attribute, args.Truth(1, false), reverse != 0);
}

absl::StatusOr<Value> DictSort(Heap* heap, const Value& self, const BoundArguments& args) {
  const auto* const dict = std::get_if<const Dict*>(&self);
  if (dict == nullptr) return InvalidArgument("dictsort needs a dict, not {}", TypeName(self));
  TLM_ASSIGN_OR_RETURN(const TextPtr by, args.MaybeText(1));
  if (by != nullptr && by->bytes != "key" && by->bytes != "value") {
    return InvalidArgument("You can only sort by either \"key\" or \"value\"");
  }
  const Value part = int64_t{by != nullptr && by->bytes == "value" ? 1 : 0};
  TLM_ASSIGN_OR_RETURN(const Values items, ItemsOf(heap, **dict));
  TLM_ASSIGN_OR_RETURN(const int64_t reverse, args.Integer(2, 0));
  return Sorted(heap, items, &part, args.Truth(0, false), reverse != 0);
}

absl::StatusOr<Value> Unique(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  Values result;
  Dict::Members seen;
  for (const Value& item : items) {
    TLM_ASSIGN_OR_RETURN(const Value key,
                         KeyOf(heap, item, args.GetUnlessNone(1), args.Truth(0, false)));
    const size_t before = seen.size();
    TLM_RETURN_IF_ERROR(SetMember(heap, key, None{}, &seen));
    if (seen.size() > before) result.push_back(item);
  }
  return heap->MakeGenerator(std::move(result));
}

// Returns the first of the least or of the greatest items.
template <CompareOp op>
absl::StatusOr<Value> Extreme(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  if (items.empty()) return heap->MakeUndefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    return KeyOf(heap, item, args.GetUnlessNone(1), args.Truth(0, false));
  };
  const Value* best = &items[0];
  TLM_ASSIGN_OR_RETURN(Value best_key, key_of(*best));
  for (const Value& item : items.subspan(1)) {
    TLM_ASSIGN_OR_RETURN(Value key, key_of(item));
    TLM_ASSIGN_OR_RETURN(const bool is_better, Compare(heap, op, key, best_key));
    if (!is_better) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

// Evaluates int(): a text gives its digits, or its value as a float without the fraction.
absl::StatusOr<Value> Int(Heap*, const Value& self, const BoundArguments& args) {
  TLM_RETURN_IF_ERROR(CheckDefined(self));
  const Value otherwise = args.Get(0) != nullptr ? *args.Get(0) : Value(int64_t{0});
  if (const std::optional<int64_t> integer = AsInteger(self)) return *integer;
  double real = NAN;
  if (const auto* text = std::get_if<TextPtr>(&self)) {
    std::string_view digits = StripRight(StripLeft((*text)->bytes, IsSpace), IsSpace);
    if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
    const char* const end = digits.data() + digits.size();
    int64_t integer = 0;
    if (const auto read = std::from_chars(digits.data(), end, integer);
        read.ptr == end && read.ec == std::errc()) {
      return integer;
    }
    if (std::from_chars(digits.data(), end, real).ptr != end) real = NAN;
  } else if (const auto* number = std::get_if<double>(&self)) {
    real = *number;
  }
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (!std::isfinite(real)) return otherwise;
  if (!(real >= -kTwoTo63 && real < kTwoTo63)) {
    return InvalidArgument("integer overflow: integers have at most 64 bits");
  }
  return static_cast<int64_t>(real);
}

absl::StatusOr<std::string> NameIn(std::string_view filter, const Arguments& arguments, size_t i) {
  if (arguments.positional.size() <= i) return InvalidArgument("{} lacks an argument", filter);
  const auto* const text = std::get_if<TextPtr>(&arguments.positional[i]);
  if (text != nullptr) return (*text)->bytes;
  return InvalidArgument("{} needs a name, not {}", filter, TypeName(arguments.positional[i]));
}

// Returns the arguments after the first `count`.
Arguments Rest(const Arguments& all, size_t count) {
  Arguments rest = all;
  const auto begin = rest.positional.begin();
  rest.positional.erase(begin,
                        begin + static_cast<ptrdiff_t>(std::min(count, rest.positional.size())));
  return rest;
}

// Returns the items; map, select and similar filters take a false value for an empty sequence.
absl::StatusOr<std::span<const Value>> ItemsIfAny(Heap* heap, const Value& value) {
  if (!IsTruthy(value)) return std::span<const Value>();
  return heap->Items(value);
}

// Evaluates items|map(attribute=path, default=value).
absl::StatusOr<Value> MapAttribute(Heap* heap, std::span<const Value> items,
                                   const Arguments& arguments) {
  const Value* path = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, argument] : arguments.named) {
    if (name != "attribute" && name != "default") {
      return InvalidArgument("map: unexpected keyword argument {}", Quoted(name));
    }
    (name == "attribute" ? path : otherwise) = &argument;
  }
  if (path == nullptr) return InvalidArgument("map requires a filter argument");
  Values result;
  for (const Value& item : items) {
    TLM_RETURN_IF_ERROR(heap->Step());
    TLM_ASSIGN_OR_RETURN(Value part, GetPath(heap, item, *path));
    const bool is_missing = Is<Undefined>(part) && otherwise != nullptr && !Is<None>(*otherwise);
    result.push_back(is_missing ? *otherwise : std::move(part));
  }
  return heap->MakeGenerator(std::move(result));
}

// Evaluates items|map(filter, its arguments ...).
absl::StatusOr<Value> Map(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, ItemsIfAny(heap, self));
  if (args.all().positional.empty()) return MapAttribute(heap, items, args.all());
  TLM_ASSIGN_OR_RETURN(const std::string name, NameIn("map", args.all(), 0));
  const Arguments rest = Rest(args.all(), 1);
  Values result;
  for (const Value& item : items) {
    TLM_ASSIGN_OR_RETURN(result.emplace_back(), ApplyFilter(heap, name, item, rest));
  }
  return heap->MakeGenerator(std::move(result));
}

// Evaluates items|select(test, its arguments ...) and, `by_attribute`, items|selectattr(path, test
// ...): the items for which the test, or truth if no test is named, is `wanted`.
template <bool wanted, bool by_attribute>
absl::StatusOr<Value> Select(Heap* heap, const Value& self, const BoundArguments& args) {
  constexpr size_t kTest = by_attribute ? 1 : 0;
  const Values& given = args.all().positional;
  if (given.size() < kTest) return InvalidArgument("selectattr needs an attribute");
  Value path = None{};
  if (by_attribute) path = given[0];
  std::string test;
  if (given.size() > kTest) {
    TLM_ASSIGN_OR_RETURN(test, NameIn("select", args.all(), kTest));
  }
  const Arguments rest = Rest(args.all(), kTest + 1);
  TLM_ASSIGN_OR_RETURN(const auto items, ItemsIfAny(heap, self));
  Values result;
  for (const Value& item : items) {
    TLM_RETURN_IF_ERROR(heap->Step());
    TLM_ASSIGN_OR_RETURN(const Value value, GetPath(heap, item, path));
    bool passes = IsTruthy(value);
    if (!test.empty()) {
      TLM_ASSIGN_OR_RETURN(passes, ApplyTest(heap, test, value, rest));
    }
    if (passes == wanted) result.push_back(item);
  }
  return heap->MakeGenerator(std::move(result));
}

absl::StatusOr<Value> Get(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const Value* const value,
                       FindMember(heap, *std::get<const Dict*>(self), *args.Get(0)));
  if (value != nullptr) return *value;
  return args.Get(1) != nullptr ? *args.Get(1) : None{};
}

absl::StatusOr<Value> ItemList(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(Values items, ItemsOf(heap, *std::get<const Dict*>(self)));
  return heap->MakeList(std::move(items));
}

template <bool keys>
absl::StatusOr<Value> PartList(Heap* heap, const Value& self, const BoundArguments&) {
  Values parts;
  for (const auto& [key, value] : std::get<const Dict*>(self)->members) {
    parts.push_back(keys ? key : value);
  }
  return heap->MakeList(std::move(parts));
}

constexpr Parameters kDefault = {0, {"default_value", "boolean"}};
constexpr Parameters kExtreme = {0, {"case_sensitive", "attribute"}};
constexpr Parameters kVariadic = {.variadic = true};

constexpr Builtin kSequenceFilters[] = {
    {"d", kDefault, Default},
    {"default", kDefault, Default},
    {"dictsort", {0, {"case_sensitive", "by", "reverse"}}, DictSort},
    {"first", kNoParameters, First},
    {"int", {0, {"default"}}, Int},
    {"items", kNoParameters, Items},
    {"last", kNoParameters, Last},
    {"length", kNoParameters, Length},
    {"list", kNoParameters, List},
    {"map", kVariadic, Map},
    {"max", kExtreme, Extreme<CompareOp::kGreater>},
    {"min", kExtreme, Extreme<CompareOp::kLess>},
    {"reject", kVariadic, Select<false, false>},
    {"rejectattr", kVariadic, Select<false, true>},
    {"reverse", kNoParameters, Reverse},
    {"select", kVariadic, Select<true, false>},
    {"selectattr", kVariadic, Select<true, true>},
    {"sort", {0, {"reverse", "case_sensitive", "attribute"}}, Sort},
    {"unique", {0, {"case_sensitive", "attribute"}}, Unique},
};

constexpr Builtin kDictMethods[] = {
    {"get", {1, {"key", "default"}, false}, Get},
    {"items", kNoParameters, ItemList},
    {"keys", kNoParameters, PartList<true>},
    {"values", kNoParameters, PartList<false>},
};

}  // namespace

std::span<const Builtin> SequenceFilters() { return kSequenceFilters; }
std::span<const Builtin> DictMethods() { return kDictMethods; }

}  // namespace tlm::jinja
