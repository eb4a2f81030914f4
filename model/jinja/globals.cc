#include "model/jinja/globals.h"

#include <ctime>
#include <memory>

#include "absl/strings/cord.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/builtins.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Marks the errors that a template raises itself.
constexpr char kRaisedPayload[] = "tlm/raised_by_template";

using Function = absl::StatusOr<Value> (*)(Heap* heap, Clock* clock, Arguments arguments);

class GlobalFunction final : public Callable {
 public:
  GlobalFunction(Heap* heap, Clock* clock, Function function)
      : heap_(heap), clock_(clock), function_(function) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    return function_(heap_, clock_, std::move(arguments));
  }

 private:
  Heap* const heap_;
  Clock* const clock_;
  const Function function_;
};

// Makes range() as the list of its items.
absl::StatusOr<Value> MakeRange(Heap* heap, Clock*, Arguments arguments) {
  const size_t given = arguments.positional.size();
  TLM_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind("range", {1, {"start", "stop", "step"}, false}, std::move(arguments)));
  TLM_ASSIGN_OR_RETURN(const int64_t first, bound.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const int64_t second, bound.Integer(1, 0));
  TLM_ASSIGN_OR_RETURN(const int64_t step, bound.Integer(2, 1));
  if (step == 0) return InvalidArgument("range() arg 3 must not be zero");
  const int64_t stop = given == 1 ? first : second;
  std::vector<Value> items;
  // Wider than 64 bits, so that the last step cannot overflow.
  for (__int128 item = given == 1 ? 0 : first; step > 0 ? item < stop : item > stop; item += step) {
    if (items.size() == kMaxRangeItems) {
      return ResourceExhausted("Range too big: the limit is {} items", kMaxRangeItems);
    }
    items.emplace_back(static_cast<int64_t>(item));
  }
  return heap->MakeList(std::move(items));
}

// Returns the members of dict(source, name=value ...).
absl::StatusOr<Dict::Members> MakeMembers(Heap* heap, Arguments arguments) {
  Dict::Members members;
  if (arguments.positional.size() > 1) {
    return InvalidArgument("dict expected at most 1 argument, got {}", arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    TLM_RETURN_IF_ERROR(CheckDefined(source));
    const auto* const dict = std::get_if<const Dict*>(&source);
    if (dict == nullptr) return Unimplemented("dict() of a {} is not supported", TypeName(source));
    members = (*dict)->members;
  }
  for (const auto& [name, value] : arguments.named) {
    TLM_ASSIGN_OR_RETURN(const Value key, heap->MakeText(name));
    TLM_RETURN_IF_ERROR(SetMember(heap, key, value, &members));
  }
  return members;
}

absl::StatusOr<Value> MakeDict(Heap* heap, Clock*, Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(Dict::Members members, MakeMembers(heap, std::move(arguments)));
  return heap->MakeDict(std::move(members));
}

absl::StatusOr<Value> MakeNamespace(Heap* heap, Clock*, Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(const Dict::Members members, MakeMembers(heap, std::move(arguments)));
  auto space = std::make_unique<Namespace>();
  for (const auto& [key, value] : members) {
    const auto* const name = std::get_if<TextPtr>(&key);
    if (name == nullptr) {
      return InvalidArgument("namespace: a name must be a str, not {}", TypeName(key));
    }
    TLM_RETURN_IF_ERROR(CheckNamespaceName((*name)->bytes));
    space->attributes.emplace_back((*name)->bytes, value);
  }
  const size_t bytes = members.size() * sizeof(space->attributes[0]);
  return heap->Own(std::move(space), bytes);
}

absl::StatusOr<Value> RaiseException(Heap* heap, Clock*, Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind("raise_exception", {1, {"message"}}, std::move(arguments)));
  TLM_ASSIGN_OR_RETURN(const TextPtr message, ToText(heap, *bound.Get(0)));
  absl::Status status = message->bytes.empty()
                            ? InvalidArgument("the chat template raises an exception without words")
                            : InvalidArgument("{}", message->bytes);
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

absl::StatusOr<Value> StrftimeNow(Heap* heap, Clock* clock, Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::Bind("strftime_now", {1, {"format"}}, std::move(arguments)));
  TLM_ASSIGN_OR_RETURN(const TextPtr format, bound.RequiredText(0));
  TLM_ASSIGN_OR_RETURN(std::string text, FormatTime(clock->Now(), format->bytes));
  return heap->MakeText(std::move(text));
}

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"dict", MakeDict},   {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
    {"range", MakeRange}, {"strftime_now", StrftimeNow},
};

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, Value>>> MakeGlobals(Heap* heap, Clock* clock) {
  std::vector<std::pair<std::string, Value>> globals;
  for (const auto& [name, function] : kFunctions) {
    TLM_ASSIGN_OR_RETURN(const Callable* const value,
                         heap->Own(std::make_unique<GlobalFunction>(heap, clock, function)));
    globals.emplace_back(name, value);
  }
  return globals;
}

bool IsRaisedByTemplate(const absl::Status& status) {
  return status.GetPayload(kRaisedPayload).has_value();
}

absl::Status CheckNamespaceName(std::string_view name) {
  if (!name.starts_with('_')) return absl::OkStatus();
  return InvalidArgument("a namespace cannot have the underscore-prefixed attribute {}",
                         Quoted(name));
}

absl::StatusOr<std::string> FormatTime(absl::Time time, const std::string& format) {
  // The directives %z and %Z are empty in Python because the time is naive.
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      pattern += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      pattern += fmt::format("{:06}", absl::ToUnixMicros(time) % 1'000'000);
    } else if (directive != 'z' && directive != 'Z') {
      pattern += '%';
      pattern += directive;
    }
  }
  const std::time_t seconds = absl::ToTimeT(time);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  constexpr size_t kMaxBytes = 4096;
  if (pattern.empty()) return std::string();
  if (pattern.size() < kMaxBytes) {
    std::string result(kMaxBytes, '\0');
    pattern += ' ';  // an empty result would look like a failure
    const size_t size = std::strftime(result.data(), result.size(), pattern.c_str(), &parts);
    result.resize(size);
    if (size > 0 && IsValidUtf8(result)) {
      result.pop_back();
      return result;
    }
  }
  return InvalidArgument("strftime_now: the time takes more than the limit of {} bytes", kMaxBytes);
}

}  // namespace tlm::jinja
