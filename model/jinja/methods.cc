#include "model/jinja/methods.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/comparison.h"
#include "model/jinja/iteration.h"
#include "model/jinja/parameters.h"
#include "model/jinja/text_format.h"
#include "model/jinja/text_methods.h"

namespace tlm::jinja {
namespace {

// `value` with the mark of `escape` and `safe` on all the texts in it.
absl::StatusOr<Value> AsMarkup(Heap* heap, Value value) {
  if (const auto* text = std::get_if<TextPtr>(&value)) {
    return heap->MakeText((*text)->bytes, /*markup=*/true);
  }
  const Sequence* const sequence = AsSequence(value);
  if (sequence == nullptr) return value;
  std::vector<Value> items = sequence->items;
  for (Value& item : items) {
    TLM_ASSIGN_OR_RETURN(item, AsMarkup(heap, item));
  }
  if (Is<const List*>(value)) return heap->MakeList(std::move(items));
  return heap->MakeTuple(std::move(items));
}

// Many methods of Python's Markup escape what they are given.
absl::Status CheckMarkupArguments(std::string_view method, const Arguments& arguments) {
  constexpr std::string_view kPlain[] = {"count",  "endswith", "find",  "index",      "rfind",
                                         "rindex", "rsplit",   "split", "splitlines", "startswith"};
  if (std::find(std::begin(kPlain), std::end(kPlain), method) != std::end(kPlain)) {
    return absl::OkStatus();
  }
  for (const Value& value : arguments.positional) {
    if (method == "join" || Is<TextPtr>(value) || AsSequence(value) != nullptr) {
      return Unimplemented("{}() of escaped text with such arguments is not supported", method);
    }
  }
  return absl::OkStatus();
}

class BoundTextMethod final : public Callable {
 public:
  BoundTextMethod(Heap* heap, TextPtr self, const TextMethod* method)
      : heap_(heap), self_(std::move(self)), method_(method) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    TLM_RETURN_IF_ERROR(heap_->Work(self_->bytes.size()));
    TLM_RETURN_IF_ERROR(heap_->WorkOn(arguments));
    if (self_->markup) TLM_RETURN_IF_ERROR(CheckMarkupArguments(method_->name, arguments));
    TLM_ASSIGN_OR_RETURN(
        const BoundArguments bound,
        BoundArguments::Bind(method_->name, method_->parameters, std::move(arguments)));
    TLM_ASSIGN_OR_RETURN(Value result, method_->function(heap_, self_, bound));
    return self_->markup ? AsMarkup(heap_, std::move(result)) : std::move(result);
  }

 private:
  Heap* const heap_;
  const TextPtr self_;
  const TextMethod* const method_;
};

class FormatMethod final : public Callable {
 public:
  FormatMethod(Heap* heap, TextPtr self) : heap_(heap), self_(std::move(self)) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    if (self_->markup) return Unimplemented("format() of escaped text is not supported");
    return FormatBraces(heap_, self_, arguments);
  }

 private:
  Heap* const heap_;
  const TextPtr self_;
};

// A method of a list, tuple, range or dict.
struct ContainerMethod {
  std::string_view name;
  Parameters parameters;
  absl::StatusOr<Value> (*function)(Heap* heap, const Value& self, const BoundArguments& args);
};

class BoundContainerMethod final : public Callable {
 public:
  BoundContainerMethod(Heap* heap, Value self, const ContainerMethod* method)
      : heap_(heap), self_(std::move(self)), method_(method) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    TLM_ASSIGN_OR_RETURN(
        const BoundArguments bound,
        BoundArguments::Bind(method_->name, method_->parameters, std::move(arguments)));
    return method_->function(heap_, self_, bound);
  }

 private:
  Heap* const heap_;
  const Value self_;
  const ContainerMethod* const method_;
};

template <DictView::Part part>
absl::StatusOr<Value> View(Heap*, const Value& self, const BoundArguments&) {
  return DictView{std::get<const Dict*>(self), part};
}

