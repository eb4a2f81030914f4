#include "model/jinja/builtins.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/operators.h"

namespace tlm::jinja {
namespace {

template <typename... Types>
absl::StatusOr<Value> IsAny(Heap*, const Value& value, const BoundArguments&) {
  return (Is<Types>(value) || ...);
}

template <CompareOp op>
absl::StatusOr<Value> CompareWith(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const bool holds, Compare(heap, op, value, *args.Get(0)));
  return holds;
}

template <int64_t remainder>
absl::StatusOr<Value> HasRemainder(Heap*, const Value& value, const BoundArguments&) {
  const std::optional<int64_t> integer = AsInteger(value);
  if (integer) return std::abs(*integer % 2) == remainder;
  return InvalidArgument("odd and even need an integer, not {}", TypeName(value));
}

absl::StatusOr<Value> IsDefined(Heap*, const Value& value, const BoundArguments&) {
  return !Is<Undefined>(value);
}

template <bool wanted>
absl::StatusOr<Value> IsBool(Heap*, const Value& value, const BoundArguments&) {
  const auto* const truth = std::get_if<bool>(&value);
  return truth != nullptr && *truth == wanted;
}

absl::StatusOr<Value> HasLength(Heap*, const Value& value, const BoundArguments&) {
  return LengthOf(value) >= 0;
}

absl::StatusOr<Value> IsIterableValue(Heap*, const Value& value, const BoundArguments&) {
  return IsIterable(value);
}

constexpr Parameters kOther = {1, {"other"}, false};

constexpr Builtin kTests[] = {
    {"!=", kOther, CompareWith<CompareOp::kNotEqual>},
    {"<", kOther, CompareWith<CompareOp::kLess>},
    {"<=", kOther, CompareWith<CompareOp::kLessEqual>},
    {"==", kOther, CompareWith<CompareOp::kEqual>},
    {">", kOther, CompareWith<CompareOp::kGreater>},
    {">=", kOther, CompareWith<CompareOp::kGreaterEqual>},
    {"boolean", kNoParameters, IsAny<bool>},
    {"defined", kNoParameters, IsDefined},
    {"eq", kOther, CompareWith<CompareOp::kEqual>},
    {"equalto", kOther, CompareWith<CompareOp::kEqual>},
    {"even", kNoParameters, HasRemainder<0>},
    {"false", kNoParameters, IsBool<false>},
    {"float", kNoParameters, IsAny<double>},
    {"ge", kOther, CompareWith<CompareOp::kGreaterEqual>},
    {"gt", kOther, CompareWith<CompareOp::kGreater>},
    {"in", kOther, CompareWith<CompareOp::kIn>},
    {"integer", kNoParameters, IsAny<int64_t>},
    {"iterable", kNoParameters, IsIterableValue},
    {"le", kOther, CompareWith<CompareOp::kLessEqual>},
    {"lt", kOther, CompareWith<CompareOp::kLess>},
    {"mapping", kNoParameters, IsAny<const Dict*>},
    {"ne", kOther, CompareWith<CompareOp::kNotEqual>},
    {"none", kNoParameters, IsAny<None>},
    {"number", kNoParameters, IsAny<bool, int64_t, double>},
    {"odd", kNoParameters, HasRemainder<1>},
    {"sequence", kNoParameters, HasLength},
    {"string", kNoParameters, IsAny<TextPtr>},
    {"true", kNoParameters, IsBool<true>},
    {"undefined", kNoParameters, IsAny<Undefined>},
};

constexpr std::string_view kMutators[] = {"append",     "clear",  "extend",  "insert",
                                          "pop",        "remove", "popitem", "sort",
                                          "setdefault", "update", "reverse"};
constexpr std::string_view kUnsupportedMethods[] = {
    "casefold",    "center",       "copy",         "count",        "encode",    "expandtabs",
    "find",        "format_map",   "fromkeys",     "index",        "isalnum",   "isalpha",
    "isascii",     "isdecimal",    "isdigit",      "isidentifier", "islower",   "isnumeric",
    "isprintable", "isspace",      "istitle",      "isupper",      "ljust",     "maketrans",
    "partition",   "removeprefix", "removesuffix", "rfind",        "rindex",    "rjust",
    "rpartition",  "rsplit",       "splitlines",   "swapcase",     "translate", "zfill"};

// Returns null if no builtin has the name.
const Builtin* FindBuiltin(std::span<const Builtin> builtins, std::string_view name) {
  const auto found = std::find_if(builtins.begin(), builtins.end(),
                                  [&](const Builtin& builtin) { return builtin.name == name; });
  return found == builtins.end() ? nullptr : &*found;
}

const Builtin* FindFilter(std::string_view name) {
  const Builtin* const filter = FindBuiltin(TextFilters(), name);
  return filter != nullptr ? filter : FindBuiltin(SequenceFilters(), name);
}

class BoundMethod final : public Callable {
 public:
  BoundMethod(Heap* heap, Value self, const Builtin* method)
      : heap_(heap), self_(std::move(self)), method_(method) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    // Markup escapes the arguments of its methods.
    const auto* const text = std::get_if<TextPtr>(&self_);
    if (text != nullptr && (*text)->markup) {
      return Unimplemented("{}() on the result of 'safe' is not supported", method_->name);
    }
    return method_->Call(heap_, self_, std::move(arguments));
  }

