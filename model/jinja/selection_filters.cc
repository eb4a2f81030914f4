#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/percent_format.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

// Reads its source only when it is read itself, as Python's generators do: what is wrong with an
// item that nobody asks for is no error.
class LazyIterator : public Iterator {
 public:
  LazyIterator(Heap* heap, Value source) : heap_(heap), source_(std::move(source)) {}

 protected:
  absl::StatusOr<bool> NextOfSource(Value* item) {
    TLM_RETURN_IF_ERROR(heap_->Step());
    if (items_ == nullptr) {
      if (!IsTruthy(source_)) return false;
      TLM_ASSIGN_OR_RETURN(items_, Iterate(heap_, source_));
    }
    return items_->Next(item);
  }
  Heap* heap() const { return heap_; }

 private:
  Heap* const heap_;
  const Value source_;
  std::unique_ptr<Iterator> items_;
};

class FilterIterator final : public LazyIterator {
 public:
  FilterIterator(Heap* heap, Value source, std::string name, Arguments arguments)
      : LazyIterator(heap, std::move(source)),
        name_(std::move(name)),
        arguments_(std::move(arguments)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    Value value;
    TLM_ASSIGN_OR_RETURN(const bool more, NextOfSource(&value));
    if (!more) return false;
    TLM_ASSIGN_OR_RETURN(*item, ApplyFilter(heap(), name_, value, arguments_));
    return true;
  }

 private:
  const std::string name_;
  const Arguments arguments_;
};

class AttributeIterator final : public LazyIterator {
 public:
  AttributeIterator(Heap* heap, Value source, Value path, std::optional<Value> otherwise)
      : LazyIterator(heap, std::move(source)),
        path_(std::move(path)),
        otherwise_(std::move(otherwise)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    Value value;
    TLM_ASSIGN_OR_RETURN(const bool more, NextOfSource(&value));
    if (!more) return false;
    TLM_ASSIGN_OR_RETURN(*item, GetPath(heap(), std::move(value), path_));
    if (otherwise_ && Is<Undefined>(*item)) *item = *otherwise_;
    return true;
  }

 private:
  const Value path_;
  const std::optional<Value> otherwise_;
};

class SelectIterator final : public LazyIterator {
 public:
  // Hands out the items for which `test` (truth when empty) of `path` (None: the item) is `wanted`.
  SelectIterator(Heap* heap, Value source, bool wanted, Value path, std::string test,
                 Arguments arguments)
      : LazyIterator(heap, std::move(source)),
        wanted_(wanted),
        path_(std::move(path)),
        test_(std::move(test)),
        arguments_(std::move(arguments)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    for (;;) {
      TLM_ASSIGN_OR_RETURN(const bool more, NextOfSource(item));
      if (!more) return false;
      TLM_ASSIGN_OR_RETURN(const Value value, GetPath(heap(), *item, path_));
      bool passes = IsTruthy(value);
      if (!test_.empty()) {
        TLM_ASSIGN_OR_RETURN(passes, ApplyTest(heap(), test_, value, arguments_));
      }
      if (passes == wanted_) return true;
    }
  }

 private:
  const bool wanted_;
  const Value path_;
  const std::string test_;
  const Arguments arguments_;
};

// The first positional argument, off the front.
absl::StatusOr<Value> TakeFirst(std::string_view filter, std::string_view what,
                                Arguments* arguments) {
  if (arguments->positional.empty()) return InvalidArgument("{} needs {}", filter, what);
  Value first = std::move(arguments->positional.front());
  arguments->positional.erase(arguments->positional.begin());
  return first;
}

absl::StatusOr<std::string> TakeName(std::string_view filter, std::string_view what,
                                     Arguments* arguments) {
  TLM_ASSIGN_OR_RETURN(const Value name, TakeFirst(filter, what, arguments));
  if (const auto* text = std::get_if<TextPtr>(&name)) return (*text)->bytes;
  return InvalidArgument("{} needs {}, not {}", filter, what, TypeName(name));
}

absl::StatusOr<Value> MapAttribute(Heap* heap, const Value& value, const Arguments& arguments) {
  std::optional<Value> path;
  std::optional<Value> otherwise;
  for (const auto& [name, argument] : arguments.named) {
    if (name == "attribute") {
      path = argument;
    } else if (name == "default") {
      if (!Is<None>(argument)) otherwise = argument;
    } else {
      return InvalidArgument("map: unexpected keyword argument {}", Quoted(name));
    }
  }
  if (!path) return InvalidArgument("map requires a filter argument");
  return heap->MakeGenerator(
      std::make_unique<AttributeIterator>(heap, value, *std::move(path), std::move(otherwise)),
      value);
}

absl::StatusOr<Value> Map(Heap* heap, const Value& value, Arguments arguments) {
  if (arguments.positional.empty()) return MapAttribute(heap, value, arguments);
  TLM_ASSIGN_OR_RETURN(std::string name, TakeName("map", "the name of a filter", &arguments));
  return heap->MakeGenerator(
      std::make_unique<FilterIterator>(heap, value, std::move(name), std::move(arguments)), value);
}

template <bool wanted, bool by_attribute>
absl::StatusOr<Value> Select(Heap* heap, const Value& value, Arguments arguments) {
  Value path = None{};
  if (by_attribute) {
    TLM_ASSIGN_OR_RETURN(path, TakeFirst("selectattr", "an attribute", &arguments));
  }
  std::string test;
  if (!arguments.positional.empty()) {
    TLM_ASSIGN_OR_RETURN(test, TakeName("select", "the name of a test", &arguments));
  }
  return heap->MakeGenerator(
      std::make_unique<SelectIterator>(heap, value, wanted, std::move(path), std::move(test),
                                       std::move(arguments)),
      value);
}

absl::StatusOr<Value> Format(Heap* heap, const Value& value, Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(const TextPtr format, ToText(heap, value));
  if (arguments.named.empty()) {
    TLM_ASSIGN_OR_RETURN(const Value tuple, heap->MakeTuple(std::move(arguments.positional)));
    return PercentFormat(heap, format, tuple);
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("format: positional and keyword arguments at the same time");
  }
  Dict::Members members;
  for (auto& [name, argument] : arguments.named) {
    TLM_ASSIGN_OR_RETURN(Value key, heap->MakeText(name));
    members.emplace_back(std::move(key), std::move(argument));
  }
  TLM_ASSIGN_OR_RETURN(const Value dict, heap->MakeDict(std::move(members)));
  return PercentFormat(heap, format, dict);
}

constexpr VariadicFilter kSelectionFilters[] = {
    {"format", Format},
    {"map", Map},
    {"reject", Select<false, false>},
    {"rejectattr", Select<false, true>},
    {"select", Select<true, false>},
    {"selectattr", Select<true, true>},
};

}  // namespace

std::span<const VariadicFilter> SelectionFilters() { return kSelectionFilters; }

}  // namespace tlm::jinja
