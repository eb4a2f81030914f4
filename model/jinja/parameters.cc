#include "model/jinja/parameters.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/arithmetic.h"

namespace tlm::jinja {

absl::StatusOr<BoundArguments> BoundArguments::Bind(std::string_view function,
                                                    const Parameters& parameters,
                                                    Arguments arguments) {
  const auto& names = parameters.names;
  const auto end = std::find(names.begin(), names.end(), std::string_view());
  const auto count = static_cast<size_t>(end - names.begin());
  if (arguments.positional.size() > count) {
    return InvalidArgument("{}() takes at most {} arguments ({} given)", function, count,
                           arguments.positional.size());
  }
  BoundArguments bound;
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

}  // namespace tlm::jinja
