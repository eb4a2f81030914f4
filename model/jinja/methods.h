// The methods of text, lists, tuples and dicts.
#ifndef TLM_MODEL_JINJA_METHODS_H_
#define TLM_MODEL_JINJA_METHODS_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// `object`'s method as a value that can be called; nullopt where Python has none of that name.
// UNIMPLEMENTED for methods that Python has and this interpreter has not.
absl::StatusOr<std::optional<Value>> BindMethod(Heap* heap, const Value& object,
                                                std::string_view name);

// Whether Jinja's immutable sandbox hides the attribute: methods that change a list or a dict, and
// Python's internals.
bool IsUnsafeAttribute(const Value& object, std::string_view name);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_METHODS_H_