absl::StatusOr<Value> Get(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const Value* const value,
                       FindMember(heap, *std::get<const Dict*>(self), *args.Get(0)));
  if (value != nullptr) return *value;
  return args.Get(1) != nullptr ? *args.Get(1) : None{};
}

absl::StatusOr<Value> Copy(Heap*, const Value& self, const BoundArguments&) {
  return self;  // values do not change
}

absl::StatusOr<Value> Index(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, self));
  for (size_t i = 0; i < items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, items[i], *args.Get(0)));
    if (equal) return static_cast<int64_t>(i);
  }
  return InvalidArgument("the value is not in the {}", TypeName(self));
}

absl::StatusOr<Value> Count(Heap* heap, const Value& self, const BoundArguments& args) {
  int64_t count = 0;
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, self));
  for (const Value& item : items) {
    TLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(heap, item, *args.Get(0)));
    count += equal ? 1 : 0;
  }
  return count;
}

constexpr Parameters kValue = {1, {"value"}, false};

constexpr ContainerMethod kDictMethods[] = {
    {"copy", kNoParameters, Copy},
    {"get", {1, {"key", "default"}, false}, Get},
    {"items", kNoParameters, View<DictView::Part::kItems>},
    {"keys", kNoParameters, View<DictView::Part::kKeys>},
    {"values", kNoParameters, View<DictView::Part::kValues>},
};
constexpr ContainerMethod kListMethods[] = {
    {"copy", kNoParameters, Copy},
    {"count", kValue, Count},
    {"index", kValue, Index},
};
constexpr auto kTupleMethods = std::span(kListMethods).subspan(1);

constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kMissingTextMethods[] = {"casefold",   "encode",       "expandtabs",
                                                    "format_map", "isidentifier", "istitle",
                                                    "maketrans",  "swapcase",     "translate"};

bool IsAmong(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename Method>
const Method* FindMethod(std::span<const Method> methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const Method& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

// A function of the Heap as a value.
template <typename T>
absl::StatusOr<std::optional<Value>> AsValue(Heap* heap, std::unique_ptr<T> function) {
  TLM_ASSIGN_OR_RETURN(const Callable* const owned, heap->Own(std::move(function)));
  return Value(owned);
}

absl::StatusOr<std::optional<Value>> BindTextMethod(Heap* heap, const TextPtr& self,
                                                    std::string_view name) {
  if (name == "format") return AsValue(heap, std::make_unique<FormatMethod>(heap, self));
  const TextMethod* method = FindMethod(TextTransformMethods(), name);
  if (method == nullptr) method = FindMethod(TextSearchMethods(), name);
  if (method != nullptr) {
    return AsValue(heap, std::make_unique<BoundTextMethod>(heap, self, method));
  }
  if (IsAmong(kMissingTextMethods, name)) return Unimplemented("str.{} is not supported", name);
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<Value>> BindMethod(Heap* heap, const Value& object,
                                                std::string_view name) {
  if (const auto* text = std::get_if<TextPtr>(&object)) return BindTextMethod(heap, *text, name);
  std::span<const ContainerMethod> methods;
  if (Is<const Dict*>(object)) methods = kDictMethods;
  if (Is<const List*>(object)) methods = kListMethods;
  if (Is<const Tuple*>(object) || Is<const Range*>(object)) methods = kTupleMethods;
  const ContainerMethod* const method = FindMethod(methods, name);
  if (method != nullptr) {
    return AsValue(heap, std::make_unique<BoundContainerMethod>(heap, object, method));
  }
  if (Is<const Dict*>(object) && name == "fromkeys") {
    return Unimplemented("dict.fromkeys is not supported");
  }
  return std::nullopt;
}

bool IsUnsafeAttribute(const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) return true;
  if (Is<const Dict*>(object)) return IsAmong(kDictMutators, name);
  return Is<const List*>(object) && IsAmong(kListMutators, name);
}

}  // namespace tlm::jinja