 private:
  Heap* const heap_;
  const Value self_;
  const Builtin* const method_;
};

bool IsUnsafeAttribute(const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) return true;
  const bool changes = Is<const Dict*>(object) || AsSequence(object) != nullptr;
  return changes && IsAmong(kMutators, name);
}

}  // namespace

bool IsAmong(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }
bool IsTest(std::string_view name) { return FindBuiltin(kTests, name) != nullptr; }
bool IsUnsupportedMethod(std::string_view name) { return IsAmong(kUnsupportedMethods, name); }

absl::StatusOr<Value> ApplyFilter(Heap* heap, std::string_view name, const Value& value,
                                  Arguments arguments) {
  const Builtin* const filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgument("No filter named {}.", Quoted(name));
  return filter->Call(heap, value, std::move(arguments));
}

absl::StatusOr<bool> ApplyTest(Heap* heap, std::string_view name, const Value& value,
                               Arguments arguments) {
  const Builtin* const test = FindBuiltin(kTests, name);
  if (test == nullptr) return InvalidArgument("No test named {}.", Quoted(name));
  TLM_ASSIGN_OR_RETURN(const Value holds, test->Call(heap, value, std::move(arguments)));
  return std::get<bool>(holds);
}

absl::StatusOr<std::optional<Value>> BindMethod(Heap* heap, const Value& object,
                                                std::string_view name) {
  if (IsUnsafeAttribute(object, name)) {
    return heap->MakeUndefined(fmt::format("access to attribute {} of '{}' object is unsafe.",
                                           Quoted(name), TypeName(object)));
  }
  std::span<const Builtin> methods;
  if (Is<TextPtr>(object)) methods = TextMethods();
  if (Is<const Dict*>(object)) methods = DictMethods();
  const Builtin* const method = FindBuiltin(methods, name);
  if (method == nullptr) return std::nullopt;
  TLM_ASSIGN_OR_RETURN(const Callable* const bound,
                       heap->Own(std::make_unique<BoundMethod>(heap, object, method)));
  return Value(bound);
}

absl::StatusOr<BoundArguments> BoundArguments::Bind(std::string_view function,
                                                    const Parameters& parameters,
                                                    Arguments arguments) {
  BoundArguments bound;
  if (parameters.variadic) {
    bound.all_ = std::move(arguments);
    return bound;
  }
  const auto& names = parameters.names;
  const auto end = std::find(names.begin(), names.end(), std::string_view());
  const auto count = static_cast<size_t>(end - names.begin());
  if (arguments.positional.size() > count) {
    return InvalidArgument("{}() takes at most {} arguments ({} given)", function, count,
                           arguments.positional.size());
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.values_.begin());
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), end, name);
    if (found == end || !parameters.by_name) {
      return InvalidArgument("{}() takes no keyword argument {}", function, Quoted(name));
    }
    std::optional<Value>& place = bound.values_[static_cast<size_t>(found - names.begin())];
    if (place) return InvalidArgument("{}() got two values of {}", function, name);
    place = std::move(value);
  }
  for (size_t i = 0; i < parameters.required; ++i) {
    if (!bound.values_[i]) return InvalidArgument("{}() needs argument {}", function, names[i]);
  }
  return bound;
}

const Value* BoundArguments::GetUnlessNone(size_t i) const {
  return values_[i] && !Is<None>(*values_[i]) ? &*values_[i] : nullptr;
}

absl::StatusOr<int64_t> BoundArguments::Integer(size_t i, int64_t otherwise) const {
  if (!values_[i]) return otherwise;
  if (const std::optional<int64_t> integer = AsInteger(*values_[i])) return *integer;
  return InvalidArgument("'{}' object cannot be interpreted as an integer", TypeName(*values_[i]));
}

bool BoundArguments::Truth(size_t i, bool otherwise) const {
  return values_[i] ? IsTruthy(*values_[i]) : otherwise;
}

absl::StatusOr<TextPtr> BoundArguments::MaybeText(size_t i) const {
  if (GetUnlessNone(i) == nullptr) return TextPtr();
  return RequiredText(i);
}

absl::StatusOr<TextPtr> BoundArguments::RequiredText(size_t i) const {
  if (const auto* text = std::get_if<TextPtr>(&*values_[i])) return *text;
  return InvalidArgument("expected str, not {}", TypeName(*values_[i]));
}

absl::StatusOr<Value> Builtin::Call(Heap* heap, const Value& self, Arguments arguments) const {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.Enter());
  TLM_RETURN_IF_ERROR(heap->WorkOn(self));
  TLM_RETURN_IF_ERROR(heap->WorkOn(arguments));
  TLM_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::Bind(name, parameters, std::move(arguments)));
  return function(heap, self, bound);
}

}  // namespace tlm::jinja
